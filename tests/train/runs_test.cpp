// Runs in their folders: settings, locks, resuming with the same data or not at all, and what a checkpoint
// holds.
#include "topomask/runs.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <thread>

#include "data/records.h"
#include "io/files.h"
#include "io/folder_lock.h"
#include "support/expect_error.h"
#include "support/gradients.h"
#include "support/temporary_folder.h"
#include "support/tiny_run.h"
#include "topomask/image_table.h"
#include "topomask/safetensors.h"
#include "train/finished_runs.h"
#include "train/table_runs.h"

namespace topomask::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Runs : public ::testing::Test {
 protected:
  // Batches are so small that a second thread would mostly be waited for.
  oracle::OneThread one_thread;
  TemporaryFolder folder;

  void write_images(const std::string& name, std::uint32_t classes = 3) const {
    fs::create_directories(folder / name);
    folder.write(name + "/train-images-idx3-ubyte", idx_images(60, 8));
    folder.write(name + "/train-labels-idx1-ubyte", idx_labels(60, classes));
  }
};

TrainCallbacks stop_after(std::int64_t steps) {
  TrainCallbacks callbacks;
  const auto done = std::make_shared<std::int64_t>(0);
  callbacks.should_stop = [done, steps] { return ++*done >= steps; };
  return callbacks;
}

void expect_same_tensors(const std::string& a, const std::string& b) {
  const SafetensorsFile left = read_safetensors(a), right = read_safetensors(b);
  ASSERT_EQ(left.tensors.size(), right.tensors.size());
  for (const auto& [name, tensor] : left.tensors) EXPECT_TRUE(tensor.equal(right.tensors.at(name))) << name;
}

// --- Settings --------------------------------------------------------------------------------------------

TEST_F(Runs, SettingsSurviveTheirFile) {
  VitSettings settings = tiny_run();
  settings.seed = 18446744073709551615ull;  // beyond TOML's integers
  settings.train.learning_rate = 0.1 + 0.2;
  settings.model.attention = AttentionVariant::softmax_grf;
  settings.data = "idx:a 'quoted' \"folder\"";
  const std::string path = folder.write("config.toml", settings.to_toml());
  const VitSettings again = VitSettings::from({}, path);
  EXPECT_EQ(again.to_toml(), settings.to_toml());
  EXPECT_EQ(again.seed, settings.seed);
  EXPECT_EQ(again.train.learning_rate, settings.train.learning_rate);
  EXPECT_EQ(difference(again, settings), "");
}

TEST_F(Runs, SettingsSayWhatIsWrong) {
  expect_error(
      [] {
        VitSettings::from({{"epoch", "3"}});
      },
      {"unknown key 'epoch'", "did you mean 'epochs'?"});
  expect_error([] { VitSettings::from({{"coupling", "anti"}}); }, {"coupling", "did you mean 'antithetic'?"});
  expect_error([&] { VitSettings::from({}, folder.path().string()); }, {"cannot read", "directory"});
  expect_error([&] { VitSettings::from({}, folder / "none.toml"); }, {"none.toml"});
}

TEST_F(Runs, SettingsDifferInWhatAResultDependsOn) {
  const VitSettings settings = tiny_run({{"data", "idx:here,val=0.5"}});
  VitSettings other = settings;
  other.device = "cuda";
  other.workers = 7;
  other.train.checkpoint_steps = 3;
  other.data = "idx:there,val=0.5";
  EXPECT_EQ(difference(settings, other), "");
  other.data = "idx:there,val=0.4";
  EXPECT_EQ(difference(settings, other), "data is idx:here,val=0.5 there and idx:there,val=0.4 here");
  other = settings;
  other.train.learning_rate = 0.5;
  EXPECT_EQ(difference(settings, other), "learning-rate is 0.02 there and 0.5 here");
}

// --- Folders ---------------------------------------------------------------------------------------------

TEST_F(Runs, AFolderBelongsToOne) {
  const std::string path = folder / "a/b";
  {
    const RunFolder first(path, RunStart::fresh);
    for (const RunStart start : {RunStart::fresh, RunStart::either, RunStart::resume}) {
      EXPECT_THROW(RunFolder(path, start), FolderInUse);
      expect_error([&] { RunFolder(path, start); }, {"a/b: another process is training there"});
    }
    EXPECT_FALSE(first.settings());
    EXPECT_FALSE(first.result());
  }
  EXPECT_FALSE(fs::exists(folder / "a"));  // nothing was written, so nothing stays
  expect_error([&] { RunFolder(path, RunStart::resume); }, {"a/b: holds no run to resume"});
  EXPECT_FALSE(fs::exists(folder / "a"));
  fs::create_directories(path);
  { const RunFolder again(path, RunStart::fresh); }
  EXPECT_TRUE(fs::exists(path));  // it was there before
}

