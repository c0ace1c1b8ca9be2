// train, eval and experiment as a user gives them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "data/records.h"
#include "run_program.h"
#include "running_program.h"
#include "topomask/safetensors.h"
#ifdef TOPOMASK_FFMPEG
#include "data/encoded_video.h"
#endif

namespace topomask::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const std::vector<std::string> kSizes = {"--layers", "1",  "--embedding",     "16", "--mlp", "16",
                                         "--batch",  "16", "--warmup-epochs", "1"};
const std::vector<std::string> kTiny = with({"--data", "strokes:16,train=64,val=48"}, kSizes);

std::vector<std::string> training(const std::string& out, const std::vector<std::string>& more = {}) {
  return with(with({"train", "vit", "--out", out}, kTiny), more);
}

// Images of `idx` in a folder.
std::vector<std::string> training_on(const std::string& images, const std::string& out,
                                     const std::vector<std::string>& more) {
  return with(with({"train", "vit", "--out", out, "--data", "idx:" + images, "--patch", "2"}, kSizes), more);
}

std::size_t count_lines(const std::string& path) {
  const std::string text = read_whole_file(path);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Train, LeavesWhatAReportNeeds) {
  const TemporaryDirectory folder;
  const nlohmann::json result =
      run_json(training(folder.path("run"), {"--epochs", "2", "--attention", "grf"}));
  EXPECT_EQ(result["epochs"], 2);
  EXPECT_EQ(result["steps"], 8);
  EXPECT_EQ(result["validation_images"], 48);
  EXPECT_GT(result["data_share"], 0);
  EXPECT_LT(result["data_share"], 1);
  ASSERT_EQ(result["f"].size(), 1u);         // layers
  ASSERT_EQ(result["f"][0].size(), 2u);      // heads
  EXPECT_EQ(result["f"][0][0].size(), 11u);  // hops
  EXPECT_EQ(nlohmann::json::parse(read_whole_file(folder.path("run/result.json")))["accuracy"],
            result["accuracy"]);
  EXPECT_EQ(count_lines(folder.path("run/metrics.jsonl")), 2u);
  const std::int64_t patches = result["grid"][0].get<std::int64_t>() * result["grid"][1].get<std::int64_t>();
  const SafetensorsFile masks = read_safetensors(folder.path("run/masks.safetensors"));
  EXPECT_EQ(masks.tensors.at("layer.0.used").sizes(), (std::vector<std::int64_t>{2, patches, patches}));
  EXPECT_EQ(masks.tensors.at("layer.0.exact").sizes(), (std::vector<std::int64_t>{2, patches, patches}));
  const SafetensorsFile examples = read_safetensors(folder.path("run/examples.safetensors"));
  EXPECT_EQ(examples.tensors.at("images").size(0), examples.tensors.at("probabilities").size(0));
}

TEST(Train, EvalFindsTheAccuracyOfTraining) {
  const TemporaryDirectory folder;
  for (const char* ema : {"0", "0.8"}) {
    const std::string out = folder.path(std::string("run") + ema);
    const nlohmann::json result =
        run_json(training(out, {"--epochs", "3", "--ema", ema, "--dropout", "0.1"}));
    const nlohmann::json last = run_json({"eval", "--checkpoint", out + "/last.safetensors"});
    EXPECT_EQ(last["accuracy"], result["accuracy"]);
    EXPECT_EQ(last["loss"], result["loss"]);
    EXPECT_EQ(last["images"], 48);
    const nlohmann::json best = run_json({"eval", "--checkpoint", out + "/best.safetensors"});
    EXPECT_EQ(best["accuracy"], result["best_accuracy"]);
    const nlohmann::json other = run_json(
        {"eval", "--checkpoint", out + "/best.safetensors", "--data", "strokes:16,train=64,val=10,seed=9"});
    EXPECT_EQ(other["images"], 10);
  }
}

