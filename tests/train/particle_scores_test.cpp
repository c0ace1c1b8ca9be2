// The scores of rollouts: where they are written, and the errors of object poses against the stored poses.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "minute_particles.h"
#include "topomask/particle_runs.h"

namespace topomask {
namespace {

// Every number of the struct is another one: 1.5, 2.5, ..
StepScores numbered_scores() {
  StepScores scores;
  double next = .5;
  for (double* number : {&scores.ssim, &scores.ssim_moving, &scores.psnr, &scores.psnr_moving,
                         &scores.chamfer, &scores.flow.arm, &scores.flow.object, &scores.flow.grain,
                         &scores.object.position, &scores.object.rotation})
    *number = ++next;
  return scores;
}

TEST(StepScores, AreAllInTheListOnceEach) {
  static_assert(sizeof(StepScores) % sizeof(double) == 0);
  constexpr std::size_t kNumbers = sizeof(StepScores) / sizeof(double);
  ASSERT_EQ(step_scores().size(), kNumbers);
  std::set<std::string> names;
  std::set<double> values;
  const StepScores scores = numbered_scores();
  for (const StepScore& score : step_scores()) {
    EXPECT_TRUE(names.insert(score.name).second) << score.name;
    EXPECT_TRUE(values.insert(score.of(scores)).second) << score.name;
    EXPECT_STRNE(score.column, "");
    EXPECT_GT(score.shown_factor, 0) << score.name;
    EXPECT_GE(score.digits, 0) << score.name;
  }
  EXPECT_EQ(*values.begin(), 1.5);
  EXPECT_EQ(*values.rbegin(), .5 + static_cast<double>(kNumbers));
  EXPECT_EQ(step_scores().back().of(scores), scores.object.rotation);
}

TEST(StepScores, AreAllInTheJson) {
  RolloutScores scores;
  const StepScores known = numbered_scores();
  StepScores unknown = known;
  unknown.object = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()};
  scores.model = {known, unknown};
  scores.copy = {known, known};
  scores.oracle = {unknown, known};
  scores.windows = 3;
  scores.spacing = {.004, std::numeric_limits<double>::quiet_NaN()};
  scores.step_seconds = .25;
  const auto json = nlohmann::json::parse(rollout_scores_json(scores));
  EXPECT_EQ(json["windows"], 3);
  EXPECT_EQ(json["spacing"], .004);
  EXPECT_TRUE(json["contact"].is_null());
  EXPECT_EQ(json["step_seconds"], .25);
  EXPECT_TRUE(json["memory_bytes"].is_null());
  const std::pair<const char*, const std::vector<StepScores>*> rows[] = {
      {"model", &scores.model}, {"copy", &scores.copy}, {"oracle", &scores.oracle}};
  for (const auto& [name, steps] : rows) {
    ASSERT_EQ(json[name].size(), 2u);
    for (std::size_t step = 0; step < 2; ++step) {
      const nlohmann::json& written = json[name][step];
      EXPECT_EQ(written.size(), step_scores().size() + 1) << name;
      EXPECT_EQ(written["step"], step + 1);
      for (const StepScore& score : step_scores()) {
        ASSERT_TRUE(written.contains(score.name)) << score.name;
        const double value = score.of((*steps)[step]);
        EXPECT_EQ(written[score.name], std::isfinite(value) ? nlohmann::json(value) : nlohmann::json())
            << score.name;
      }
    }
  }
}

// A small model, judged on one window of the episode that drops a can.
ParticleSettings judged_settings(const std::string& size, const std::string& particles,
                                 const std::string& rollout) {
  return testing::minute("grf", {{"size", size},
                                 {"particles", particles},
                                 {"render-hidden", "8"},
                                 {"render-samples", "4"},
                                 {"evaluation-windows", "1"},
                                 {"evaluation-rollout", rollout}});
}

// A can that a hand carries and drops. Copying its particles is off by the true motion of its body, and so is
// a model that has learned nothing.
TEST(PoseError, IsThatOfTheStoredPoses) {
  const ParticleSettings settings = judged_settings("64", "3000", "4");
  const ParticleData data(settings.data, settings.data_options());
  ParticleDynamics task(data, settings.task_options());
  const RolloutScores scores = task.judge();
  const ParticleWindow window = task.example_window();
  ASSERT_EQ(data.frames().name(window.episode), "drop-can-000000");
  const RobotTensors states = data.states(window.episode);
  const at::Tensor can = (states.shape_part == static_cast<std::int64_t>(ScenePart::can)).nonzero()[0];
  const std::int64_t body = states.shape_body[can.item<std::int64_t>()].item<std::int64_t>(),
                     seen = window.first + kObservedFrames - 1;
  constexpr double kReach = .07;  // of the can's surface from its middle
  for (std::size_t step = 0; step < 4; ++step) {
    const std::int64_t then = seen + 1 + static_cast<std::int64_t>(step);
    const auto at_frame = [&](const at::Tensor& of_bodies, std::int64_t frame) {
      return of_bodies[frame][body].to(at::kDouble);
    };
    const double way =
        (at_frame(states.body_position, then) - at_frame(states.body_position, seen)).norm().item<double>();
    const double product =
        (at_frame(states.body_rotation, then) * at_frame(states.body_rotation, seen)).sum().item<double>();
    const double angle = 2 * std::acos(std::min(1., std::abs(product)));
    const PoseError &copy = scores.copy[step].object, &model = scores.model[step].object,
                    &oracle = scores.oracle[step].object;
    EXPECT_NEAR(copy.rotation, angle * 180 / std::numbers::pi, .2) << step;
    EXPECT_NEAR(copy.position, way, 2 * kReach * std::sin(angle / 2) + 1e-5) << step;
    EXPECT_GT(copy.position, kLeastMove) << step;
    EXPECT_NEAR(model.position, copy.position, 1e-6) << step;
    EXPECT_NEAR(model.rotation, copy.rotation, 1e-3) << step;
    EXPECT_LT(oracle.position, 1e-6) << step;
    EXPECT_LT(oracle.rotation, 1e-4) << step;
  }
  EXPECT_GT(scores.copy[3].object.position, .1);  // it has fallen by 10 cm, after a way of 13 cm
}

// Too few particles tell no pose: at this size, none of the objects has enough.
TEST(PoseError, IsUndefinedWithoutParticles) {
  const ParticleSettings settings = judged_settings("16", "96", "2");
  const ParticleData data(settings.data, settings.data_options());
  const RolloutScores scores = ParticleDynamics(data, settings.task_options()).judge();
  for (const auto* row : {&scores.model, &scores.copy, &scores.oracle}) {
    for (const StepScores& step : *row) {
      EXPECT_TRUE(std::isnan(step.object.position));
      EXPECT_TRUE(std::isnan(step.object.rotation));
    }
  }
}

}  // namespace
}  // namespace topomask
