// Training that is killed at random moments and resumed ends with the weights of training left alone, bit for
// bit.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <random>

#include "run_program.h"
#include "running_program.h"
#include "topomask/safetensors.h"

namespace topomask::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kKills = 20;

std::vector<std::string> training(const std::string& out, bool resume) {
  std::vector<std::string> words = {"train", "vit", "--out", out, "--threads", "1", "--quiet"};
  const std::vector<std::string> settings = {"--data",
                                             "strokes:16,train=256,val=64",
                                             "--layers",
                                             "2",
                                             "--embedding",
                                             "16",
                                             "--mlp",
                                             "32",
                                             "--batch",
                                             "32",
                                             "--epochs",
                                             "30",
                                             "--ema",
                                             "0.9",
                                             "--dropout",
                                             "0.1",
                                             "--mixup",
                                             "0.2",
                                             "--checkpoint-steps",
                                             "3"};
  words.insert(words.end(), settings.begin(), settings.end());
  if (resume) words.push_back("--resume");
  return words;
}

void expect_same_weights(const std::string& expected, const std::string& actual) {
  for (const char* name : {"last.safetensors", "best.safetensors"}) {
    const SafetensorsFile a = read_safetensors(expected + "/" + name),
                          b = read_safetensors(actual + "/" + name);
    ASSERT_EQ(a.tensors.size(), b.tensors.size());
    for (const auto& [key, tensor] : a.tensors)
      EXPECT_TRUE(tensor.equal(b.tensors.at(key))) << name << ": " << key;
  }
}

TEST(Kill, ResumedTrainingEndsWithTheSameWeights) {
  const TemporaryDirectory folder;
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(run_program(training(folder.path("straight"), false)).status, 0);
  const auto whole =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);

  std::mt19937 random(2025);
  int kills = 0, runs = 0;
  while (kills < kKills) {
    const std::string out = folder.path("killed-" + std::to_string(++runs));
    for (bool finished = false; !finished;) {
      // A folder without a configuration was killed before it began.
      RunningProgram program(training(out, fs::exists(out + "/config.toml")), folder.path("errors"));
      if (kills < kKills) {
        const auto moment = std::uniform_int_distribution<std::int64_t>(0, whole.count())(random);
        if (program.wait_for(std::chrono::milliseconds(moment))) {
          program.send(SIGKILL);
          if (program.wait() == 128 + SIGKILL) {
            ++kills;
            continue;
          }  // or it ended just before
        }
      }
      ASSERT_EQ(program.wait(), 0) << read_whole_file(folder.path("errors"));
      finished = true;
    }
    expect_same_weights(folder.path("straight"), out);
  }
  RecordProperty("runs", runs);
}

}  // namespace
}  // namespace topomask::testing
