// The particle table from results that are written here: means and standard errors known beforehand.
#include "topomask/particle_table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "io/files.h"
#include "minute_particles.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace topomask {
namespace {

using testing::TemporaryFolder;
using Json = nlohmann::ordered_json;

constexpr std::size_t kTableSteps = 2;

// A table all of whose runs are finished: nothing is trained.
struct FinishedTable {
  FinishedTable() {
    table.settings = testing::minute("grf", {{"validation-every", "0"}});
    table.folder = scratch / "table";
    fingerprint = fmt::format("{:016x}",
                              ParticleData(table.settings.data, table.settings.data_options()).fingerprint());
  }

  // The n-th score is n times `model` (or `oracle`) at the first step, and 100 more at the second. The errors
  // of arms are unknown where there is no number, those of grains always.
  Json rollout_row(double value, bool knows_arms) const {
    Json steps = Json::array();
    for (std::size_t step = 0; step < kTableSteps; ++step) {
      Json row = {{"step", step + 1}};
      double factor = 1;
      for (const StepScore& score : step_scores())
        row[score.name] = value * factor++ + 100. * static_cast<double>(step);
      if (!knows_arms) row["flow_arm"] = nullptr;
      row["flow_grain"] = nullptr;
      steps.push_back(row);
    }
    return steps;
  }
  Json result(const std::string& variant, int seed, double model, double oracle,
              bool knows_arms = true) const {
    return {{"model", "particles"},
            {"local", variant.substr(0, variant.find('@'))},
            {"seed", seed},
            {"data_fingerprint", fingerprint},
            {"loss", 1},
            {"psnr", model},
            {"best_psnr", model},
            {"best_epoch", 1},
            {"steps", 2},
            {"parameters", 7},
            {"seconds", 1},
            {"train_step_seconds", model},
            {"rollout",
             {{"model", rollout_row(model, knows_arms)},
              {"copy", rollout_row(5, true)},
              {"oracle", rollout_row(oracle, knows_arms)},
              {"windows", 1},
              {"step_seconds", oracle},
              {"memory_bytes", nullptr}}}};
  }
  void write(const std::string& variant, int seed, const Json& json) const {
    const std::string folder = fmt::format("table/{}/seed-{}", variant, seed);
    std::filesystem::create_directories(scratch.path() / folder);
    scratch.write(folder + "/result.json", json.dump());
  }
  Json merged(std::vector<std::string> variants, std::vector<std::uint64_t> seeds) {
    table.variants = std::move(variants);
    table.seeds = std::move(seeds);
    const TableResult done = run_particle_table(table);
    EXPECT_EQ(done.finished, done.total);
    EXPECT_EQ(Json::parse(read_file(table.folder + "/results.json")), Json::parse(done.json));
    return Json::parse(done.json);
  }