TEST(Train, TakesSettingsFromAFileAndTheCommandLineWins) {
  const TemporaryDirectory folder;
  const std::string config = folder.write(
      "recipe.toml",
      "preset = 'tiny'\n[model]\nlayers = 1\nembedding = 16\nmlp = 16\nattention = \"toeplitz\"\n[data]\n"
      "data = 'strokes:16,train=64,val=16'\nbatch = 16\n[training]\nepochs = 7\nlearning-rate = "
      "1e-2\nwarmup-epochs = 0\n"
      "[augmentation]\nflip = true\n");
  run_json({"train", "vit", "--config", config, "--epochs", "1", "--out", folder.path("run")});
  const std::string saved = read_whole_file(folder.path("run/config.toml"));
  EXPECT_THAT(saved, HasSubstr("attention = 'toeplitz'"));
  EXPECT_THAT(saved, HasSubstr("epochs = 1\n"));
  EXPECT_THAT(saved, HasSubstr("learning-rate = 0.01\n"));
  EXPECT_THAT(saved, HasSubstr("flip = true\n"));
  EXPECT_THAT(saved, HasSubstr("heads = 2\n"));  // the preset's
  // A saved configuration is one that can be given.
  run_json({"train", "vit", "--config", folder.path("run/config.toml"), "--out", folder.path("again")});
  EXPECT_EQ(read_whole_file(folder.path("again/config.toml")), saved);
}

// key = value of every line that has one, without quotes and sections.
std::map<std::string, std::string> toml_values(const std::string& text) {
  std::map<std::string, std::string> values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find(" = ");
    if (line.starts_with('#') || equals == std::string::npos) continue;
    std::string value = line.substr(equals + 3);
    std::erase_if(value, [](char c) { return c == '"' || c == '\''; });
    values[line.substr(0, equals)] = value;
  }
  return values;
}

TEST(Train, PrintsTheSettingsOfEveryRecipe) {
  const TemporaryDirectory folder;
  std::size_t recipes = 0;
  for (const auto& entry : fs::directory_iterator(TOPOMASK_RECIPES)) {
    SCOPED_TRACE(entry.path().string());
    ++recipes;
    const std::string text = read_whole_file(entry.path().string());
    const bool particles = entry.path().filename().string().starts_with("hd-vpd");
    const std::string kind = particles                                       ? "particles"
                             : text.find("\n[video]\n") != std::string::npos ? "vivit"
                                                                             : "vit";
    const ProgramResult first =
        run_program({"train", kind, "--config", entry.path().string(), "--print-config"});
    ASSERT_EQ(first.status, 0) << first.err;
    const auto printed = toml_values(first.out);
    for (const auto& [key, value] : toml_values(text)) {
      ASSERT_TRUE(printed.contains(key)) << key;
      if (std::isdigit(static_cast<unsigned char>(value[0])) != 0) {
        EXPECT_EQ(std::stod(printed.at(key)), std::stod(value)) << key;
      } else {
        EXPECT_EQ(printed.at(key), value) << key;
      }
    }
    // The printed settings are a valid recipe, and the command line overrides it.
    const std::string again = folder.write("again.toml", first.out);
    EXPECT_EQ(run_program({"train", kind, "--config", again, "--print-config"}).out, first.out);
    const ProgramResult changed =
        run_program({"train", kind, "--config", again, "--print-config", "--batch", "3"});
    EXPECT_EQ(toml_values(changed.out).at("batch"), "3");
  }
  EXPECT_GE(recipes, 3u);
  // Nothing was trained.
  expect_rejected({"train", "vit", "--print-config", "--epochs", "0"}, "epochs must be 1 or more");
  EXPECT_FALSE(fs::exists("runs"));
}

