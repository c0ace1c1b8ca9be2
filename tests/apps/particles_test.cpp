// train particles, eval, rollout and the particle table as a user gives them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <sstream>

#include "run_program.h"
#include "running_program.h"
#include "topomask/safetensors.h"

namespace topomask::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const std::string kEpisodes = TOPOMASK_ROBOT_STATES;

// Options with small values, and others in place of some of them; all come in pairs.
std::vector<std::string> with_minute(std::vector<std::string> words, const std::vector<std::string>& more) {
  std::map<std::string, std::string> options = {{"--data", kEpisodes},
                                                {"--size", "16"},
                                                {"--validation-every", "4"},
                                                {"--batch", "2"},
                                                {"--particles", "96"},
                                                {"--robot-points", "4"},
                                                {"--width", "8"},
                                                {"--layers", "1"},
                                                {"--heads", "2"},
                                                {"--mlp", "8"},
                                                {"--encoder-width", "8"},
                                                {"--features", "8"},
                                                {"--render-hidden", "16"},
                                                {"--render-samples", "8"},
                                                {"--rays", "32"},
                                                {"--rollout", "2"},
                                                {"--steps", "2"},
                                                {"--epoch-steps", "2"},
                                                {"--evaluation-windows", "2"},
                                                {"--evaluation-rollout", "2"},
                                                {"--threads", "1"}};
  for (std::size_t i = 0; i + 1 < more.size(); i += 2) options[more[i]] = more[i + 1];
  for (const auto& [option, value] : options) {
    words.push_back(option);
    words.push_back(value);
  }
  return words;
}

std::vector<std::string> particles(const std::string& out, const std::vector<std::string>& more) {
  return with_minute({"train", "particles", "--out", out}, more);
}

