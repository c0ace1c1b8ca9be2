// The training loop on a toy: it learns, resumes to the same bits, and stops when it must.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/random.h"
#include "support/expect_error.h"
#include "topomask/error.h"
#include "topomask/safetensors.h"
#include "topomask/train.h"
#include "toy_task.h"
#include "train/adam.h"
#include "train/run_state.h"

namespace topomask {
namespace {

namespace fs = std::filesystem;
using testing::ToyTask;

class TrainerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::temp_directory_path() / ("topomask-" + std::string(info->name()) + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string folder(const std::string& name) const {
    fs::create_directories(folder_ / name);
    return (folder_ / name).string();
  }

  fs::path folder_;
};

TrainOptions quick() {
  TrainOptions options;
  options.epochs = 20;
  options.learning_rate = 0.1;
  options.final_learning_rate = 0.001;
  options.warmup_epochs = 1;
  options.weight_decay = 0.001;
  options.log_every = 7;
  return options;
}

// Without what depends on the clock.
std::vector<nlohmann::json> metrics(const std::string& folder) {
  std::ifstream file(fs::path(folder) / kMetricsFile);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) {
    nlohmann::json json = nlohmann::json::parse(line);
    for (const char* key :
         {"seconds", "train_seconds", "evaluation_seconds", "samples_per_second", "data_seconds"})
      json.erase(key);
    lines.push_back(json);
  }
  return lines;
}

void expect_same_tensors(const std::string& a, const std::string& b, const char* name) {
  const SafetensorsFile left = read_safetensors((fs::path(a) / name).string()),
                        right = read_safetensors((fs::path(b) / name).string());
  ASSERT_EQ(left.tensors.size(), right.tensors.size());
  for (const auto& [key, tensor] : left.tensors) EXPECT_TRUE(tensor.equal(right.tensors.at(key))) << key;
}

TEST_F(TrainerTest, Learns) {
  ToyTask task;
  std::int64_t last_step = 0;
  TrainCallbacks callbacks;
  callbacks.progress = [&](std::int64_t step, std::int64_t steps, const std::string&) {
    EXPECT_EQ(steps, 200);
    EXPECT_EQ(step, ++last_step);
  };
  const TrainResult result = Trainer(task, quick(), folder("a"), {{"model", "toy"}}).run(callbacks);
  EXPECT_EQ(result.outcome, TrainOutcome::finished);
  EXPECT_EQ(result.step, 200);
  EXPECT_NEAR(task.slope.item<double>(), 3, 0.1);
  EXPECT_NEAR(task.offset.item<double>(), -1, 0.1);
  const auto lines = metrics(folder("a"));
  const auto epochs =
      std::count_if(lines.begin(), lines.end(), [](const auto& l) { return l["kind"] == "epoch"; });
  EXPECT_EQ(epochs, 20);
  EXPECT_EQ(static_cast<std::int64_t>(lines.size()) - epochs, 200 / 7);
  EXPECT_LT(lines.back()["train_loss"].get<double>(), 0.1 * lines.front()["train_loss"].get<double>());
  EXPECT_EQ(read_safetensors((fs::path(folder("a")) / kBestCheckpoint).string()).metadata.at("model"), "toy");
}

TEST_F(TrainerTest, TellsHowLongDataTook) {
  ToyTask task;
  task.data_seconds = 0.25;
  std::string text;
  TrainCallbacks callbacks;
  callbacks.epoch_done = [&](const std::string& line) { text = line; };
  Trainer(task, quick(), folder("a"), {}).run(callbacks);
  std::ifstream file(fs::path(folder("a")) / kMetricsFile);
  nlohmann::json last;
  for (std::string line; std::getline(file, line);) last = nlohmann::json::parse(line);
  ASSERT_EQ(last["kind"], "epoch");
  EXPECT_EQ(last["data_seconds"], 0.25);
  const double share = 100 * 0.25 / last["train_seconds"].get<double>();
  EXPECT_THAT(text, ::testing::EndsWith(fmt::format(", data {:.1f} %", share)));
}

TEST_F(TrainerTest, RefusesACheckpointOfSomethingElse) {
  ToyTask task, other;
  Trainer(task, quick(), folder("a"), {{"model", "toy"}, {"config", "one"}}).run();
  const auto again = [&](const char* model, const char* config) {
    return std::make_unique<Trainer>(
        other, quick(), folder("a"),
        std::map<std::string, std::string>{{"model", model}, {"config", config}});
  };
  EXPECT_TRUE(again("toy", "one")->resume());
  testing::expect_error([&] { again("toy", "two")->resume(); }, {"its config is one there and two here"});
  testing::expect_error([&] { again("train", "one")->resume(); }, {"its model is toy there and train here"});
  // A caller may know better which differences matter.
  std::string seen;
  EXPECT_TRUE(again("toy", "two")->resume([&](const auto& metadata, const std::string& path) {
    seen = metadata.at("config") + " in " + fs::path(path).filename().string();
  }));
  EXPECT_EQ(seen, "one in last.safetensors");
  testing::expect_error(
      [&] { again("toy", "one")->resume([](const auto&, const auto&) { throw Error("not this one"); }); },
      {"not this one"});
}

class ResumeTest : public TrainerTest, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(AtStep, ResumeTest, ::testing::Values(1, 6, 7, 9, 10, 11, 57, 199));

TEST_P(ResumeTest, GoesOnToTheSameBits) {
  TrainOptions options = quick();
  options.ema = 0.9;
  ToyTask straight;
  Trainer(straight, options, folder("straight"), {}).run();

  TrainCallbacks stop;
  ToyTask before;
  stop.should_stop = [&] { return before.losses >= GetParam(); };
  const TrainResult stopped = Trainer(before, options, folder("resumed"), {}).run(stop);
  EXPECT_EQ(stopped.outcome, TrainOutcome::stopped);
  EXPECT_EQ(stopped.step, GetParam());
  ToyTask after;
  Trainer trainer(after, options, folder("resumed"), {});
  ASSERT_TRUE(trainer.resume());
  EXPECT_EQ(trainer.run().outcome, TrainOutcome::finished);
  EXPECT_EQ(after.losses, 200 - GetParam());
  expect_same_tensors(folder("straight"), folder("resumed"), kLastCheckpoint);
  expect_same_tensors(folder("straight"), folder("resumed"), kBestCheckpoint);
  EXPECT_EQ(metrics(folder("straight")), metrics(folder("resumed")));
}

TEST_F(TrainerTest, AFinishedRunStaysAsItIs) {
  ToyTask task, again;
  const TrainResult first = Trainer(task, quick(), folder("a"), {}).run();
  Trainer trainer(again, quick(), folder("a"), {});
  ASSERT_TRUE(trainer.resume());
  const TrainResult second = trainer.run();
  EXPECT_EQ(again.losses, 0);
  EXPECT_EQ(second.outcome, TrainOutcome::finished);
  EXPECT_EQ(second.last.accuracy, first.last.accuracy);
  EXPECT_EQ(second.best_epoch, first.best_epoch);
}

// A model whose weights have become infinite may refuse its own numbers before there is a loss.
TEST_F(TrainerTest, AModelThatRefusesItsNumbersHasDiverged) {
  ToyTask task;
  task.spoil = [](std::int64_t epoch, std::int64_t) -> bool {
    if (epoch == 1) throw NotFinite("a position holds a NaN");
    return false;
  };
  try {
    Trainer(task, quick(), folder("a"), {}).run();
    FAIL() << "expected an error";
  } catch (const Diverged& error) {
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("the model has diverged (a position holds a NaN) after step 10 of 200"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("A smaller learning-rate"));
  }
  // Before the first step it is the data that are not finite.
  ToyTask bad_data;
  bad_data.spoil = [](std::int64_t, std::int64_t) -> bool { throw NotFinite("a position holds a NaN"); };
  try {
    Trainer(bad_data, quick(), folder("b"), {}).run();
    FAIL() << "expected an error";
  } catch (const NotFinite& error) {
    EXPECT_STREQ(error.what(), "a position holds a NaN");
  }
}

TEST_F(TrainerTest, StopsAtALossThatIsNoNumber) {
  TrainOptions options = quick();
  options.checkpoint_steps = 20;
  ToyTask task;
  task.spoil = [](std::int64_t epoch, std::int64_t batch) { return epoch == 4 && batch == 3; };
  Trainer trainer(task, options, folder("a"), {});
  try {
    trainer.run();
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("not a number at step 44 of 200"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("of step 40 is kept"));
  }
  // The checkpoint is good, and with better luck the run goes on.
  ToyTask again;
  Trainer second(again, options, folder("a"), {});
  ASSERT_TRUE(second.resume());
  EXPECT_EQ(second.run().step, 200);
  EXPECT_EQ(again.losses, 160);
}

TEST_F(TrainerTest, AccumulatesGradients) {
  // Two batches of 8 in a step: the mean of their gradients. Noise would be drawn in another order, so both
  // are compared after one step, where it is the same.
  TrainOptions options = quick();
  options.accumulate = 2;
  options.epochs = 1;
  options.warmup_epochs = 0;
  ToyTask task;
  const TrainResult result = Trainer(task, options, folder("a"), {}).run();
  EXPECT_EQ(result.steps, 5);
  EXPECT_EQ(task.losses, 10);
}

TEST_F(TrainerTest, EvaluatesAveragedWeights) {
  TrainOptions options = quick();
  options.epochs = 1;
  options.ema = 0.5;
  ToyTask task;
  Trainer(task, options, folder("a"), {}).run();
  const SafetensorsFile file = read_safetensors((fs::path(folder("a")) / kLastCheckpoint).string());
  ASSERT_EQ(task.evaluated.size(), 1u);
  EXPECT_EQ(static_cast<float>(task.evaluated[0]), file.tensors.at("ema.slope").item<float>());
  // The checkpoint goes on with the model's own weights; the finished model has those that were judged.
  EXPECT_NE(file.tensors.at("slope").item<float>(), file.tensors.at("ema.slope").item<float>());
  EXPECT_EQ(task.slope.item<float>(), file.tensors.at("ema.slope").item<float>());
}

// Evaluations in which accuracy and loss disagree.
TEST_F(TrainerTest, ATaskSaysWhichWeightsAreTheBest) {
  TrainOptions options = quick();
  options.epochs = 4;
  const std::vector<Evaluation> evaluations = {{.4, .2, 1}, {.1, .3, 1}, {.3, .9, 1}, {.2, .5, 1}};
  for (const bool by_loss : {false, true}) {
    const std::string own = folder(by_loss ? "loss" : "accuracy");
    ToyTask task;
    task.lowest_loss_is_best = by_loss;
    task.judged = [&](std::size_t number) { return evaluations[number - 1]; };
    const TrainResult result = Trainer(task, options, own, {}).run();
    const std::size_t best = by_loss ? 2 : 3;
    EXPECT_EQ(result.best_epoch, static_cast<std::int64_t>(best));
    EXPECT_EQ(result.best.loss, evaluations[best - 1].loss);
    EXPECT_EQ(result.best.accuracy, evaluations[best - 1].accuracy);
    EXPECT_EQ(result.last.loss, .2);
    const SafetensorsFile file = read_safetensors((fs::path(own) / kBestCheckpoint).string());
    EXPECT_EQ(file.tensors.at("slope").item<float>(), static_cast<float>(task.evaluated[best - 1]));
    EXPECT_EQ(file.metadata.at("epoch"), std::to_string(best));
    EXPECT_EQ(std::stod(file.metadata.at("loss")), evaluations[best - 1].loss);
    EXPECT_EQ(std::stod(file.metadata.at("accuracy")), evaluations[best - 1].accuracy);
  }
}

// A judgement that is not a number is worse than any that is, and a run resumes after one.
TEST_F(TrainerTest, WeightsWithoutAMeritAreNotTheBest) {
  TrainOptions options = quick();
  options.epochs = 4;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(),
                   kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<Evaluation> evaluations = {
      {kNan, kNan, 1}, {kInfinity, .3, 1}, {.3, .4, 1}, {kNan, .5, 1}};
  const auto make = [&](ToyTask& task, std::size_t done) {
    task.lowest_loss_is_best = true;
    task.judged = [&, done](std::size_t number) { return evaluations[done + number - 1]; };
  };
  ToyTask whole;
  make(whole, 0);
  const TrainResult straight = Trainer(whole, options, folder("whole"), {}).run();
  EXPECT_EQ(straight.best_epoch, 3);
  EXPECT_EQ(straight.best.loss, .3);
  EXPECT_TRUE(std::isnan(straight.last.loss));
  TrainResult result;
  for (std::size_t epoch = 0; epoch < 4; ++epoch) {
    ToyTask part;
    make(part, epoch);
    Trainer trainer(part, options, folder("parts"), {});
    EXPECT_EQ(trainer.resume(), epoch > 0);
    TrainCallbacks stop;
    stop.should_stop = [&] { return part.losses >= 10; };
    result = trainer.run(stop);
  }
  EXPECT_EQ(result.outcome, TrainOutcome::finished);
  EXPECT_EQ(result.best_epoch, 3);
  expect_same_tensors(folder("whole"), folder("parts"), kLastCheckpoint);
  expect_same_tensors(folder("whole"), folder("parts"), kBestCheckpoint);
}

TEST_F(TrainerTest, RefusesAnotherSchedule) {
  ToyTask task, other;
  Trainer(task, quick(), folder("a"), {}).run();
  TrainOptions longer = quick();
  longer.epochs = 30;
  Trainer trainer(other, longer, folder("a"), {});
  EXPECT_THROW(trainer.resume(), Error);
}

TEST_F(TrainerTest, RefusesABrokenCheckpoint) {
  ToyTask task;
  std::ofstream(fs::path(folder("a")) / kLastCheckpoint) << "not a checkpoint";
  Trainer trainer(task, quick(), folder("a"), {});
  EXPECT_THROW(trainer.resume(), Error);
  EXPECT_FALSE(Trainer(task, quick(), folder("empty"), {}).resume());
}

TEST(RunState, KeepsItsNumbers) {
  RunState state;
  state.step = 7;
  state.steps = 9;
  state.epoch = {1. / 3, .1, 7, 6, 5, {2. / 7, 1e-300}};
  state.last = {
      std::numeric_limits<double>::quiet_NaN(), .2, 11, {std::numeric_limits<double>::infinity(), 3}};
  state.best = {1. / 7, -30, 11, {.1, .3}};
  state.best_epoch = 2;
  const RunState again = RunState::from_json(state.to_json(), "file");
  EXPECT_EQ(again.step, 7);
  EXPECT_EQ(again.epoch.loss, state.epoch.loss);
  EXPECT_EQ(again.epoch.parts, state.epoch.parts);
  EXPECT_EQ(again.best.loss, state.best.loss);
  EXPECT_EQ(again.best.parts, state.best.parts);
  EXPECT_EQ(again.best_epoch, 2);
  EXPECT_EQ(again.last.accuracy, .2);
  // JSON has no other numbers.
  EXPECT_TRUE(std::isnan(again.last.loss));
  ASSERT_EQ(again.last.parts.size(), 2u);
  EXPECT_TRUE(std::isnan(again.last.parts[0]));
  EXPECT_EQ(again.last.parts[1], 3);
  for (const char* text : {"", "{}", "[]", "{\"step\": \"one\"}"})
    testing::expect_error([&] { RunState::from_json(text, "file"); },
                          "file: not a checkpoint to resume from");
}

TEST(TrainOptions, AreChecked) {
  const auto message = [](auto&& change) -> std::string {
    TrainOptions options;
    change(options);
    try {
      check_train_options(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message([](TrainOptions&) {}), "");
  EXPECT_THAT(message([](TrainOptions& o) { o.epochs = 0; }), ::testing::HasSubstr("epochs"));
  EXPECT_THAT(message([](TrainOptions& o) { o.learning_rate = -1; }), ::testing::HasSubstr("learning-rate"));
  EXPECT_THAT(message([](TrainOptions& o) { o.ema = 1; }), ::testing::HasSubstr("ema"));
}

TEST(Schedule, WarmsUpAndFallsAsACosine) {
  EXPECT_DOUBLE_EQ(schedule_factor(0, 100, 10, 0.1), 0.1);
  EXPECT_DOUBLE_EQ(schedule_factor(9, 100, 10, 0.1), 1);
  EXPECT_DOUBLE_EQ(schedule_factor(10, 100, 10, 0.1), 1);
  EXPECT_NEAR(schedule_factor(55, 100, 10, 0.1), 0.55, 1e-12);  // half way down
  EXPECT_NEAR(schedule_factor(100, 100, 10, 0.1), 0.1, 1e-12);
  EXPECT_DOUBLE_EQ(schedule_factor(3, 4, 0, 1), 1);
}

TEST(Schedule, BeginsAnew) {
  TrainOptions whole, parts;
  parts.restart_step = 30;
  for (const std::int64_t drop : {0, 20}) {
    whole.drop_step = parts.drop_step = drop;
    for (std::int64_t step = 0; step < 100; ++step)
      EXPECT_DOUBLE_EQ(schedule_factor(parts, step, 100, 5), step < 30
                                                                 ? schedule_factor(whole, step, 30, 5)
                                                                 : schedule_factor(whole, step - 30, 70, 5))
          << step;
  }
}

// From there on as a run that starts with those weights, also where it is resumed.
TEST_F(TrainerTest, RestartsItsOptimiser) {
  TrainOptions options = quick();
  options.restart_step = 30;
  ToyTask whole, stopped;
  Trainer(whole, options, folder("whole"), {}).run();
  TrainCallbacks callbacks;
  std::int64_t done = 0;
  callbacks.progress = [&](std::int64_t step, std::int64_t, const std::string&) { done = step; };
  for (const std::int64_t until : {30, 31, 60, 200}) {
    callbacks.should_stop = [&] { return done >= until; };
    Trainer trainer(stopped, options, folder("stopped"), {});
    trainer.resume();
    trainer.run(callbacks);
  }
  expect_same_tensors(folder("whole"), folder("stopped"), kLastCheckpoint);
  // Plain Adam from the weights of step 30 on, with no memory of what was before.
  ToyTask before, after;
  callbacks.should_stop = [&] { return done >= 30; };
  Trainer(before, options, folder("before"), {}).run(callbacks);
  {
    const at::NoGradGuard no_grad;
    after.slope.copy_(before.slope);
    after.offset.copy_(before.offset);
  }
  Adam adam(after.parameters(), options);
  for (std::int64_t step = 30; step < 40; ++step) {
    after.start_epoch(step / 10, step % 10);
    at::manual_seed(derive_seed(options.seed, static_cast<std::uint64_t>(step)));
    after.loss().loss.backward();
    adam.clip_gradients();
    adam.step(schedule_factor(quick(), step - 30, 170, 10));
    adam.clear_gradients();
  }
  ToyTask until_40;
  callbacks.should_stop = [&] { return done >= 40; };
  Trainer(until_40, options, folder("until-40"), {}).run(callbacks);
  EXPECT_TRUE(after.slope.equal(until_40.slope));
  EXPECT_TRUE(after.offset.equal(until_40.offset));
}

}  // namespace
}  // namespace topomask
