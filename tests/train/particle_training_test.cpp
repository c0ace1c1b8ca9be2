// Particle models are trained, judged and resumed.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/parallel.h"
#include "minute_particles.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "topomask/distributed.h"
#include "topomask/particle_runs.h"
#include "topomask/particle_table.h"
#include "topomask/safetensors.h"
#include "train/particle_task.h"

namespace topomask {
namespace {

using testing::expect_error;
using testing::kEpisodes;
using testing::minute;
using testing::TemporaryFolder;

std::map<std::string, at::Tensor> weights_of(const TemporaryFolder& folder) {
  return read_safetensors(folder / "last.safetensors").tensors;
}

TEST(ParticleSettings, DefaultsAreThePapers) {
  const ParticleSettings settings;
  EXPECT_EQ(settings.task.model.particles, 32768);
  EXPECT_EQ(settings.task.rollout, 6);
  EXPECT_EQ(settings.task.batch, 16);
  EXPECT_EQ(settings.task.rays, 128);
  const TrainOptions options = settings.train_options();
  EXPECT_EQ(options.epochs * settings.task.epoch_steps, 100000);
  EXPECT_DOUBLE_EQ(options.learning_rate * schedule_factor(options, 999, 100000, 0), 3e-4);
  EXPECT_DOUBLE_EQ(options.learning_rate * schedule_factor(options, 1000, 100000, 0), 1e-4);
  EXPECT_DOUBLE_EQ(options.learning_rate * schedule_factor(options, 99999, 100000, 0), 1e-4);
}

TEST(ParticleSettings, SurviveTheirFile) {
  const ParticleSettings settings = minute("mp", {{"seed", "18446744073709551615"}, {"ensembles", "shared"}});
  EXPECT_EQ(ParticleSettings::from_toml_text(settings.to_toml(), "x").to_toml(), settings.to_toml());
  EXPECT_EQ(
      difference(
          settings,
          minute("mp", {{"seed", "18446744073709551615"}, {"ensembles", "shared"}, {"cache", "false"}})),
      "");
  EXPECT_EQ(difference(settings, minute("grf", {{"seed", "18446744073709551615"}, {"ensembles", "shared"}})),
            "local is mp there and grf here");
}

TEST(ParticleSettings, SayWhatIsWrong) {
  expect_error([] { minute("gfr"); }, {"--local", "did you mean 'grf'"});
  expect_error([] { minute("grf", {{"steps", "5"}}).train_options(); }, "multiple of epoch-steps (2), got 5");
  expect_error([] { minute("grf", {{"particles", "8"}}).train_options(); }, "16 to");
  expect_error([] { minute("grf", {{"heads", "3"}}).train_options(); }, "must divide the width 8, got 3");
  expect_error([] { minute("grf", {{"encoder-width", "12"}}).train_options(); }, "multiple of 8, got 12");
}

TEST(ParticleDynamics, RolloutsGrow) {
  const ParticleSettings settings =
      minute("grf", {{"pretrain", "10"}, {"double-every", "5"}, {"rollout", "6"}});
  const ParticleData data(kEpisodes, settings.data_options());
  const ParticleDynamics task(data, settings.task_options());
  const std::vector<std::int64_t> steps = {0, 9, 10, 14, 15, 20, 25, 1000},
                                  expected = {0, 0, 1, 1, 2, 4, 6, 6};
  for (std::size_t i = 0; i < steps.size(); ++i)
    EXPECT_EQ(task.rollout_at(steps[i]), expected[i]) << steps[i];
}

TEST(ParticleDynamics, VariantsStartFromTheSameWeights) {
  const ParticleSettings grf = minute("grf"), mp = minute("mp");
  const ParticleData data(kEpisodes, grf.data_options());
  ParticleDynamics one(data, grf.task_options()), two(data, mp.task_options());
  std::map<std::string, at::Tensor> first;
  for (const NamedParameter& parameter : one.parameters()) first.emplace(parameter.name, parameter.tensor);
  int common = 0;
  for (const NamedParameter& parameter : two.parameters()) {
    if (const auto found = first.find(parameter.name); found != first.end()) {
      EXPECT_TRUE(found->second.equal(parameter.tensor)) << parameter.name;
      ++common;
    }
  }
  EXPECT_GT(common, 40);
  EXPECT_TRUE(first.contains("interlacer.local_blocks.0.attention.mask.f"));
}

// The loss is a function of seed and step, and every parameter learns from it.
TEST(ParticleDynamics, GradientsReachEveryParameter) {
  for (const char* local : {"grf", "mp", "none", "softmax"}) {
    const ParticleSettings settings = minute(local, {{"pretrain", "0"}, {"double-every", "0"}});
    const ParticleData data(kEpisodes, settings.data_options());
    ParticleDynamics task(data, settings.task_options());
    {
      // The head starts at 0, and what is behind it then learns nothing.
      const at::NoGradGuard no_grad;
      for (const NamedParameter& parameter : task.parameters())
        if (parameter.name.find("interlacer.head.weight") == 0) parameter.tensor.fill_(.01);
    }
    task.start_epoch(1, 1);
    const Task::Loss loss = task.loss();
    loss.loss.backward();
    task.start_epoch(1, 1);
    EXPECT_EQ(task.loss().loss.item<double>(), loss.loss.item<double>());
    EXPECT_NE(task.loss().loss.item<double>(), loss.loss.item<double>());
    EXPECT_NEAR(loss.accuracy.item<double>(), -10 * std::log10(loss.loss.item<double>()), 1e-4);
    for (const NamedParameter& parameter : task.parameters()) {
      ASSERT_TRUE(parameter.tensor.grad().defined()) << local << ": " << parameter.name;
      EXPECT_TRUE(parameter.tensor.grad().isfinite().all().item<bool>()) << local << ": " << parameter.name;
    }
  }
}

// A still one on the table, a still one on an arm, one that moves with an arm, and one with an object.
TEST(FlowError, CountsWhatMoves) {
  ParticleBatch batch;
  batch.positions = at::zeros({1, 4, 3});
  batch.groups = at::tensor({-1, 0, 0, 1}, at::kLong).unsqueeze(0);
  batch.truth = at::zeros({1, 2, 4, 3});
  batch.truth[0][0][2][1] = .05;
  batch.truth[0][0][3][2] = .05;
  batch.truth[0][1] = batch.truth[0][0];
  ParticleState first{at::zeros({1, 4, 3}), {}, {}, {}}, second = first;
  first.positions[0][0][0] = .05;  // off by 1 unit of 5 cm
  first.positions[0][1][0] = .1;   // by 2
  second.positions = at::zeros({1, 4, 3});
  second.positions[0][2] = batch.truth[0][1][2];
  second.positions.requires_grad_();
  const at::Tensor error = flow_error({first, second}, batch);
  // One step: 1, 4, 4 * 1, 40 * 1; the other: 0, 0, 0, 40 * 1.
  EXPECT_NEAR(error.item<double>(), (1 + 4 + 4 + 40 + 40) / 8., 1e-5);
  error.backward();
  at::Tensor gradient = at::zeros({1, 4, 3});
  gradient[0][3][2] = -40 * 2 * 20. / 8;
  EXPECT_TRUE(second.positions.grad().allclose(gradient));
}

// Without rendering: arms are soon better placed than by copying, and only the dynamics learn.
TEST(ParticleDynamics, LearnsTheFlowAlone) {
  const int before = num_threads();
  set_num_threads(1);
  const ParticleSettings settings = minute("grf", {{"flow-loss", "1"},
                                                   {"render-loss", "0"},
                                                   {"pretrain", "2"},
                                                   {"double-every", "300"},
                                                   {"batch", "4"},
                                                   {"width", "16"},
                                                   {"learning-rate", "3e-3"},
                                                   {"clip-norm", "1"},
                                                   {"steps", "600"},
                                                   {"epoch-steps", "300"},
                                                   {"log-every", "150"}});
  const TemporaryFolder folder;
  const ParticleData data(kEpisodes, settings.data_options());
  {
    RunFolder run(folder / "begun", RunStart::fresh);
    TrainCallbacks callbacks;
    int asked = 0;
    callbacks.should_stop = [&] { return ++asked == 2; };  // after pretraining
    train_particles(run, settings, data, callbacks);
  }
  RunFolder run(folder / "run", RunStart::fresh);
  const auto scores = nlohmann::json::parse(train_particles(run, settings, data).json)["rollout"];
  set_num_threads(before);
  std::vector<double> flow, judged;
  std::ifstream file(folder / "run/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    const bool step = json["kind"] == "step";
    (step ? flow : judged).push_back(json[step ? "train_flow" : "flow"]);
    EXPECT_EQ(json.contains("train_psnr"), json["step"] == (step ? 150 : 300))
        << line;  // of pretraining alone
    EXPECT_EQ(json.contains("psnr"), !step);
  }
  ASSERT_EQ(flow.size(), 4u);
  EXPECT_LT(flow[1], .75 * flow[0]);  // rollouts of 1 step
  EXPECT_LT(judged[1], judged[0]);
  EXPECT_LT(scores["model"][1]["flow_arm"].get<double>(), .8 * scores["copy"][1]["flow_arm"].get<double>());
  const auto begun = read_safetensors(folder / "begun/last.safetensors").tensors,
             ended = read_safetensors(folder / "run/last.safetensors").tensors;
  for (const auto& [name, tensor] : begun) {
    if (name.starts_with("encoder.") || name.starts_with("renderer.")) {
      EXPECT_TRUE(tensor.equal(ended.at(name))) << name;
    }
  }
  const at::Tensor head = ended.at("interlacer.head.weight");
  EXPECT_GT(head.narrow(0, 0, 3).abs().max().item<double>(), 0);
  EXPECT_EQ(head.narrow(0, 3, 8).abs().max().item<double>(), 0);  // features stay the renderer's
}

// The best weights have the lowest validation loss, whatever the PSNR of their pictures.
TEST(ParticleDynamics, BestWeightsHaveTheLowestLoss) {
  const ParticleSettings settings = minute("grf", {{"flow-loss", "1"},
                                                   {"render-loss", "0"},
                                                   {"pretrain", "2"},
                                                   {"steps", "12"},
                                                   {"learning-rate", "0.1"},
                                                   {"final-learning-rate", "0.1"},
                                                   {"clip-norm", "0"}});
  const TemporaryFolder folder;
  const ParticleData data(kEpisodes, settings.data_options());
  const ParticleDynamics task(data, settings.task_options());
  EXPECT_GT(task.merit({.5, 10, 1}), task.merit({1, 30, 1}));
  RunFolder run(folder / "run", RunStart::fresh);
  const auto result = nlohmann::json::parse(train_particles(run, settings, data).json);
  std::vector<double> losses, scores;
  std::ifstream file(folder / ("run/" + std::string(kMetricsFile)));
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json["kind"] != "epoch") continue;
    losses.push_back(json["loss"]);
    scores.push_back(json["psnr"]);
  }
  ASSERT_EQ(losses.size(), 6u);
  const auto best = static_cast<std::size_t>(std::min_element(losses.begin(), losses.end()) - losses.begin());
  EXPECT_LT(losses[best], *std::max_element(losses.begin(), losses.end()));
  EXPECT_EQ(result["best_epoch"], best + 1);
  EXPECT_EQ(result["best_psnr"], scores[best]);
  const auto metadata = read_safetensors(folder / ("run/" + std::string(kBestCheckpoint))).metadata;
  EXPECT_EQ(metadata.at("epoch"), std::to_string(best + 1));
  EXPECT_EQ(std::stod(metadata.at("loss")), losses[best]);
}