TEST_F(Runs, AFolderThatCannotBeMadeIsAnError) {
  folder.write("file", "");
  expect_error([&] { RunFolder(folder / "file/run", RunStart::fresh); },
               {"file/run: cannot be made a folder"});
}

TEST_F(Runs, AWaitingLockSeesThatTheFolderIsGone) {
  // One process removes the folder that it made while another waits for its lock: the second must not be left
  // with the lock of a file that nobody else can find.
  const std::string path = folder / "a";
  auto first = std::make_unique<FolderLock>(path, FolderLock::Wait::no);
  ASSERT_TRUE(first->held());
  std::unique_ptr<FolderLock> second;
  std::thread waiting([&] { second = std::make_unique<FolderLock>(path, FolderLock::Wait::yes); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  first.reset();
  waiting.join();
  EXPECT_TRUE(second->held());
  EXPECT_FALSE(FolderLock(path, FolderLock::Wait::no).held());
}

TEST_F(Runs, WhatAKilledProcessLeftIsRemoved) {
  fs::create_directories(folder / "a");
  for (const char* name :
       {"last.safetensors.123.tmp", "config.toml.9.tmp", "mine.123.tmp", "config.toml.x.tmp"})
    folder.write(std::string("a/") + name, "half");
  const RunFolder again(folder / "a", RunStart::fresh);
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder / "a")) left.push_back(entry.path().filename());
  EXPECT_THAT(left, ::testing::UnorderedElementsAre(".lock", "mine.123.tmp", "config.toml.x.tmp"));
}

// --- Training --------------------------------------------------------------------------------------------

TEST_F(Runs, ResumeToTheSameBits) {
  VitSettings settings = tiny_run();
  settings.train.ema = 0.9;
  settings.model.dropout = 0.1;
  {
    RunFolder straight(folder / "straight", RunStart::fresh);
    EXPECT_EQ(train_vit(straight, settings).training.step, 6);
  }
  {
    RunFolder first(folder / "first", RunStart::fresh);
    const VitRunResult stopped = train_vit(first, settings, stop_after(2));
    EXPECT_EQ(stopped.training.outcome, TrainOutcome::stopped);
    EXPECT_EQ(stopped.json, "");
  }
  expect_error([&] { RunFolder(folder / "first", RunStart::fresh); }, {"first: holds a run already"});
  fs::rename(folder / "first", folder / "moved");
  settings.train.checkpoint_steps = 1;
  RunFolder moved(folder / "moved", RunStart::resume);
  std::int64_t from = -1;
  TrainCallbacks callbacks;
  callbacks.started = [&](std::int64_t step, std::int64_t) { from = step; };
  const VitRunResult finished = train_vit(moved, settings, callbacks);
  EXPECT_EQ(from, 2);
  EXPECT_EQ(finished.training.outcome, TrainOutcome::finished);
  for (const char* name : {"/last.safetensors", "/best.safetensors", "/masks.safetensors"})
    expect_same_tensors(folder / "straight" + name, folder / "moved" + name);
  // What is finished is only reported.
  callbacks.started = [](std::int64_t, std::int64_t) { FAIL() << "trained again"; };
  const VitRunResult again = train_vit(moved, settings, callbacks);
  EXPECT_EQ(again.json, finished.json);
  EXPECT_EQ(again.training.last.accuracy, finished.training.last.accuracy);
  EXPECT_EQ(again.training.best_epoch, finished.training.best_epoch);
}

TEST_F(Runs, ResumeWithTheirOwnSettingsAlone) {
  const VitSettings settings = tiny_run();
  RunFolder run(folder / "a", RunStart::either);
  train_vit(run, settings, stop_after(2));
  VitSettings other = settings;
  other.train.weight_decay = 0.5;
  expect_error([&] { train_vit(run, other); },
               {"weight-decay is 0.05 there and 0.5 here", "its own settings"});
  // Also where someone edited the file: the checkpoint knows.
  write_file(run.file(kConfigFile), other.to_toml());
  expect_error([&] { train_vit(run, other); }, {"weight-decay is 0.05 there and 0.5 here"});
  EXPECT_EQ(train_vit(run, settings).training.outcome, TrainOutcome::finished);
}

