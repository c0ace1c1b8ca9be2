// Training on several ranks: the losses of one process, whatever is random in them, and runs that survive the
// death of a rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <sstream>

#include "run_program.h"
#include "running_program.h"
#include "topomask/safetensors.h"

namespace topomask::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const Words kQuiet = {"--quiet", "--threads", "1"};
const Words kSizes = {"--layers", "2", "--embedding", "32", "--mlp", "64", "--warmup-epochs", "1"};
const Words kImages = Words{"--data",          "strokes:16,classes=2,coupling=3,noise=0,train=400,val=90",
                            "--attention",     "grf",
                            "--learning-rate", "3e-3"} +
                      kSizes;

Words on_ranks(int ranks) {
  return {"--ranks", std::to_string(ranks)};
}

std::vector<nlohmann::json> lines(const std::string& folder, const std::string& kind) {
  std::istringstream text(read_whole_file(folder + "/metrics.jsonl"));
  std::vector<nlohmann::json> found;
  for (std::string line; std::getline(text, line);) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);  // half a line of a killed rank
    if (json.is_object() && json["kind"] == kind) found.push_back(json);
  }
  return found;
}

void run(const Words& words) {
  const ProgramResult result = run_program(words);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
}

// Losses of every step and of every evaluation.
void expect_same_losses(const std::string& one, const std::string& several, double tolerance,
                        std::size_t steps) {
  for (const char* kind : {"step", "epoch"}) {
    const auto a = lines(one, kind), b = lines(several, kind);
    ASSERT_EQ(a.size(), b.size());
    EXPECT_TRUE(kind != std::string("step") || a.size() == steps) << a.size();
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_NEAR(a[i]["train_loss"], b[i]["train_loss"], tolerance) << kind << ' ' << i;
      if (kind == std::string("step")) continue;
      EXPECT_NEAR(a[i]["loss"], b[i]["loss"], tolerance) << i;
      EXPECT_EQ(a[i]["accuracy"], b[i]["accuracy"]) << i;
    }
  }
}

TEST(SharedTraining, HasTheLossesOfOneProcessForFiftySteps) {
  const TemporaryDirectory folder;
  // 400 images in batches of 40: five epochs are 50 steps. Gradients are clipped
  // and scaled by Adam, so the losses would part at once if a slice, a weight or a sum were wrong.
  const Words training =
      Words{"train", "vit", "--batch", "40", "--epochs", "5", "--log-every", "1"} + kImages + kQuiet;
  run(training + Words{"--out", folder.path("one")});
  run(training + Words{"--out", folder.path("two")} + on_ranks(2));
  expect_same_losses(folder.path("one"), folder.path("two"), 1e-5, 50);
  const auto results = [&](const char* name) {
    return nlohmann::json::parse(read_whole_file(folder.path(name) + "/result.json"));
  };
  EXPECT_EQ(results("one")["accuracy"], results("two")["accuracy"]);
  EXPECT_EQ(results("one")["validation_images"], results("two")["validation_images"]);
  EXPECT_EQ(results("one")["best_epoch"], results("two")["best_epoch"]);
}

TEST(SharedTraining, HasThemWithEverythingRandomAndUnevenParts) {
  const TemporaryDirectory folder;
  // 13 images on 3 ranks, mixed across ranks; dropout; two batches in a step; averaged weights.
  const Words training = Words{"train",
                               "vit",
                               "--batch",
                               "13",
                               "--epochs",
                               "2",
                               "--log-every",
                               "1",
                               "--ema",
                               "0.9",
                               "--accumulate",
                               "2",
                               "--dropout",
                               "0.2",
                               "--mixup",
                               "0.4",
                               "--cutmix",
                               "1",
                               "--flip",
                               "--pad",
                               "2",
                               "--rand-augment",
                               "2",
                               "--cutout",
                               "4",
                               "--label-smoothing",
                               "0.1",
                               "--pooling",
                               "cls"} +
                         kImages + kQuiet;
  run(training + Words{"--out", folder.path("one")});
  run(training + Words{"--out", folder.path("three")} + on_ranks(3));
  expect_same_losses(folder.path("one"), folder.path("three"), 1e-5, 30);
}

TEST(SharedTraining, HasThoseOfClips) {
  const TemporaryDirectory folder;
  const Words training = Words{"train",       "vivit", "--data",        "motion:12,frames=4,train=90,val=30",
                               "--batch",     "9",     "--epochs",      "1",
                               "--log-every", "1",     "--dropout",     "0.1",
                               "--mixup",     "0.3",   "--frame-order", "shuffled"} +
                         kSizes + kQuiet;
  run(training + Words{"--out", folder.path("one")});
  run(training + Words{"--out", folder.path("two")} + on_ranks(2));
  expect_same_losses(folder.path("one"), folder.path("two"), 1e-5, 10);
}