TEST(ParticleDynamics, SaysWhatALossCannotBe) {
  const ParticleData data(kEpisodes, minute("grf").data_options());
  const auto make = [&](const SettingValues& more) {
    ParticleDynamics(data, minute("grf", more).task_options());
  };
  expect_error([&] { make({{"flow-loss", "-1"}}); }, "must be finite and 0 or more, got 1 and -1");
  expect_error([&] { make({{"render-loss", "-0.5"}}); }, "must be finite and 0 or more, got -0.5 and 0");
  expect_error([&] { make({{"render-loss", "0"}}); }, "nothing to learn");
}

TEST(ParticleDynamics, RecomputedStepsHaveTheSameGradients) {
  for (const char* local : {"grf", "mp", "none"}) {
    std::vector<std::vector<at::Tensor>> gradients;
    std::vector<double> losses;
    for (const char* recompute : {"false", "true"}) {
      const ParticleSettings settings = minute(
          local, {{"pretrain", "0"}, {"double-every", "0"}, {"rollout", "3"}, {"recompute", recompute}});
      const ParticleData data(kEpisodes, settings.data_options());
      ParticleDynamics task(data, settings.task_options());
      {
        const at::NoGradGuard no_grad;
        for (const NamedParameter& parameter : task.parameters())
          if (parameter.name.find("interlacer.head.weight") == 0) parameter.tensor.fill_(.01);
      }
      const at::Tensor loss = task.loss().loss;
      loss.backward();
      losses.push_back(loss.item<double>());
      gradients.emplace_back();
      for (const NamedParameter& parameter : task.parameters())
        gradients.back().push_back(parameter.tensor.grad());
    }
    EXPECT_EQ(losses[0], losses[1]) << local;
    ASSERT_EQ(gradients[0].size(), gradients[1].size());
    for (std::size_t i = 0; i < gradients[0].size(); ++i) {
      const at::Tensor &kept = gradients[0][i], &again = gradients[1][i];
      ASSERT_TRUE(kept.defined() && again.defined()) << local << ", " << i;
      EXPECT_LE((kept - again).norm().item<double>(), 1e-5 * kept.norm().item<double>() + 1e-9)
          << local << ", " << i;
    }
  }
}