TEST_F(Runs, ResumeWithTheirOwnDataAlone) {
  write_images("images");
  const VitSettings settings = tiny_run({{"data", "idx:" + folder / "images"}});
  RunFolder run(folder / "a", RunStart::either);
  train_vit(run, settings, stop_after(2));
  const std::string before = read_file(run.file(kLastCheckpoint)), config = read_file(run.file(kConfigFile));

  // The same files elsewhere are the same data.
  write_images("there");
  VitSettings there = settings;
  there.data = "idx:" + folder / "there";
  train_vit(run, there, stop_after(1));

  // Labels that were replaced: 3 classes still, the same images, the same number of steps.
  std::string labels = idx_labels(60, 3);
  for (std::size_t i = 8; i < labels.size(); ++i) labels[i] = static_cast<char>((labels[i] + 1) % 3);
  folder.write("images/train-labels-idx1-ubyte", labels);
  expect_error([&] { train_vit(run, settings); },
               {"last.safetensors", "trained on other data (training labels, validation labels differ)"});
  folder.write("images/train-labels-idx1-ubyte", idx_labels(60, 3));
  std::string images = idx_images(60, 8);
  std::swap(images[16], images[images.size() - 1]);
  std::swap(images[17], images[images.size() - 2]);
  folder.write("images/train-images-idx3-ubyte", images);
  expect_error([&] { train_vit(run, settings); }, {"images", "differ"});
  // A refused run stays as it was.
  EXPECT_EQ(read_file(run.file(kConfigFile)), there.to_toml());
  write_images("images");
  EXPECT_EQ(train_vit(run, settings).training.outcome, TrainOutcome::finished);
}

TEST_F(Runs, AFreshStartMayReplaceSettingsWithoutACheckpoint) {
  // As left by a process that was killed before its first checkpoint.
  fs::create_directories(folder / "a");
  folder.write("a/config.toml", tiny_run().to_toml());
  VitSettings other = tiny_run();
  other.train.epochs = 1;
  {
    RunFolder run(folder / "a", RunStart::resume);
    expect_error([&] { train_vit(run, other); }, {"epochs is 2 there and 1 here"});
  }
  RunFolder run(folder / "a", RunStart::fresh);
  EXPECT_EQ(train_vit(run, other).training.epoch, 1);
  EXPECT_EQ(read_run_settings(folder / "a").train.epochs, 1);
}

TEST_F(Runs, AFailureBeforeTrainingLeavesNothing) {
  VitSettings settings = tiny_run();
  settings.model.heads = 3;
  {
    RunFolder run(folder / "a", RunStart::fresh);
    expect_error([&] { train_vit(run, settings); }, {"heads 3 do not divide"});
  }
  EXPECT_FALSE(fs::exists(folder / "a"));
}

TEST_F(Runs, OddResultsAreSentences) {
  const auto result = [&](const std::string& text) {
    fs::create_directories(folder / "a");
    folder.write("a/result.json", text);
    return [&] { read_result(folder / "a"); };
  };
  expect_error(result("{"), {"result.json: is not a JSON object; remove it to run again"});
  expect_error(result("[1]"), {"is not a JSON object"});
  expect_error(result("{}"), {"expected a number for 'seed'; remove it to run again"});
  expect_error(result(R"({"seed": "0"})"), {"expected a number for 'seed'"});
  EXPECT_FALSE(read_result(folder / "nowhere"));
}

TEST_F(Runs, ATableRefusesABadVariantBeforeTheFirstRun) {
  ImageTable table;
  table.folder = folder / "table";
  table.settings = tiny_run();
  table.variants = {"linear", "grf@mask-every=0"};
  expect_error([&] { run_image_table(table); },
               {"variants: 'grf@mask-every=0': mask: mask-every must be 1 or more, got 0"});
  table.variants = {"linear", "grf@learning-rate=-1"};
  expect_error([&] { run_image_table(table); },
               {"'grf@learning-rate=-1': training: learning-rate must be positive"});
  table.variants = {"linear"};
  table.settings.model.heads = 3;
  expect_error([&] { run_image_table(table); }, {"vit: heads 3 do not divide"});
  EXPECT_FALSE(fs::exists(folder / "table/linear"));
}