TEST(SharedTraining, ResumesWithAnotherNumberOfRanks) {
  const TemporaryDirectory folder;
  const Words training =
      Words{"train", "vit", "--batch", "40", "--epochs", "2", "--log-every", "1"} + kImages + kQuiet;
  run(training + Words{"--out", folder.path("straight")});
  for (const auto& [before, after] : {std::pair(1, 2), std::pair(2, 1)}) {
    const std::string out = folder.path(std::to_string(before) + std::to_string(after));
    const ProgramResult stopped =
        run_program(training + Words{"--out", out, "--time-limit", "0.001"} + on_ranks(before));
    EXPECT_EQ(stopped.status, 130);
    EXPECT_THAT(stopped.err, HasSubstr("stopped at step 1 of 20, all is saved; resume with:"));
    EXPECT_EQ(std::count(stopped.err.begin(), stopped.err.end(), '\n'), 1) << stopped.err;
    run(Words{"train", "vit", "--resume", "--out", out} + on_ranks(after) + kQuiet);
    expect_same_losses(folder.path("straight"), out, 1e-5, 20);
  }
}

TEST(SharedTraining, SavesAtASignalToTheOneWhoWaits) {
  const TemporaryDirectory folder;
  const std::string out = folder.path("run"), errors = folder.path("errors");
  RunningProgram program(Words{"train", "vit", "--batch", "40", "--epochs", "1000", "--out", out} + kImages +
                             kQuiet + on_ranks(2),
                         errors);
  ASSERT_TRUE(program.wait_until([&] { return !lines(out, "epoch").empty(); }));
  program.send(SIGINT);
  EXPECT_EQ(program.wait(), 130);
  EXPECT_THAT(read_whole_file(errors), HasSubstr("topomask train vit --resume --out " + out));
  EXPECT_TRUE(fs::exists(out + "/last.safetensors"));
}

TEST(SharedTraining, SaysWhatIsWrong) {
  const TemporaryDirectory folder;
  // What all ranks find is said once; what the first alone finds, it says, and so do the others of it.
  const auto rejected = [&](const Words& more, const std::string& part, int sentences) {
    const ProgramResult result =
        run_program(Words{"train", "vit", "--out", folder.path("run")} + kQuiet + on_ranks(2) + more);
    EXPECT_EQ(result.status, 2);
    std::istringstream errors(result.err);
    int found = 0;
    for (std::string line; std::getline(errors, line); ++found) EXPECT_THAT(line, HasSubstr(part));
    EXPECT_EQ(found, sentences) << result.err;
    EXPECT_FALSE(fs::exists(folder.path("run/last.safetensors")));
  };
  rejected(kImages + Words{"--epochs", "0"}, "epochs must be 1 or more", 2);
  rejected(kImages + Words{"--batch", "1"}, "a batch of 1 cannot be shared by 2 ranks; make the batch larger",
           1);
  rejected({"--data", "idx:" + folder.path("none")}, "there is no folder", 1);
}

// Two processes as torchrun starts them.
class TwoRanks {
 public:
  TwoRanks(const TemporaryDirectory& folder, const Words& words, const char* size_of_second = "2") {
    std::random_device random;
    const std::string port = std::to_string(20000 + random() % 20000);
    for (int rank = 0; rank < 2; ++rank) {
      const std::string name = std::to_string(rank);
      setenv("RANK", name.c_str(), 1);
      setenv("WORLD_SIZE", rank == 0 ? "2" : size_of_second, 1);
      setenv("MASTER_ADDR", "127.0.0.1", 1);
      setenv("MASTER_PORT", port.c_str(), 1);
      errors_.push_back(folder.path("errors-" + name));
      programs_.push_back(std::make_unique<RunningProgram>(words, errors_.back()));
    }
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
  }
  RunningProgram& operator[](std::size_t rank) { return *programs_[rank]; }
  std::string errors(std::size_t rank) const { return read_whole_file(errors_[rank]); }

 private:
  std::vector<std::unique_ptr<RunningProgram>> programs_;
  std::vector<std::string> errors_;
};

TEST(SharedTraining, WorksUnderTorchrun) {
  const TemporaryDirectory folder;
  const Words training = Words{"train", "vit", "--batch", "40", "--epochs", "1"} + kImages + kQuiet;
  TwoRanks ranks(folder, training + Words{"--out", folder.path("run")});
  for (std::size_t r = 0; r < 2; ++r) EXPECT_EQ(ranks[r].wait(), 0) << ranks.errors(r);
  EXPECT_TRUE(fs::exists(folder.path("run/result.json")));
  TwoRanks other(folder, training + Words{"--out", folder.path("other")}, "3");
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(other[r].wait(), 2);
    EXPECT_THAT(other.errors(r), HasSubstr("WORLD_SIZE must agree"));
  }
  EXPECT_FALSE(fs::exists(folder.path("other")));
}