TEST(ParticleDynamics, JudgesBesideCopyAndOracle) {
  const ParticleSettings settings = minute("grf");
  const ParticleData data(kEpisodes, settings.data_options());
  ParticleDynamics task(data, settings.task_options());
  const RolloutScores scores = task.judge();
  ASSERT_EQ(scores.model.size(), 2u);
  ASSERT_EQ(scores.copy.size(), 2u);
  EXPECT_EQ(scores.windows, 2);
  EXPECT_GT(scores.step_seconds, 0);
  EXPECT_FALSE(scores.memory_bytes.has_value());  // on a CPU
  EXPECT_GT(scores.spacing.nearest, 0);
  EXPECT_LT(scores.spacing.nearest, .2);
  EXPECT_GT(scores.spacing.contact, 0);  // a can stands on the table or is held
  EXPECT_LE(scores.spacing.contact, 1);
  for (std::size_t step = 0; step < 2; ++step) {
    const StepScores &model = scores.model[step], &copy = scores.copy[step], &oracle = scores.oracle[step];
    // An untrained model moves nothing: its particles are those of the last frame.
    EXPECT_NEAR(model.flow.arm, copy.flow.arm, 1e-6);
    EXPECT_NEAR(model.chamfer, copy.chamfer, 1e-6);
    EXPECT_GT(copy.flow.arm, .005);
    EXPECT_LT(oracle.flow.arm, 1e-6);
    EXPECT_LT(oracle.chamfer, .1);
    EXPECT_GT(copy.ssim, model.ssim);  // the renderer is untrained, too
    EXPECT_LT(copy.psnr_moving, copy.psnr);
    EXPECT_TRUE(std::isnan(model.flow.grain));  // the validation episode drops a can
  }
  const RolloutPictures pictures = task.pictures({3, 4}, 3);
  EXPECT_EQ(pictures.truth.sizes(), (std::vector<std::int64_t>{3, 2, 16, 16, 3}));
  EXPECT_EQ(pictures.predicted.sizes(), pictures.truth.sizes());
  EXPECT_TRUE(pictures.truth[1].equal(data.frames().moment(3, 7).colour));
}