TEST_F(Runs, ATableGoesOnAfterARunThatDiverges) {
  ImageTable table;
  table.folder = folder / "table";
  table.settings = tiny_run();
  table.variants = {"grf@learning-rate=1e30@clip-norm=0", "linear"};
  table.seeds = {0, 1};
  std::vector<std::string> told;
  TableCallbacks callbacks;
  callbacks.diverged = [&](const TableRun& run, const std::string&) { told.push_back(run.variant); };
  const TableResult result = run_image_table(table, callbacks);
  EXPECT_EQ(result.finished, 2);
  ASSERT_EQ(result.diverged.size(), 2u);
  EXPECT_THAT(result.diverged[1], ::testing::StartsWith(table.variants[0] + "/seed-1: training: "));
  EXPECT_EQ(told, std::vector(2, table.variants[0]));
}

// A run whose loss is not finite has finished all the same: null in its file, unknown in the table.
TEST_F(Runs, ALossThatIsNotFiniteIsAResult) {
  const std::string run = folder / "grf/seed-0";
  fs::create_directories(folder / "grf");
  train_vit(*std::make_unique<RunFolder>(run, RunStart::fresh), tiny_run());
  nlohmann::ordered_json result = *read_result(run);
  result["loss"] = result["f"][0][0][1] = nullptr;
  folder.write("grf/seed-0/result.json", result.dump());
  RunFolder again(run, RunStart::resume);
  EXPECT_TRUE(std::isnan(train_vit(again, tiny_run()).training.last.loss));
  const auto row = summarise_runs(find_finished_runs(folder / ""))["variants"].at(0);
  EXPECT_TRUE(std::isnan(row["loss_mean"].get<double>()));
  EXPECT_EQ(row["accuracy_mean"], result["accuracy"]);
}

// --- Checkpoints -----------------------------------------------------------------------------------------

TEST_F(Runs, CheckpointsHoldAllOfAModel) {
  VitSettings settings = tiny_run();
  settings.train.ema = 0.5;
  settings.seed = 5;
  RunFolder run(folder / "a", RunStart::fresh);
  train_vit(run, settings);
  const ImageData data = settings.open_data();
  const VitOptions expected = settings.task_options(data).model;
  for (const char* name : {kLastCheckpoint, kBestCheckpoint}) {
    const VitCheckpoint checkpoint = read_vit_checkpoint(run.file(name));
    EXPECT_EQ(checkpoint.settings.to_toml(), settings.to_toml());
    EXPECT_EQ(vit_settings_json(checkpoint.model), vit_settings_json(expected));
    EXPECT_EQ(checkpoint.model.seed, expected.seed);
    EXPECT_EQ(checkpoint.images.mean, data.mean);
    EXPECT_EQ(checkpoint.images.stddev, data.stddev);
    EXPECT_EQ(checkpoint.images.class_names, data.class_names);
  }
  // The averaged weights are what was evaluated.
  const SafetensorsFile last = read_safetensors(run.file(kLastCheckpoint));
  const VitCheckpoint checkpoint = read_vit_checkpoint(run.file(kLastCheckpoint));
  EXPECT_FALSE(last.tensors.at("norm.weight").equal(last.tensors.at("ema.norm.weight")));
  for (const auto& [name, tensor] : checkpoint.weights)
    EXPECT_TRUE(tensor.equal(last.tensors.at("ema." + name))) << name;
  EXPECT_TRUE(checkpoint.weights.contains("blocks.1.attention.mask.f"));
}

TEST_F(Runs, EvaluationIsThatOfTraining) {
  RunFolder run(folder / "a", RunStart::fresh);
  const VitSettings settings = tiny_run();
  const TrainResult trained = train_vit(run, settings).training;
  const VitEvaluation same = evaluate_vit(run.file(kLastCheckpoint));
  EXPECT_EQ(same.result.accuracy, trained.last.accuracy);
  EXPECT_EQ(same.result.loss, trained.last.loss);
  EXPECT_EQ(
      evaluate_vit(run.file(kBestCheckpoint), {"strokes:16,train=48,val=10,seed=9", "", 4}).result.count, 10);
  expect_error([&] { evaluate_vit(run.file(kLastCheckpoint), {.data = "strokes:20,train=8,val=8"}); },
               {"the model is for 3 classes of", "16x16", "20x20"});
}