TEST(BenchParticles, TimesEveryPart) {
  const std::vector<std::string> words = {
      "bench",     "particles", "--particles",     "64,96", "--train-particles", "32", "--batch",   "1",
      "--rollout", "2",         "--size",          "16",    "--queries",         "50", "--repeats", "1",
      "--width",   "16",        "--layers",        "1",     "--heads",           "2",  "--mlp",     "16",
      "--rays",    "4",         "--encoder-width", "8",     "--threads",         "1"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = words;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const nlohmann::json bench = run_json(with({"--recompute"}));
  std::map<std::string, int> seen;
  for (const nlohmann::json& row : bench["results"]) {
    const std::string part = row["part"];
    EXPECT_GT(row["seconds_median"].get<double>(), 0) << part;
    ++seen[part];
    if (row["of_training_step"].get<bool>()) {
      EXPECT_EQ(row["particles"], 32);
      EXPECT_GT(row["host_seconds_median"].get<double>(), 0) << part;
    }
    if (part == "interlacer" || part == "training step") {
      EXPECT_TRUE(row.contains("peak_bytes")) << part;
    }
  }
  const std::map<std::string, int> expected = {{"interlacer", 6},
                                               {"geometry", 4},
                                               {"layer", 6},
                                               {"layer, both ways", 6},
                                               {"16 neighbours of 50", 2},
                                               {"training step", 3},
                                               {"encode", 3},
                                               {"rollout", 3},
                                               {"render", 3},
                                               {"backward", 3},
                                               {"optimizer", 3},
                                               {"geometry of the rollout", 3}};
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(bench["setting"]["numbers"], "float32");
  const std::string text = run_program(with({"--no-training", "--locals", "grf"})).out;
  EXPECT_THAT(text, HasSubstr("interlacer"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("training step")));
  expect_rejected(with({"--locals", "gfr"}), "did you mean 'grf'?");
  expect_rejected({"bench", "particles", "--size", "20"}, "--size: expected a multiple of 8, got 20");
  expect_rejected({"bench", "particles", "--batch", "-1"},
                  "--batch: expected at least 1, or 0 for the default, got -1");
  expect_rejected({"bench", "particles", "--particles", "3"}, "--particles: expected at least 16, got 3");
  expect_rejected({"bench", "particles", "--particles", "64", "--train-particles", "600", "--size", "16"},
                  "have room for 512, got 600");
}

TEST(TrainParticles, LeavesWhatAReportNeeds) {
  const TemporaryDirectory folder;
  const std::string run = folder.path("run");
  const nlohmann::json result = run_json(particles(run, {"--steps", "4", "--epoch-steps", "2"}));
  EXPECT_EQ(result["local"], "grf");
  EXPECT_EQ(result["steps"], 4);
  for (const char* row : {"model", "copy", "oracle"}) {
    ASSERT_EQ(result["rollout"][row].size(), 2u) << row;
    EXPECT_TRUE(result["rollout"][row][1]["ssim_moving"].is_number()) << row;
  }
  EXPECT_TRUE(
      result["rollout"]["model"][0]["flow_grain"].is_null());  // nothing is swept in the validation episode
  EXPECT_THAT(read_whole_file(run + "/metrics.jsonl"), HasSubstr("\"train_psnr\""));
  const SafetensorsFile rollout = read_safetensors(run + "/rollout.safetensors");
  EXPECT_EQ(rollout.metadata.at("local"), "grf");
  EXPECT_EQ(rollout.tensors.at("tokens").sizes(),
            (std::vector<std::int64_t>{2, 96 + 24 + 3 * 2 * 4, 3}));  // particles, past ones, the robot's

  const nlohmann::json eval = run_json({"eval", "--checkpoint", run + "/last.safetensors", "--threads", "1"});
  EXPECT_EQ(eval["rollout"]["model"], result["rollout"]["model"]);
  const nlohmann::json longer =
      run_json({"eval", "--checkpoint", run + "/best.safetensors", "--rollout", "3", "--windows", "1"});
  EXPECT_EQ(longer["rollout"]["model"].size(), 3u);

  const nlohmann::json pictures = run_json({"rollout", run + "/last.safetensors", "drop-can-000000",
                                            "--first", "5", "--steps", "3", "--out", folder.path("drop")});
  EXPECT_EQ(pictures["steps"], 3);
  EXPECT_GT(fs::file_size(folder.path("drop.png")), 1000u);
  EXPECT_GT(fs::file_size(folder.path("drop-sheet.png")), 1000u);
  // A finished run is only reported.
  EXPECT_EQ(run_json({"train", "particles", "--resume", "--out", run})["psnr"], result["psnr"]);
}

// The tiny recipe in a tenth of its steps: reconstruction, then rollouts of 1 and 2 steps.
TEST(TrainParticles, LossFalls) {
  const TemporaryDirectory folder;
  const std::string run = folder.path("run");
  run_json({"train",
            "particles",
            "--config",
            std::string(TOPOMASK_RECIPES) + "/hd-vpd-tiny.toml",
            "--data",
            kEpisodes,
            "--steps",
            "60",
            "--epoch-steps",
            "15",
            "--pretrain",
            "30",
            "--double-every",
            "15",
            "--warmup-epochs",
            "0",
            "--learning-rate",
            "2e-3",
            "--batch",
            "2",
            "--evaluation-windows",
            "4",
            "--evaluation-rollout",
            "2",
            "--threads",
            "1",
            "--out",
            run});
  std::istringstream metrics(read_whole_file(run + "/metrics.jsonl"));
  std::vector<double> losses;
  for (std::string line; std::getline(metrics, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (json["kind"] == "epoch") losses.push_back(json["loss"]);
  }
  ASSERT_EQ(losses.size(), 4u);
  EXPECT_LT(losses[3], .8 * losses[0]);  // 0.66 when this was written
}

TEST(TrainParticles, ResumesBitByBitAfterAKill) {
  const TemporaryDirectory folder;
  const std::vector<std::string> steps = {"--steps", "12", "--epoch-steps", "6", "--checkpoint-steps", "1"};
  run_program(particles(folder.path("whole"), steps));
  const std::string killed = folder.path("killed");
  {
    RunningProgram program(particles(killed, steps), folder.path("err"));
    EXPECT_TRUE(program.wait_until([&] { return fs::exists(killed + "/last.safetensors"); }));
    program.send(SIGKILL);
    EXPECT_EQ(program.wait(), 128 + SIGKILL);
  }
  EXPECT_FALSE(fs::exists(killed + "/result.json"));
  const ProgramResult resumed =
      run_program({"train", "particles", "--resume", "--out", killed, "--threads", "1"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("resuming after step"));
  const SafetensorsFile expected = read_safetensors(folder.path("whole/last.safetensors")),
                        actual = read_safetensors(killed + "/last.safetensors");
  ASSERT_EQ(expected.tensors.size(), actual.tensors.size());
  for (const auto& [name, tensor] : expected.tensors)
    EXPECT_TRUE(tensor.equal(actual.tensors.at(name))) << name;
}

TEST(ParticleTable, MergesVariantsAndSeeds) {
  const TemporaryDirectory folder;
  const std::string out = folder.path("table");
  const auto table = [&](const std::vector<std::string>& more) {
    return with_minute({"experiment", "particle-table", "--out", out}, more);
  };
  run_json(table({"--variants", "grf,none", "--seeds", "0"}));
  const nlohmann::json summary =
      run_json(table({"--variants", "grf,none,mp@anchor-every=4", "--seeds", "0,1"}));
  ASSERT_EQ(summary["variants"].size(), 3u);
  EXPECT_EQ(summary["runs"].size(), 6u);
  for (const nlohmann::json& row : summary["variants"]) {
    EXPECT_EQ(row["seeds"].size(), 2u);
    ASSERT_EQ(row["steps"].size(), 2u);
    EXPECT_TRUE(row["steps"][0]["ssim_se"].is_number());
  }
  EXPECT_TRUE(summary["copy"]["steps"][0]["ssim"].is_number());
  EXPECT_TRUE(summary["oracle"]["steps"][0]["ssim_moving_mean"].is_number());
  const ProgramResult text = run_program(table({"--variants", "grf,none", "--seeds", "0"}));
  EXPECT_THAT(text.out, HasSubstr("oracle"));
  EXPECT_THAT(text.out, HasSubstr("2 of 2 runs are finished"));
  expect_rejected(table({"--variants", "grf", "--rays", "33"}), "rays is 32 there and 33 here");
  expect_rejected(table({"--variants", "gfr"}), "did you mean 'grf'");
  expect_rejected(table({"--variants", "grf@pretrain=2"}), "no local layer would learn");  // of 2 steps
  for (const char* fixed : {"size=32", "device=cuda", "cache=false", "evaluation-windows=3"})
    expect_rejected(table({"--variants", std::string("grf@") + fixed}), "cannot change ");
  // What the data cannot give is refused before anything is trained.
  const std::string other = folder.path("other");
  expect_rejected(with_minute({"experiment", "particle-table", "--out", other},
                              {"--variants", "grf,grf@particles=4000", "--seeds", "0"}),
                  "fewer than the 4000 particles");
  expect_rejected(with_minute({"experiment", "particle-table", "--out", other},
                              {"--variants", "grf,grf@rollout=40", "--seeds", "0"}),
                  "a rollout of 40 needs more");
  EXPECT_FALSE(fs::exists(other));
  expect_rejected(table({"--variants", "grf,none,grf"}), "variants: 'grf' is listed twice");
  expect_rejected(table({"--variants", "grf@hops=2@hops=3"}), "changes hops twice");
  expect_rejected(table({"--variants", "grf,grf@flow-loss=nan"}), "must be finite and 0 or more");  // at once
}

TEST(Particles, BadInputIsOneSentence) {
  const TemporaryDirectory folder;
  const std::string run = folder.path("run");
  const auto rejected = [&](const std::vector<std::string>& more, const std::string& part) {
    expect_rejected(particles(run, more), part);
  };
  rejected({"--data", folder.path("missing")}, "is not a folder");
  rejected({"--particles", "4000"}, "fewer than the 4000 particles");
  EXPECT_FALSE(fs::exists(run + "/metrics.jsonl"));  // before anything is trained
  rejected({"--size", "20"}, "--size must be a multiple of 8 from 16, got 20");
  rejected({"--size", "8", "--particles", "16"}, "--size must be a multiple of 8 from 16, got 8");
  rejected({"--rollout", "40"}, "'sweep-000000' has 24 frames; 2 are seen, and a rollout of 40 needs more");
  const std::string huge = "9223372036854775807";
  rejected({"--rollout", huge}, "2 are seen, and a rollout of " + huge + " needs more");
  rejected({"--evaluation-rollout", huge}, "2 are seen, and a rollout of " + huge + " needs more");
  for (const std::string size : {"batch", "rays", "evaluation-windows"}) {
    for (const std::string& number : {std::string("0"), std::string("-1"), std::string("1048577"), huge})
      rejected({"--" + size, number}, "--" + size + " must be 1 to 1048576, got " + number);
  }
  rejected({"--robot-points", huge}, "--robot-points must be 1 to 4194304, got " + huge);
  for (const std::string weight : {"nan", "inf", "-1"}) {
    rejected({"--flow-loss", weight}, "must be finite and 0 or more, got 1 and " + weight);
    rejected({"--flow-loss", "1", "--render-loss", weight}, "finite and 0 or more, got " + weight + " and 1");
  }
  rejected({"--render-loss", "0"}, "there is nothing to learn; set one of them");
  rejected({"--validation-every", "9"}, "leave 4 to train on and 0 to validate on");
  rejected({"--steps", "3"}, "multiple of epoch-steps");
  rejected({"--local", "mpp"}, "did you mean 'mp'");
  run_json(particles(run, {}));
  expect_rejected({"train", "particles", "--resume", "--out", run, "--local", "mp"},
                  "local is grf there and mp here");
  expect_rejected({"train", "vit", "--resume", "--out", run}, "is of 'topomask train particles'");
  expect_rejected({"rollout", run + "/last.safetensors", "sweep"},
                  "expected 0 to 3 or a name such as sweep-000000, did you mean 'sweep-000000'?");
  expect_rejected({"rollout", run + "/last.safetensors", "0", "--first", "22"}, "--first: expected 0 to 21");
  expect_rejected({"rollout", run + "/last.safetensors", "0", "--steps", "30"}, "22 frames are left");
  expect_rejected({"rollout", run + "/last.safetensors", "0", "--camera", "2"}, "--camera: expected 0 to 1");
  expect_rejected({"rollout", run + "/metrics.jsonl", "0"});
}

// The recipes say what they are for; their settings must be settings.
TEST(Particles, RecipesAreUnderstood) {
  for (const char* name : {"hd-vpd", "hd-vpd-small", "hd-vpd-flow", "hd-vpd-tiny"}) {
    const ProgramResult result =
        run_program({"train", "particles", "--config", std::string(TOPOMASK_RECIPES) + "/" + name + ".toml",
                     "--print-config"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("[evaluation]"));
  }
}

}  // namespace
}  // namespace topomask::testing