TEST(Train, SaysWhatIsWrongWithASetting) {
  const TemporaryDirectory folder;
  const auto config = [&](const std::string& text) -> std::vector<std::string> {
    return {"train", "vit", "--config", folder.write("bad.toml", text), "--out", folder.path("run")};
  };
  expect_rejected(config("[training]\nepoch = 3\n"), "line 2: unknown key 'epoch', did you mean 'epochs'?");
  expect_rejected(config("[trainng]\nepochs = 3\n"), "unknown section [trainng], did you mean 'training'?");
  expect_rejected(config("[model]\nepochs = 3\n"), "belongs into [training]");
  expect_rejected(config("epochs = 'many'\n"), "expected a whole number, got 'many'");
  expect_rejected(config("epochs = [1]\n"), "expected a string, a number");
  expect_rejected(config("epochs = \n"), "bad.toml: line 1:");
  expect_rejected({"train", "vit", "--config", folder.path("missing.toml")}, "missing.toml': No such file");
  expect_rejected({"train", "vit", "--config", folder.path("")}, "Is a directory");
  expect_rejected(training(folder.path("run"), {"--attention", "grff"}),
                  "--attention: unknown value 'grff', did you mean 'grf'?");
  expect_rejected(training(folder.path("run"), {"--initial-positions", "-1"}),
                  "initial-positions must be 0 or more, got -1");
  EXPECT_FALSE(fs::exists(folder.path("run")));
  expect_rejected(training(folder.path("run"), {"--epochs", "two"}),
                  "--epochs: expected a whole number, got 'two'");
  expect_rejected(training(folder.path("run"), {"--epochs", "0"}), "epochs must be 1 or more");
  expect_rejected(training(folder.path("run"), {"--patch", "5"}), "patch 5 does not divide images of 16x16");
  expect_rejected(training(folder.path("run"), {"--heads", "3"}), "heads 3 do not divide the embedding 16");
  expect_rejected(training(folder.path("run"), {"--preset", "huge"}), "preset");
  expect_rejected(training(folder.path("run"), {"--accumulate", "5"}), "make the batch smaller");
  expect_rejected({"train", "vit", "--data", "cifar10:" + folder.path("nowhere")},
                  "--data: there is no folder '" + folder.path("nowhere"));
  expect_rejected({"eval", "--checkpoint", folder.path("none.safetensors")}, "none.safetensors");
  EXPECT_FALSE(fs::exists(folder.path("run/last.safetensors")));
}

TEST(Train, KeepsARunThatIsThere) {
  const TemporaryDirectory folder;
  const std::string out = folder.path("run");
  expect_rejected({"train", "vit", "--resume", "--out", out}, "holds no run");
  run_json(training(out, {"--epochs", "2"}));
  expect_rejected(training(out, {"--epochs", "2"}), "holds a run already");
  expect_rejected({"train", "vit", "--resume", "--out", out, "--epochs", "3"},
                  "epochs is 2 there and 3 here");
  // A finished run is only reported again.
  EXPECT_EQ(run_json({"train", "vit", "--resume", "--out", out})["epochs"], 2);
}

// A second process fails at once, even while the first still reads its data; else both would train, and the
// later one would replace what the earlier one finished.
TEST(Train, ASecondProcessIsRefusedWhileTheFirstReadsItsData) {
  const TemporaryDirectory folder;
  fs::create_directories(folder.path("slow"));
  folder.write("slow/train-images-idx3-ubyte", idx_images(60, 8));
  const std::string pipe = folder.path("slow/train-labels-idx1-ubyte"), out = folder.path("run");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::vector<std::string> quick = {"--epochs", "1", "--quiet", "--threads", "1"};
  RunningProgram first(training_on(folder.path("slow"), out, quick), folder.path("errors"));
  ASSERT_TRUE(first.wait_until([&] { return fs::exists(out + "/.lock"); }));
  expect_rejected(training(out, quick), "run: another process is training there");
  expect_rejected({"train", "vit", "--resume", "--out", out}, "run: another process is training there");
  // The labels arrive, and the first goes on as if nothing had been.
  std::ofstream(pipe, std::ios::binary) << idx_labels(60, 3);
  EXPECT_EQ(first.wait(), 0) << read_whole_file(folder.path("errors"));
  const std::string result = read_whole_file(out + "/result.json");
  EXPECT_THAT(result, HasSubstr("idx:"));
  expect_rejected(training(out, quick), "holds a run already");
  EXPECT_EQ(read_whole_file(out + "/result.json"), result);
}