// What steps are predicted from: an untrained model moves nothing, so particles stay where they were seen.
TEST(ParticleDynamics, TellsTheTokensOfARollout) {
  const ParticleSettings settings = minute("grf");
  const ParticleData data(kEpisodes, settings.data_options());
  ParticleDynamics task(data, settings.task_options());
  const at::Tensor seen = task.pictures({3, 4}, 3).points;
  const at::Tensor points = seen + at::arange(1, 4).view({3, 1, 1});  // those of each step can be told apart
  const at::Tensor tokens = task.tokens({3, 4}, points);
  const std::int64_t particles = seen.size(1), past = settings.task.model.past_particles(),
                     robot = 2 * settings.task.model.robot_points;
  ASSERT_EQ(tokens.sizes(), (std::vector<std::int64_t>{3, particles + past + kRobotMoments * robot, 3}));
  EXPECT_TRUE(tokens[0].narrow(0, 0, particles).equal(seen[0]));
  EXPECT_TRUE(tokens[1].narrow(0, 0, particles).equal(points[0]));
  EXPECT_TRUE(tokens[2].narrow(0, 0, particles).equal(points[1]));
  EXPECT_FALSE(tokens[0].narrow(0, particles, past).equal(seen[0].narrow(0, 0, past)));  // of frame 4
  EXPECT_TRUE(tokens[1].narrow(0, particles, past).equal(seen[0].narrow(0, 0, past)));
  EXPECT_TRUE(tokens[2].narrow(0, particles, past).equal(points[0].narrow(0, 0, past)));
  const RobotPoints arms = robot_points(
      data.states(3), sample_robot_surface(*data.frames().robot(3), settings.task.model.robot_points));
  const at::Tensor told = tokens[1].narrow(0, particles + past, kRobotMoments * robot);
  EXPECT_TRUE(told.narrow(0, 0, robot).equal(arms.measured[5]));
  EXPECT_TRUE(told.narrow(0, robot, 2 * robot).equal(arms.commanded.narrow(0, 6, 2).reshape({-1, 3})));
}