  TemporaryFolder scratch;
  ParticleTable table;
  std::string fingerprint;
};

void expect_mean(const Json& step, const std::string& score, double mean, std::optional<double> error) {
  ASSERT_TRUE(step.contains(score + "_mean") && step.contains(score + "_se")) << score;
  EXPECT_NEAR(step[score + "_mean"].get<double>(), mean, 1e-12 * std::abs(mean)) << score;
  if (error) {
    EXPECT_NEAR(step[score + "_se"].get<double>(), *error, 1e-12 * std::abs(mean)) << score;
  } else {
    EXPECT_TRUE(step[score + "_se"].is_null()) << score;
  }
}

// 1, 2 and 6 have the mean 3 and the variance 7. The oracle is the same for all variants of a seed but for
// their renderers: it counts once per seed, as the mean of 1 and 3, of 2 and 2, of 6 and 4. These are 2, 2
// and 5, with the mean 3 and the variance 3; all six as if they were independent would have the variance 3.2
// and half its weight.
TEST(ParticleTable, StandardErrorsAreThoseOfSeeds) {
  FinishedTable files;
  const double numbers[] = {1, 2, 6}, others[] = {3, 2, 4};
  for (int seed = 0; seed < 3; ++seed) {
    files.write("grf", seed, files.result("grf", seed, numbers[seed], numbers[seed]));
    files.write("none", seed, files.result("none", seed, 3, others[seed]));
  }
  const Json summary = files.merged({"grf", "none"}, {0, 1, 2});
  ASSERT_EQ(summary["variants"].size(), 2u);
  EXPECT_EQ(summary["runs"].size(), 6u);
  const Json &grf = summary["variants"][0], &none = summary["variants"][1];
  EXPECT_EQ(grf["variant"], "grf");
  EXPECT_EQ(grf["seeds"], Json::array({0, 1, 2}));
  EXPECT_EQ(grf["psnr_mean"], 3);
  EXPECT_NEAR(grf["psnr_se"].get<double>(), std::sqrt(7. / 3), 1e-12);
  EXPECT_EQ(grf["train_step_seconds"], 3);
  EXPECT_EQ(none["psnr_se"], 0);
  for (std::size_t step = 0; step < kTableSteps; ++step) {
    const double more = 100. * static_cast<double>(step);
    double factor = 0;
    for (const StepScore& score : step_scores()) {
      ++factor;
      const Json& copy = summary["copy"]["steps"][step];
      if (score.name == std::string("flow_grain")) {
        for (const Json* steps : {&grf["steps"], &summary["oracle"]["steps"]}) {
          EXPECT_TRUE((*steps)[step].at("flow_grain_mean").is_null());
          EXPECT_TRUE((*steps)[step].at("flow_grain_se").is_null());
        }
        EXPECT_TRUE(copy["flow_grain"].is_null());
        continue;
      }
      expect_mean(grf["steps"][step], score.name, 3 * factor + more, factor * std::sqrt(7. / 3));
      expect_mean(none["steps"][step], score.name, 3 * factor + more, 0.);
      expect_mean(summary["oracle"]["steps"][step], score.name, 3 * factor + more, factor);
      EXPECT_EQ(copy[score.name], 5 * factor + more);
    }
  }
}

// What is unknown for a seed does not count; of one number there is no standard error.
TEST(ParticleTable, UnknownScoresDoNotCount) {
  FinishedTable files;
  files.write("grf", 0, files.result("grf", 0, 1, 1, /*knows_arms=*/false));
  files.write("grf", 1, files.result("grf", 1, 4, 4));
  files.write("grf", 2, files.result("grf", 2, 8, 8));
  files.write("mp", 1, files.result("mp", 1, 2, 10));
  const Json grf_alone = files.merged({"grf"}, {0, 1, 2});
  const double factor = 6;  // of flow_arm, the sixth score
  const Json steps = grf_alone["variants"][0]["steps"], oracle = grf_alone["oracle"]["steps"];
  expect_mean(steps[0], "flow_arm", 6 * factor, 2 * factor);
  expect_mean(steps[0], "ssim", 13. / 3, std::sqrt(37. / 9));
  ASSERT_EQ(grf_alone["variants"].size(), 2u);  // all that is finished is merged
  expect_mean(grf_alone["variants"][1]["steps"][0], "flow_arm", 2 * factor, std::nullopt);
  EXPECT_TRUE(grf_alone["variants"][1]["psnr_se"].is_null());
  // Seed 1: the mean of 4 and 10; seed 2: 8.
  expect_mean(oracle[0], "flow_arm", 7.5 * factor, .5 * factor);
  expect_mean(oracle[0], "ssim", 16. / 3,
              std::sqrt(((13. / 3) * (13. / 3) + (5. / 3) * (5. / 3) + (8. / 3) * (8. / 3)) / 6));
}

// A run whose validation is not finite has finished all the same: null in its file, unknown in the table.
TEST(ParticleTable, TakesRunsWhoseValidationIsNotFinite) {
  FinishedTable files;
  Json diverged = files.result("grf", 0, 1, 1);
  diverged["loss"] = diverged["psnr"] = nullptr;
  files.write("grf", 0, diverged);
  files.write("none", 0, files.result("none", 0, 2, 1));
  const Json summary = files.merged({"grf", "none"}, {0});
  ASSERT_EQ(summary["variants"].size(), 2u);
  EXPECT_TRUE(summary["variants"][0]["psnr_mean"].is_null());
  EXPECT_EQ(summary["variants"][1]["psnr_mean"], 2);
}

TEST(ParticleTable, DamagedResultsGiveOneSentence) {
  const FinishedTable files;
  const auto refused = [&](const std::function<void(Json&)>& damage, const char* part) {
    Json json = files.result("grf", 0, 1, 1);
    damage(json);
    files.write("grf", 0, json);
    ParticleTable table = files.table;
    table.variants = {"grf"};
    table.seeds = {0};
    testing::expect_error([&] { run_particle_table(table); },
                          {"result.json", part, "remove it to run again"});
  };
  refused([](Json& json) { json = Json::array(); }, "is not the result of 'topomask train particles'");
  refused([](Json& json) { json["model"] = 3; }, "is not the result of 'topomask train particles'");
  refused([](Json& json) { json["psnr"] = "good"; }, "expected a number for 'psnr'");
  refused([](Json& json) { json.erase("loss"); }, "expected a number for 'loss'");
  refused([](Json& json) { json["seed"] = "0"; }, "expected a number for 'seed'");
  refused([](Json& json) { json["rollout"] = 3; }, "expected the steps of 'model' in 'rollout'");
  refused([](Json& json) { json["rollout"]["copy"] = Json::array(); },
          "expected the steps of 'copy' in 'rollout'");
  refused([](Json& json) { json["rollout"]["oracle"][1] = 3; },
          "expected the steps of 'oracle' in 'rollout'");
  refused([](Json& json) { json["rollout"]["oracle"].erase(1); },
          "expected the steps of 'oracle' in 'rollout'");
  refused([](Json& json) { json["rollout"].erase("step_seconds"); }, "expected a number for 'step_seconds'");
  // Runs that were judged by rollouts of other lengths do not make one table.
  Json longer = files.result("grf", 0, 1, 1);
  for (const char* row : {"model", "copy", "oracle"})
    longer["rollout"][row].push_back(longer["rollout"][row][0]);
  files.write("grf", 0, longer);
  files.write("grf", 1, files.result("grf", 1, 1, 1));
  ParticleTable table = files.table;
  table.variants = {"grf"};
  table.seeds = {0, 1};
  testing::expect_error([&] { run_particle_table(table); },
                        {"seed-1", "rollouts of 2 steps", "grf/seed-0", "rollouts of 3"});
}

TEST(ParticleTable, RefusesResultsOnOtherEpisodes) {
  FinishedTable files;
  files.fingerprint = "0123456789abcdef";
  files.write("grf", 0, files.result("grf", 0, 1, 1));
  files.table.seeds = {0};
  testing::expect_error([&] { run_particle_table(files.table); }, "was trained on other episodes");
}

}  // namespace
}  // namespace topomask