TEST(Train, ResumesWithItsOwnDataAlone) {
  const TemporaryDirectory folder;
  const auto write_images = [&](std::uint32_t classes, int shift) {
    fs::create_directories(folder.path("images"));
    folder.write("images/train-images-idx3-ubyte", idx_images(200, 8));
    std::string labels = idx_labels(200, classes);
    for (std::size_t i = 8; i < labels.size(); ++i)
      labels[i] = static_cast<char>((labels[i] + shift) % static_cast<int>(classes));
    folder.write("images/train-labels-idx1-ubyte", labels);
  };
  write_images(3, 0);
  const std::vector<std::string> settings = {"--epochs", "40", "--threads", "1", "--quiet"};
  ASSERT_EQ(run_program(training_on(folder.path("images"), folder.path("straight"), settings)).status, 0);
  const std::string out = folder.path("run");
  // Stops at the first step that it may.
  EXPECT_EQ(
      run_program(training_on(folder.path("images"), out, with(settings, {"--time-limit", "0.001"}))).status,
      130);
  const std::string kept = read_whole_file(out + "/last.safetensors"),
                    config = read_whole_file(out + "/config.toml");
  write_images(3, 1);
  const std::vector<std::string> resume = {"train", "vit",       "--resume", "--out",
                                           out,     "--threads", "1",        "--quiet"};
  expect_rejected(resume, "the run was trained on other data (training labels, validation labels differ)");
  EXPECT_EQ(read_whole_file(out + "/last.safetensors"), kept);
  EXPECT_EQ(read_whole_file(out + "/config.toml"), config);
  expect_rejected(with(resume, {"--learning-rate", "0.5"}), "learning-rate is 0.001 there and 0.5 here");
  // Where and how often, not what: another folder for run and images, other checkpoints and workers.
  write_images(3, 0);
  fs::rename(out, folder.path("moved"));
  fs::rename(folder.path("images"), folder.path("elsewhere"));
  const ProgramResult done = run_program({"train", "vit", "--resume", "--out", folder.path("moved"), "--data",
                                          "idx:" + folder.path("elsewhere"), "--device", "cpu", "--workers",
                                          "3", "--checkpoint-steps", "7", "--threads", "1", "--quiet"});
  EXPECT_EQ(done.status, 0) << done.err;
  const SafetensorsFile a = read_safetensors(folder.path("straight/last.safetensors")),
                        b = read_safetensors(folder.path("moved/last.safetensors"));
  for (const auto& [key, tensor] : a.tensors) EXPECT_TRUE(tensor.equal(b.tensors.at(key))) << key;
}

TEST(Train, StopsAtALossThatIsNoNumber) {
  const TemporaryDirectory folder;
  expect_rejected(training(folder.path("run"), {"--epochs", "5", "--learning-rate", "1e30"}), "not a number");
}

TEST(Train, SavesAtCtrlCAndGoesOn) {
  const TemporaryDirectory folder;
  const std::vector<std::string> settings = {"--epochs", "300", "--quiet", "--threads", "1"};
  ASSERT_EQ(run_program(training(folder.path("straight"), settings)).status, 0);
  const std::string out = folder.path("run"), errors = folder.path("errors");
  RunningProgram program(training(out, settings), errors);
  ASSERT_TRUE(program.wait_until(
      [&] { return fs::exists(out + "/metrics.jsonl") && fs::file_size(out + "/metrics.jsonl") > 0; }));
  program.send(SIGINT);
  EXPECT_EQ(program.wait(), 130);
  EXPECT_THAT(read_whole_file(errors), HasSubstr("topomask train vit --resume --out " + out));
  EXPECT_FALSE(fs::exists(out + "/result.json"));
  ASSERT_EQ(run_program({"train", "vit", "--resume", "--out", out, "--quiet", "--threads", "1"}).status, 0);
  const SafetensorsFile a = read_safetensors(folder.path("straight/last.safetensors")),
                        b = read_safetensors(out + "/last.safetensors");
  for (const auto& [key, tensor] : a.tensors) EXPECT_TRUE(tensor.equal(b.tensors.at(key))) << key;
}

TEST(Train, SaysThatADiskIsFull) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full on this machine";
  const TemporaryDirectory folder;
  fs::create_directories(folder.path("run"));
  fs::create_symlink("/dev/full", folder.path("run/metrics.jsonl"));
  expect_rejected(training(folder.path("run"), {"--epochs", "1"}),
                  "metrics.jsonl: cannot be written (No space left");
}