TEST(ParticleDynamics, SaysWhichFramesItCannotSee) {
  for (const char* size : {"8", "20"}) {
    const ParticleSettings settings = minute("grf", {{"size", size}, {"particles", "16"}});
    const ParticleData data(kEpisodes, settings.data_options());
    expect_error([&] { ParticleDynamics(data, settings.task_options()); },
                 {"size must be a multiple of 8 from 16, got", size});
  }
}

class ResumedParticles : public ::testing::TestWithParam<const char*> {};

TEST_P(ResumedParticles, EndWithTheSameBits) {
  const int before = num_threads();
  set_num_threads(1);
  const TemporaryFolder whole, parts;
  const ParticleSettings settings = minute(GetParam());
  {
    RunFolder folder(whole.path().string(), RunStart::either);
    train_particles(folder, settings);
  }
  for (int piece = 0; piece < 4; ++piece) {
    RunFolder folder(parts.path().string(), RunStart::either);
    TrainCallbacks callbacks;
    callbacks.should_stop = [] { return true; };  // after each step
    train_particles(folder, settings, callbacks);
  }
  set_num_threads(before);
  const auto expected = weights_of(whole), actual = weights_of(parts);
  ASSERT_EQ(expected.size(), actual.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(tensor.equal(actual.at(name))) << name;
  EXPECT_TRUE(std::filesystem::exists(parts / "result.json"));
}

INSTANTIATE_TEST_SUITE_P(Locals, ResumedParticles, ::testing::Values("grf", "mp", "none"));

void expect_same_files(const std::string& expected, const std::string& actual) {
  const auto left = read_safetensors(expected), right = read_safetensors(actual);
  ASSERT_EQ(left.tensors.size(), right.tensors.size());
  for (const auto& [name, tensor] : left.tensors) {
    ASSERT_TRUE(right.tensors.contains(name)) << name;
    EXPECT_TRUE(tensor.equal(right.tensors.at(name))) << name;
  }
  EXPECT_EQ(left.metadata.at("config"), right.metadata.at("config"));
}

// Each variant as if it had pretrained alone; the work is cut anywhere, and done by two at once.
TEST(ParticleTable, SharesPretraining) {
  const int before = num_threads();
  set_num_threads(1);
  const TemporaryFolder folder;
  const SettingValues more = {{"pretrain", "3"}, {"steps", "6"}, {"ema", "0.5"}};
  ParticleTable table;
  table.settings = minute("grf", more);
  table.folder = folder / "table";
  table.seeds = {5};
  {
    ParticleTable first = table;
    first.variants = {"grf"};
    TableCallbacks stop;
    int asked = 0;
    stop.should_stop = [&] { return ++asked > 2; };  // in the middle of pretraining
    EXPECT_EQ(run_particle_table(first, stop).finished, 0);
    EXPECT_TRUE(std::filesystem::exists(folder / "table/pretrained/seed-5/last.safetensors"));
    EXPECT_FALSE(std::filesystem::exists(folder / "table/grf/seed-5/last.safetensors"));
  }
  const std::vector<std::string> variants = {"grf", "mp@anchor-every=4"};
  std::vector<std::thread> both;
  for (const std::string& variant : variants) {
    both.emplace_back([&, variant] {
      set_num_threads(1);
      ParticleTable own = table;
      own.variants = {variant};
      EXPECT_EQ(run_particle_table(own).finished, 1);
    });
  }
  for (std::thread& thread : both) thread.join();
  for (const std::string& variant : variants) {
    const std::string alone = folder / ("alone-" + variant);
    {
      RunFolder run(alone, RunStart::fresh);
      train_particles(run, particle_table_settings(table.settings, variant, 5));
    }
    for (const char* file : {"/last.safetensors", "/best.safetensors"})
      expect_same_files(alone + file, folder / ("table/" + variant + "/seed-5" + file));
  }
  // A variant whose encoder is another one pretrains on its own.
  ParticleTable own = table;
  own.variants = {"none@encoder-width=16"};
  EXPECT_EQ(run_particle_table(own).finished, 1);
  set_num_threads(before);
}

// Of every step, then of every evaluation.
std::vector<double> losses_in(const std::string& folder) {
  std::ifstream file(folder + "/" + kMetricsFile);
  std::vector<double> steps, epochs;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    const bool step = json["kind"] == "step";
    (step ? steps : epochs).push_back(json["train_loss"]);
    (step ? steps : epochs).push_back(json["train_psnr"]);
    if (json["step"] > 1) (step ? steps : epochs).push_back(json["train_flow"]);  // after pretraining
    if (!step) epochs.push_back(json["loss"]);
    if (!step) epochs.push_back(json["flow"]);
  }
  steps.insert(steps.end(), epochs.begin(), epochs.end());
  return steps;
}