// A checkpoint as an earlier version wrote it.
SafetensorsFile with_old_names(const SafetensorsFile& file) {
  SafetensorsFile old;
  old.metadata = file.metadata;
  old.metadata.erase("classes");
  old.metadata.erase("data");
  for (const auto& [name, tensor] : file.tensors) {
    const std::size_t at = name.rfind(".mask.f");
    old.tensors[at == std::string::npos ? name : name.substr(0, at) + ".mask.modulation"] = tensor;
  }
  return old;
}

TEST_F(Runs, CheckpointsOfEarlierVersionsStillLoad) {
  const VitSettings settings = tiny_run();
  {
    RunFolder straight(folder / "straight", RunStart::fresh);
    train_vit(straight, settings);
  }
  RunFolder run(folder / "a", RunStart::fresh);
  train_vit(run, settings, stop_after(3));
  const SafetensorsFile now = read_safetensors(run.file(kLastCheckpoint));
  const SafetensorsFile old = with_old_names(now);
  ASSERT_TRUE(old.tensors.contains("optimizer.mean.blocks.0.attention.mask.modulation"));
  ASSERT_FALSE(old.tensors.contains("blocks.0.attention.mask.f"));
  write_safetensors(run.file(kLastCheckpoint), old);
  const VitCheckpoint checkpoint = read_vit_checkpoint(run.file(kLastCheckpoint));
  EXPECT_TRUE(
      checkpoint.weights.at("blocks.0.attention.mask.f").equal(now.tensors.at("blocks.0.attention.mask.f")));
  EXPECT_TRUE(checkpoint.images.class_names.empty());
  EXPECT_EQ(train_vit(run, settings).training.outcome, TrainOutcome::finished);
  expect_same_tensors(folder / "straight/last.safetensors", run.file(kLastCheckpoint));
}

TEST_F(Runs, WrongCheckpointsAreSentences) {
  RunFolder run(folder / "a", RunStart::fresh);
  train_vit(run, tiny_run());
  const std::string good = run.file(kBestCheckpoint), bad = folder / "bad.safetensors";
  const auto read = [&] { read_vit_checkpoint(bad); };
  const auto changed = [&](auto&& change) {
    SafetensorsFile file = read_safetensors(good);
    change(file);
    write_safetensors(bad, file);
  };
  expect_error([&] { read_vit_checkpoint(folder / "none.safetensors"); }, {"none.safetensors"});
  expect_error([&] { read_vit_checkpoint(folder.path().string()); }, {"not a regular file"});
  folder.write("bad.safetensors", "");
  expect_error(read, {"bad.safetensors"});
  folder.write("bad.safetensors", "not a checkpoint at all");
  expect_error(read, {"bad.safetensors"});
  const std::string whole = read_file(good);
  for (const double part : {0.001, 0.1, 0.9, 0.999}) {
    folder.write("bad.safetensors",
                 whole.substr(0, static_cast<std::size_t>(part * static_cast<double>(whole.size()))));
    expect_error(read, {"bad.safetensors"});
  }
  for (const char* key : {"config", "normalisation", "images"}) {
    changed([&](SafetensorsFile& file) { file.metadata.erase(key); });
    const std::string expected = std::string("its metadata has no '") + key + "'";
    expect_error(read, {"not a checkpoint of 'topomask train'", expected.c_str()});
    changed([&](SafetensorsFile& file) { file.metadata[key] = "{\"a\": "; });
    expect_error(read, {"bad.safetensors"});
  }
  changed([](SafetensorsFile& file) { file.metadata["images"] = "{\"channels\": \"three\"}"; });
  expect_error(read, {"the 'images' of its metadata cannot be understood"});
  changed([](SafetensorsFile& file) { file.metadata["normalisation"] = R"({"mean": [0], "stddev": []})"; });
  expect_error(read, {"normalisation", "channels"});
  changed([](SafetensorsFile& file) { file.metadata["classes"] = R"(["one"])"; });
  expect_error(read, {"the 'classes' of its metadata are 1"});
  for (const char* name : {"head.bias", "blocks.1.attention.mask.f", "position_embedding"}) {
    changed([&](SafetensorsFile& file) { file.tensors.erase(name); });
    const std::string expected = std::string("there is no tensor '") + name + "'";
    expect_error(read, expected.c_str());
  }
  changed([](SafetensorsFile& file) { file.tensors["norm.weight"] = at::zeros({3}); });
  expect_error(read, {"tensor 'norm.weight' is [3], the model's is [8]"});
}

// --- JSON ------------------------------------------------------------------------------------------------