const std::vector<std::string> kTinyClips = with({"--data", "motion:12,frames=4,train=64,val=32"}, kSizes);

TEST(TrainVivit, LearnsResumesAndIsEvaluated) {
  const TemporaryDirectory folder;
  const std::string out = folder.path("run");
  const std::vector<std::string> command =
      with({"train", "vivit", "--out", out, "--epochs", "2", "--temporal-attention", "grf"}, kTinyClips);
  EXPECT_EQ(run_program(with(command, {"--time-limit", "0.001", "--quiet"})).status, 130);
  expect_rejected({"train", "vit", "--resume", "--out", out}, "use 'topomask train vivit'");
  const nlohmann::json result = run_json({"train", "vivit", "--resume", "--out", out});
  EXPECT_EQ(result["epochs"], 2);
  EXPECT_EQ(result["frames"], 4);
  EXPECT_EQ(result["f_layers"], (std::vector<int>{0, 1}));
  const nlohmann::json last = run_json({"eval", "--checkpoint", out + "/last.safetensors"});
  EXPECT_EQ(last["accuracy"], result["accuracy"]);
  EXPECT_EQ(last["images"], 32);
  run_json({"report", out});
  EXPECT_THAT(read_whole_file(out + "/report.html"), HasSubstr("\"frames\":4"));
}

TEST(TrainVivit, SaysWhatDoesNotFit) {
  const TemporaryDirectory folder;
  const auto train = [&](const char* kind, const std::string& data,
                         const std::vector<std::string>& more = {}) {
    return with(with({"train", kind, "--out", folder.path("run"), "--data", data}, kSizes), more);
  };
  const std::string clips = "motion:12,frames=4,train=64,val=32";
  expect_rejected(train("vivit", "strokes:12,train=8,val=8"),
                  "single images, use 'topomask train vit' with it");
  expect_rejected(train("vit", clips), "holds clips, use 'topomask train vivit' with it");
  expect_rejected(train("vivit", clips, {"--encoder", "image"}),
                  "those of a vit (encoder image): use 'topomask train vit'");
  expect_rejected(train("vivit", clips, {"--encoder", "joint", "--temporal-layers", "2"}),
                  "--temporal-layers: is for the factorised encoder");
  expect_rejected(train("vivit", clips, {"--flip"}), "a mirrored clip belongs to another class");
  expect_rejected(train("vivit", clips, {"--tubelet", "3"}), "tubelets of 3 frames do not divide clips of 4");
  expect_rejected(train("vivit", clips, {"--preset", "b16"}), "did you mean 'b16x2'?");
  expect_rejected(train("vit", clips, {"--tubelet", "2"}), "--tubelet");
  expect_rejected(train("vivit", "video-folder:" + folder.path("none")), "--data: ");
}

TEST(TrainVivit, TakesMovingDigits) {
  const TemporaryDirectory folder;
  fs::create_directories(folder.path("digits"));
  folder.write("digits/train-images-idx3-ubyte", idx_images(60, 8));
  folder.write("digits/train-labels-idx1-ubyte", idx_labels(60, 3));
  const auto train = [&](const std::string& out, const std::string& options) {
    return with({"train", "vivit", "--out", folder.path(out), "--epochs", "1", "--data",
                 "moving-digits:" + folder.path("digits") + ",size=12,frames=4,train=32,val=16" + options},
                kSizes);
  };
  const nlohmann::json both = run_json(train("both", ""));
  EXPECT_EQ(both["classes"].size(), 12u);
  EXPECT_EQ(both["classes"][1], "0 left");
  EXPECT_EQ(both["frames"], 4);
  EXPECT_EQ(both["training_images"], 32);
  EXPECT_EQ(both["validation_images"], 16);
  const nlohmann::json again = run_json({"eval", "--checkpoint", folder.path("both/last.safetensors")});
  EXPECT_EQ(again["accuracy"], both["accuracy"]);
  expect_rejected(with(train("flipped", ""), {"--flip"}), "a mirrored clip belongs to another class");
  EXPECT_EQ(run_json(with(train("digit", ",labels=digit"), {"--flip"}))["classes"].size(), 3u);
  expect_rejected(train("speed", ",labels=speed"), "labels=both, digit or motion");
}