class SharedParticles : public ::testing::TestWithParam<const char*> {};

// Batches of 3 on 2 ranks are uneven. The run is stopped after every second step and resumed on another
// number.
TEST_P(SharedParticles, HaveTheLossesOfOneProcess) {
  const TemporaryFolder folder;
  const ParticleSettings settings = minute(
      GetParam(), {{"batch", "3"}, {"log-every", "1"}, {"evaluation-windows", "7"}, {"flow-loss", "0.5"}});
  const auto train = [&](const std::string& name, int size, std::int64_t stop_after) {
    Ranks::run_threads(size, [&](const RanksPtr& ranks) {
      std::unique_ptr<RunFolder> own;
      if (ranks->rank() == 0) own = std::make_unique<RunFolder>(folder / name, RunStart::either);
      TrainCallbacks callbacks;
      std::int64_t asked = 0;
      callbacks.should_stop = [&] { return ++asked == stop_after; };
      train_particles(ranks, own.get(), settings, callbacks);
    });
  };
  train("one", 1, 0);
  train("two", 2, 0);
  train("mixed", 2, 1);
  train("mixed", 1, 2);
  train("mixed", 3, 0);
  const std::vector<double> expected = losses_in(folder / "one");
  ASSERT_EQ(expected.size(), 2u + 3u * 3 + 5u * 2);
  for (const char* name : {"two", "mixed"}) {
    const std::vector<double> found = losses_in(folder / name);
    ASSERT_EQ(found.size(), expected.size()) << name;
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], 1e-5 * std::max(1.0, std::abs(expected[i]))) << name << ' ' << i;
    EXPECT_TRUE(std::filesystem::exists(folder / (std::string(name) + "/result.json")));
  }
}

INSTANTIATE_TEST_SUITE_P(Locals, SharedParticles, ::testing::Values("grf", "mp"));

TEST(ParticleDynamics, SaysWhatRanksCannotShare) {
  const ParticleData data(kEpisodes, minute("grf").data_options());
  const auto make = [&](const RanksPtr& ranks, const ParticleSettings& settings) {
    ParticleTaskOptions options = settings.task_options();
    options.ranks = ranks;
    ParticleDynamics(data, options);
  };
  Ranks::run_threads(3, [&](const RanksPtr& ranks) {
    expect_error([&] { make(ranks, minute("grf")); }, "a batch of 2 windows cannot be shared by 3 ranks");
    expect_error(
        [&] {
          make(ranks, minute("grf", {{"batch", "3"}, {"ensembles", "shared"}}));
        },
        "walks of ensembles shared would not be those of one process");
  });
}