TEST_F(Runs, OptionsSurviveTheirJson) {
  for (const std::string& variant : attention_variant_names()) {
    VitOptions options;
    options.attention = parse_attention_variant(variant);
    options.height = 16;
    options.layers = 2;
    options.pooling = Pooling::cls;
    options.mask.coupling = Coupling::both;
    options.mask.share_walks = variant == "grf";
    options.mask.ensembles = Ensembles::independent;
    options.mask.absolute = false;
    options.mask.key_f = variant == "grf";
    if (variant != "toeplitz") options.mask.patch_graph = "diagonals";  // its offsets are those of a grid
    options.mask.seed = 18446744073709551615ull;
    options.seed = 7;
    const std::string text = vit_settings_json(options, {{0.5, 0.25, 0.125}, {1, 2, 3}, {}});
    const VitOptions again = vit_options_from_json(text);
    EXPECT_EQ(vit_settings_json(again, {{0.5, 0.25, 0.125}, {1, 2, 3}, {}}), text);
    EXPECT_EQ(again.mask.seed, options.mask.seed);
    EXPECT_EQ(again.mask.ensembles, options.mask.ensembles);
    EXPECT_FALSE(again.mask.absolute);
    EXPECT_EQ(again.mask.key_f, options.mask.key_f);
    EXPECT_EQ(again.mask.patch_graph, options.mask.patch_graph);
    EXPECT_EQ(again.seed, options.seed);
    const ImageFormat images = image_format_from_json(text);
    EXPECT_EQ(images.mean, (std::vector<double>{0.5, 0.25, 0.125}));
    EXPECT_EQ(images.stddev, (std::vector<double>{1, 2, 3}));
  }
}

// Of runs left to another process, those that it has finished by the end are counted.
TEST_F(Runs, ATableCountsWhatIsFinishedAtItsEnd) {
  for (const bool other_ends : {false, true}) {
    TableWork work;
    work.folder = folder / (other_ends ? "ends" : "goes-on");
    work.variants = {"theirs", "ours"};
    work.seeds = {0};
    const auto result_of = [](const std::string& run) { return run + "/" + kResultFile; };
    work.is_finished = [&](const std::string& run) { return fs::exists(result_of(run)); };
    const std::string theirs = work.folder + "/theirs/seed-0";
    const RunFolder held(theirs, RunStart::either);  // another process trains there
    std::vector<std::string> trained;
    work.train = [&](RunFolder& own, const TableRun& run, const TrainCallbacks&) {
      trained.push_back(run.variant);
      write_file(own.file(kResultFile), "{}");
      if (other_ends) write_file(result_of(theirs), "{}");
      TrainResult done;
      done.outcome = TrainOutcome::finished;
      return done;
    };
    work.merge = [] { return "{}"; };
    const TableResult result = run_table(work, {});
    EXPECT_EQ(trained, (std::vector<std::string>{"ours"}));
    EXPECT_EQ(result.total, 2);
    EXPECT_EQ(result.finished, other_ends ? 2 : 1);
    EXPECT_EQ(result.in_use, other_ends ? 0 : 1);
  }
}

TEST_F(Runs, JsonSaysWhatIsWrong) {
  const auto read = [](const char* text) { return [text] { vit_options_from_json(text); }; };
  EXPECT_EQ(vit_options_from_json("{}").embedding, VitOptions().embedding);
  EXPECT_EQ(vit_options_from_json(R"({"image_size": [64, 32], "dim": 8, "heads": 2})").height, 64);
  expect_error(read("["), {"expected a JSON object"});
  expect_error(read(R"({"head": 3})"), {"unknown option 'head'", "did you mean 'heads'?"});
  expect_error(read(R"({"heads": "3"})"), {"heads cannot be \"3\""});
  expect_error(read(R"({"heads": 2.5})"), {"heads cannot be 2.5"});
  expect_error(read(R"({"seed": -1})"), {"seed cannot be -1"});
  expect_error(read(R"({"image_size": 32})"), {"image_size cannot be 32"});
  expect_error([] { image_format_from_json(R"({"mean": "0"})"); }, {"mean cannot be \"0\""});
  expect_error(read(R"({"heads": 3})"), {"heads 3 do not divide"});
  expect_error(read(R"({"attention": "gfr"})"), {"attention: unknown value 'gfr'", "did you mean 'grf'?"});
}

}  // namespace
}  // namespace topomask::testing