#ifdef TOPOMASK_FFMPEG
class VideoFiles : public ::testing::Test {
 protected:
  // Three clips of each class and part: bright ones and dark ones.
  VideoFiles() {
    for (const char* part : {"train", "val"}) {
      for (const auto& [name, level] : {std::pair("bright", 200), std::pair("dark", 40)}) {
        const std::string path = folder.path(std::string("videos/") + part + "/" + name);
        fs::create_directories(path);
        for (const auto& [file, format] :
             {std::pair("/0.mp4", "mp4"), std::pair("/1.mkv", "matroska"), std::pair("/2.avi", "avi")})
          write_video(path + file, {.width = 24, .height = 16, .frames = 6, .format = format},
                      [level = level](int) { return level; });
      }
    }
  }

  std::vector<std::string> train(const std::string& out, const std::vector<std::string>& more = {}) const {
    return with(
        with({"train", "vivit", "--out", folder.path(out), "--epochs", "2", "--patch", "8", "--threads", "1",
              "--data", "video-folder:" + folder.path("videos") + ",frames=4,stride=1,size=16"},
             kSizes),
        more);
  }

  TemporaryDirectory folder;
};

TEST_F(VideoFiles, AreTrainedOnAndEvaluated) {
  const nlohmann::json result = run_json(train("run"));
  EXPECT_EQ(result["classes"], nlohmann::json::array({"bright", "dark"}));
  EXPECT_EQ(result["frames"], 4);
  EXPECT_EQ(result["grid"], nlohmann::json({2, 2}));
  EXPECT_EQ(result["training_images"], 6);
  EXPECT_EQ(result["validation_images"], 6);
  EXPECT_EQ(result["skipped_images"], 0);
  const nlohmann::json last = run_json({"eval", "--checkpoint", folder.path("run/last.safetensors")});
  EXPECT_EQ(last["accuracy"], result["accuracy"]);
  EXPECT_EQ(last["loss"], result["loss"]);
  // Stopped after a step and resumed, with other threads to decode: the same bits.
  EXPECT_EQ(run_program(train("stopped", {"--time-limit", "0.001", "--quiet"})).status, 130);
  run_json(
      {"train", "vivit", "--resume", "--out", folder.path("stopped"), "--workers", "3", "--threads", "1"});
  const SafetensorsFile a = read_safetensors(folder.path("run/last.safetensors")),
                        b = read_safetensors(folder.path("stopped/last.safetensors"));
  for (const auto& [key, tensor] : a.tensors) EXPECT_TRUE(tensor.equal(b.tensors.at(key))) << key;
}

TEST_F(VideoFiles, BadOnesAreErrorsOrSkippedAndCounted) {
  folder.write("videos/train/dark/0.mp4", "not a video");
  folder.write("videos/val/bright/1.mkv", "not a video");
  expect_rejected(train("run"), "dark/0.mp4' is no MP4");
  const nlohmann::json result = run_json(train("run", {"--skip-bad"}));
  EXPECT_EQ(result["training_images"], 6);
  EXPECT_EQ(result["validation_images"], 5);
  EXPECT_EQ(result["skipped_images"], 2);
  // A batch of the bad file alone has nothing to learn from.
  std::vector<std::string> one_by_one = train("one", {"--skip-bad"});
  *std::next(std::find(one_by_one.begin(), one_by_one.end(), "--batch")) = "1";
  expect_rejected(one_by_one, "0 of 1 files of a batch can be read");
}
#endif