// A rank that stands still is as bad as one that died: the others wait for the limit and end.
TEST(SharedTraining, EndsWithinTheLimitWhereARankStandsStill) {
  const TemporaryDirectory folder;
  const std::string out = folder.path("run");
  TwoRanks ranks(folder, Words{"train", "vit", "--batch", "40", "--epochs", "1000", "--rank-time-limit", "4",
                               "--checkpoint-steps", "2", "--out", out} +
                             kImages + kQuiet);
  ASSERT_TRUE(ranks[0].wait_until([&] { return !lines(out, "epoch").empty(); }));
  ranks[1].send(SIGSTOP);
  const auto before = steady_clock::now();
  EXPECT_EQ(ranks[0].wait(), 2);
  EXPECT_LT(steady_clock::now() - before, std::chrono::seconds(20));
  const std::string said = ranks.errors(0);
  EXPECT_THAT(said, HasSubstr("did not answer within 4 s"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_TRUE(fs::exists(out + "/last.safetensors"));
}

// One rank is killed at a random moment; the others end, and the run goes on from its checkpoint with any
// number of ranks to the losses of a run left alone.
TEST(SharedTraining, SurvivesTheDeathOfARank) {
  const char* wanted = std::getenv("TOPOMASK_KILLS");
  const int kills = wanted == nullptr ? 3 : std::atoi(wanted);
  const TemporaryDirectory folder;
  const Words training =
      Words{"train", "vit", "--batch", "40", "--epochs", "12", "--log-every", "1", "--checkpoint-steps",
            "3"} +
      kImages + kQuiet;
  const Words limit = {"--rank-time-limit", "15"};  // for a rank that dies before all have met
  const auto start = steady_clock::now();
  run(training + Words{"--out", folder.path("straight")} + on_ranks(2));
  const auto whole = std::chrono::duration_cast<milliseconds>(steady_clock::now() - start);
  std::mt19937 random(7);
  int killed = 0;
  for (int attempt = 0; killed < kills; ++attempt) {
    ASSERT_LT(attempt, 5 * kills);
    const std::string out = folder.path("run-" + std::to_string(attempt)), errors = folder.path("errors");
    std::size_t steps = 0;
    {
      RunningProgram program(training + Words{"--out", out} + on_ranks(2) + limit, errors);
      std::uniform_int_distribution<std::int64_t> moment(whole.count() / 8, whole.count());
      if (!program.wait_for(milliseconds(moment(random)))) continue;
      const std::vector<pid_t> ranks = program.children();
      if (ranks.size() != 2) continue;
      kill(ranks[random() % 2], SIGKILL);
      const auto before = steady_clock::now();
      const int status = program.wait();
      if (status == 0) continue;  // it had done its part
      EXPECT_LT(steady_clock::now() - before, std::chrono::seconds(20));
      const std::string said = read_whole_file(errors);
      EXPECT_THAT(said, HasSubstr("was killed by signal 9"));
      EXPECT_LE(std::count(said.begin(), said.end(), '\n'), 2) << said;
      steps = lines(out, "step").size();
    }
    if (!fs::exists(out + "/last.safetensors")) {
      EXPECT_LE(steps, 4u);  // before the first checkpoint
      fs::remove_all(out);
      continue;
    }
    const auto state =
        nlohmann::json::parse(read_safetensors(out + "/last.safetensors").metadata.at("state"));
    // Checkpoints are after each third step; a step more may have been written down while it was saved.
    EXPECT_GE(state["step"].get<std::size_t>() + 4, steps);
    ++killed;
    for (const int ranks : {1, 2}) {
      const std::string resumed = out + "-on-" + std::to_string(ranks);
      fs::copy(out, resumed, fs::copy_options::recursive);
      run(Words{"train", "vit", "--resume", "--out", resumed} + on_ranks(ranks) + kQuiet);
      expect_same_losses(folder.path("straight"), resumed, ranks == 2 ? 0 : 1e-4, 120);
      for (const auto& entry : fs::directory_iterator(resumed)) EXPECT_NE(entry.path().extension(), ".tmp");
    }
    // As many ranks as before: the same bits as if nothing had been.
    const SafetensorsFile a = read_safetensors(folder.path("straight/last.safetensors")),
                          b = read_safetensors(out + "-on-2/last.safetensors");
    for (const auto& [key, tensor] : a.tensors) EXPECT_TRUE(tensor.equal(b.tensors.at(key))) << key;
  }
}

}  // namespace
}  // namespace topomask::testing