TEST(TrainParticles, RefusesAnotherVariantOrOtherData) {
  const TemporaryFolder folder, other;
  std::filesystem::copy(
      kEpisodes, other.path(),
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  RobotEpisode episode = read_robot_episode(other / "sweep-000000.safetensors");
  episode.body_position[7] += .01f;
  other.write("sweep-000000.safetensors", format_robot_episode(episode));
  {
    RunFolder run(folder / "run", RunStart::fresh);
    TrainCallbacks stop;
    stop.should_stop = [] { return true; };
    train_particles(run, minute("grf"), stop);
  }
  RunFolder run(folder / "run", RunStart::resume);
  expect_error([&] { train_particles(run, minute("mp")); }, {"local is grf there and mp here"});
  expect_error(
      [&] {
        train_particles(run, minute("grf", {{"data", other.path().string()}}));
      },
      "trained on other episodes");
  expect_error([&] { run.settings(); }, {"is of 'topomask train particles', not of 'topomask train vit'"});
  expect_error([&] { read_vit_checkpoint(folder / "run/last.safetensors"); }, "'topomask train particles'");
}

// The same episodes in two folders that say other sizes of frames.
TEST(TrainParticles, RefusesFramesOfAnotherSize) {
  const TemporaryFolder folder;
  const std::vector<std::string> sizes = {"16", "24"};
  for (const std::string& size : sizes) {
    std::filesystem::copy(kEpisodes, folder / size, std::filesystem::copy_options::recursive);
    nlohmann::ordered_json index =
        nlohmann::ordered_json::parse(std::ifstream(folder / (size + "/index.json")));
    index["size"] = std::stoi(size);
    folder.write(size + "/index.json", index.dump());
  }
  const auto as_data = [&](const std::string& size) {
    return minute("grf", {{"data", folder / size}, {"size", "0"}});
  };
  {
    RunFolder run(folder / "run", RunStart::fresh);
    TrainCallbacks stop;
    stop.should_stop = [] { return true; };
    train_particles(run, as_data("16"), stop);
  }
  RunFolder run(folder / "run", RunStart::resume);
  expect_error([&] { train_particles(run, as_data("24")); }, "trained on frames of 16 pixels, got 24");
  EXPECT_EQ(train_particles(run, as_data("16")).training.outcome, TrainOutcome::finished);
}

TEST(TrainParticles, ChecksTheSizeOfData) {
  const TemporaryFolder folder;
  const auto attempt = [&](const SettingValues& more) {
    RunFolder run(folder / "run", RunStart::fresh);
    train_particles(run, minute("grf", more));
  };
  expect_error([&] { attempt({{"validation-every", "5"}}); }, {"leave 4 to train on and 0 to validate on"});
  expect_error([&] { attempt({{"rollout", "30"}}); }, {"'sweep-000000' has 24 frames"});
  expect_error([&] { attempt({{"particles", "5000"}}); }, "fewer than the 5000 particles");
  expect_error([&] { attempt({{"size", "20"}}); }, "size must be a multiple of 8 from 16, got 20");
  expect_error([&] { attempt({{"data", folder / "nothing"}}); }, "is not a folder");
}

TEST(TrainParticles, SaysThatAModelHasDiverged) {
  const TemporaryFolder folder;
  RunFolder run(folder / "a", RunStart::fresh);
  const ParticleSettings settings =
      minute("grf", {{"learning-rate", "1e30"}, {"final-learning-rate", "1e30"}, {"clip-norm", "0"}});
  EXPECT_THROW(train_particles(run, settings), Diverged);
}

TEST(TrainedParticles, JudgesWhatTrainingJudged) {
  const TemporaryFolder folder;
  std::string json;
  {
    RunFolder run(folder / "run", RunStart::fresh);
    json = train_particles(run, minute("softmax", {{"ema", "0.5"}})).json;
  }
  TrainedParticles model(folder / "run/last.safetensors");
  const RolloutScores scores = model.judge();
  EXPECT_THAT(json, ::testing::HasSubstr(fmt::format("\"ssim\":{}", scores.model[0].ssim)));
  TrainedParticles longer(folder / "run/last.safetensors",
                          {.data = {}, .device = {}, .windows = 1, .rollout = 5});
  EXPECT_EQ(longer.judge().model.size(), 5u);
}

}  // namespace
}  // namespace topomask