TEST(VideoTable, HasItsVariantsAndControls) {
  const TemporaryDirectory folder;
  const std::string out = folder.path("table");
  const std::vector<std::string> variants = {"softmax+grf", "joint-grf", "shuffled-frames", "single-frame"};
  const nlohmann::json table = run_json(
      with({"experiment", "video-table", "--variants", "single-frame,joint-grf,softmax+grf,shuffled-frames",
            "--seeds", "0", "--epochs", "1", "--out", out},
           kTinyClips));
  EXPECT_EQ(table["experiment"], "video-table");
  ASSERT_EQ(table["variants"].size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(table["variants"][i]["variant"], variants[i]);
  EXPECT_THAT(read_whole_file(out + "/single-frame/seed-0/config.toml"), HasSubstr("frame-order = 'single'"));
  EXPECT_THAT(read_whole_file(out + "/joint-grf/seed-0/config.toml"), HasSubstr("encoder = 'joint'"));
  const std::string page = read_whole_file(out + "/report.html");
  EXPECT_THAT(page, HasSubstr("\"grid\":[2,3,3]"));  // the mask of a joint encoder
  EXPECT_THAT(page, HasSubstr("\"frame_order\":\"shuffled\""));
  expect_rejected(with({"experiment", "image-table", "--out", out}, kTinyClips),
                  "choose another folder for another experiment");
}

TEST(ImageTable, RunsWhatIsMissingAndMergesWhatIsThere) {
  const TemporaryDirectory folder;
  const auto table = [&](const std::vector<std::string>& more) {
    return run_json(with(
        with({"experiment", "image-table", "--out", folder.path("table"), "--epochs", "1"}, kTiny), more));
  };
  const nlohmann::json first = table({"--variants", "linear,grf", "--seeds", "0"});
  ASSERT_EQ(first["variants"].size(), 2u);
  EXPECT_TRUE(first["variants"][0]["accuracy_se"].is_null());
  const auto written = fs::last_write_time(folder.path("table/grf/seed-0/result.json"));
  const nlohmann::json all = table({"--variants", "grf,grf-walks-3,linear", "--seeds", "0-1"});
  EXPECT_EQ(fs::last_write_time(folder.path("table/grf/seed-0/result.json")), written);
  EXPECT_EQ(all["runs"].size(), 6u);
  ASSERT_EQ(all["variants"].size(), 3u);
  for (const auto& row : all["variants"]) {
    EXPECT_EQ(row["seeds"], nlohmann::json({0, 1}));
    double sum = 0;
    for (const auto& run : all["runs"]) {
      if (run["variant"] == row["variant"]) sum += run["accuracy"].get<double>();
    }
    EXPECT_DOUBLE_EQ(row["accuracy_mean"], sum / 2);
    EXPECT_TRUE(row["accuracy_se"].is_number());
    EXPECT_GT(row["images_per_second"], 0);
    EXPECT_GT(row["data_share"], 0);
  }
  EXPECT_EQ(nlohmann::json::parse(read_whole_file(folder.path("table/results.json"))), all);
  EXPECT_THAT(read_whole_file(folder.path("table/grf-walks-3/seed-1/config.toml")), HasSubstr("walks = 3\n"));
  expect_rejected(with({"experiment", "image-table", "--out", folder.path("table"), "--epochs", "2"}, kTiny),
                  "epochs is 1 there and 2 here");
  expect_rejected({"experiment", "image-table", "--variants", "gfr"}, "did you mean 'grf'?");
  expect_rejected({"experiment", "image-table", "--seeds", "x"}, "--seeds");
  expect_rejected({"experiment", "image-table", "--variants", "linear,grf,linear"},
                  "variants: 'linear' is listed twice");
  expect_rejected({"experiment", "video-table", "--seeds", "0-2,1"}, "seeds: '1' is listed twice");
}

TEST(ImageTable, GoesOnInAnotherPlaceWithTheFilesInAnother) {
  const TemporaryDirectory folder;
  const auto write_images = [&](const std::string& name, std::uint32_t side) {
    fs::create_directories(folder.path(name));
    folder.write(name + "/train-images-idx3-ubyte", idx_images(200, side));
    folder.write(name + "/train-labels-idx1-ubyte", idx_labels(200, 3));
  };
  write_images("here", 8);
  write_images("others", 10);
  const auto table = [&](const std::string& out, const std::string& data) -> std::vector<std::string> {
    return {"experiment",
            "image-table",
            "--out",
            folder.path(out),
            "--data",
            "idx:" + folder.path(data),
            "--patch",
            "2",
            "--layers",
            "1",
            "--epochs",
            "150",
            "--embedding",
            "16",
            "--mlp",
            "16",
            "--batch",
            "20",
            "--variants",
            "grf",
            "--seeds",
            "0",
            "--quiet",
            "--threads",
            "1"};
  };
  ASSERT_EQ(run_program(table("straight", "here")).status, 0);
  const std::string metrics = folder.path("first/grf/seed-0/metrics.jsonl");
  {
    RunningProgram program(table("first", "here"), folder.path("errors"));
    ASSERT_TRUE(program.wait_until([&] { return fs::exists(metrics) && fs::file_size(metrics) > 0; }));
    program.send(SIGINT);
    ASSERT_EQ(program.wait(), 130);
  }
  ASSERT_FALSE(fs::exists(folder.path("first/grf/seed-0/result.json")));
  fs::rename(folder.path("first"), folder.path("moved"));
  fs::rename(folder.path("here"), folder.path("there"));
  expect_rejected(table("moved", "others"), "the run was trained on other data (training images");
  ASSERT_EQ(run_program(table("moved", "there")).status, 0);
  const SafetensorsFile a = read_safetensors(folder.path("straight/grf/seed-0/last.safetensors")),
                        b = read_safetensors(folder.path("moved/grf/seed-0/last.safetensors"));
  for (const auto& [key, tensor] : a.tensors) EXPECT_TRUE(tensor.equal(b.tensors.at(key))) << key;
}

// One table does not mix results on different images.
TEST(ImageTable, RefusesDataThatWereReplaced) {
  const TemporaryDirectory folder;
  fs::create_directories(folder.path("images"));
  folder.write("images/train-images-idx3-ubyte", idx_images(200, 8));
  folder.write("images/train-labels-idx1-ubyte", idx_labels(200, 3));
  const auto table = [&](const std::string& seeds) {
    return with(
        with({"experiment", "image-table", "--out", folder.path("table"), "--epochs", "1"}, kSizes),
        {"--data", "idx:" + folder.path("images"), "--patch", "2", "--variants", "linear", "--seeds", seeds});
  };
  run_json(table("0"));
  std::string labels = idx_labels(200, 3);
  std::reverse(labels.begin() + 8, labels.end());
  folder.write("images/train-labels-idx1-ubyte", labels);
  expect_rejected(table("0-1"),
                  "linear/seed-0: was trained on other data (training labels, validation labels differ)");
}

TEST(ImageTable, StopsWhenItsTimeIsUp) {
  const TemporaryDirectory folder;
  const std::vector<std::string> slice =
      with(with({"experiment", "image-table", "--out", folder.path("table"), "--epochs", "100000"}, kTiny),
           {"--variants", "linear,grf", "--seeds", "0", "--time-limit", "8"});
  const nlohmann::json summary = run_json(slice);
  EXPECT_TRUE(summary["runs"].empty());
  EXPECT_TRUE(fs::exists(folder.path("table/linear/seed-0/last.safetensors")));
  EXPECT_FALSE(fs::exists(folder.path("table/grf")));
}

TEST(ImageTable, TakesSeveralProcessesAtOnce) {
  const TemporaryDirectory folder;
  const std::vector<std::string> words =
      with(with({"experiment", "image-table", "--out", folder.path("table"), "--epochs", "2"}, kTiny),
           {"--variants", "linear,neighbours,grf", "--seeds", "0-1", "--threads", "1"});
  {
    std::vector<std::unique_ptr<RunningProgram>> programs;
    for (const char* name : {"a", "b", "c"})
      programs.push_back(std::make_unique<RunningProgram>(words, folder.path(name)));
    for (const auto& program : programs) EXPECT_EQ(program->wait(), 0);
  }
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(read_whole_file(folder.path(name)), "");
  EXPECT_EQ(nlohmann::json::parse(read_whole_file(folder.path("table/results.json")))["runs"].size(), 6u);
  EXPECT_THAT(read_whole_file(folder.path("table/report.html")), HasSubstr("</html>"));
}

}  // namespace
}  // namespace topomask::testing
