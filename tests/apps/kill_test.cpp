// Two processes compete for one folder and are killed at random moments. What is finished is never lost, a
// process that comes second says so in one sentence, and training that is resumed ends with the weights and
// the metrics of training left alone, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>

#include "run_program.h"
#include "running_program.h"
#include "topomask/safetensors.h"

namespace topomask::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr int kKilled = 128 + SIGKILL;

const std::vector<std::string> kImages = {"--data", "strokes:16,train=256,val=64"},
                               kClips = {"--data", "motion:12,frames=4,train=128,val=32",
                                         "--temporal-attention", "grf"};

const std::vector<std::string> kSettings = {
    "--layers",  "2",           "--embedding", "16",        "--mlp",
    "32",        "--batch",     "32",          "--ema",     "0.9",
    "--dropout", "0.1",         "--mixup",     "0.2",       "--checkpoint-steps",
    "3",         "--log-every", "7",           "--threads", "1"};

std::vector<std::string> with_settings(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), kSettings.begin(), kSettings.end());
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Lines about steps and epochs, without their times.
std::vector<nlohmann::json> read_metrics(const std::string& run) {
  std::istringstream lines(read_whole_file(run + "/metrics.jsonl"));
  std::vector<nlohmann::json> metrics;
  for (std::string line; std::getline(lines, line);) {
    metrics.push_back(nlohmann::json::parse(line));
    for (const char* time :
         {"train_seconds", "data_seconds", "evaluation_seconds", "seconds", "samples_per_second"})
      metrics.back().erase(time);
  }
  return metrics;
}

void expect_same_run(const std::string& expected, const std::string& actual) {
  const std::vector<nlohmann::json> metrics = read_metrics(expected);
  EXPECT_FALSE(metrics.empty());
  EXPECT_EQ(metrics, read_metrics(actual));
  for (const char* name : {"last.safetensors", "best.safetensors"}) {
    const SafetensorsFile a = read_safetensors(expected + "/" + name),
                          b = read_safetensors(actual + "/" + name);
    ASSERT_EQ(a.tensors.size(), b.tensors.size());
    for (const auto& [key, tensor] : a.tensors)
      EXPECT_TRUE(tensor.equal(b.tensors.at(key))) << name << ": " << key;
  }
}

// Two processes at a time, each of which may be killed; how they end is left to the test.
class Competition : public ::testing::Test {
 protected:
  struct Ended {
    int status;
    std::string out, err;
  };

  // Starts the command twice and kills one or both, up to wanted_kills in all.
  std::vector<Ended> compete(const std::vector<std::string>& words, milliseconds longest) {
    std::vector<std::unique_ptr<RunningProgram>> programs;
    for (const char* name : {"a", "b"}) {
      programs.push_back(std::make_unique<RunningProgram>(words, folder.path(std::string("err-") + name),
                                                          folder.path(std::string("out-") + name)));
      if (programs.size() == 1) programs[0]->wait_for(milliseconds(draw(longest.count() / 3)));
    }
    for (std::size_t i : {draw(1), draw(1)}) {
      if (kills == wanted_kills) break;
      if (programs[i]->wait_for(milliseconds(draw(longest.count())))) programs[i]->send(SIGKILL);
      if (programs[i]->wait() == kKilled && !counted.contains(programs[i].get())) {
        counted.insert(programs[i].get());
        ++kills;
      }
    }
    std::vector<Ended> ended;
    for (std::size_t i = 0; i < 2; ++i) {
      const std::string name = i == 0 ? "a" : "b";
      ended.push_back({programs[i]->wait(), "", ""});
      ended.back().out = read_whole_file(folder.path("out-" + name));
      ended.back().err = read_whole_file(folder.path("err-" + name));
    }
    counted.clear();
    return ended;
  }

  // Training of a kind of model, killed until wanted_kills are reached.
  void train(const std::string& kind, const std::vector<std::string>& data);

  std::size_t draw(std::int64_t most) {
    return static_cast<std::size_t>(std::uniform_int_distribution<std::int64_t>(0, most)(random));
  }

  TemporaryDirectory folder;
  std::mt19937 random{2025};
  std::set<const RunningProgram*> counted;
  int kills = 0, wanted_kills = 25;
};

milliseconds time_of(const std::vector<std::string>& words) {
  const auto start = std::chrono::steady_clock::now();
  const ProgramResult result = run_program(words);
  EXPECT_EQ(result.status, 0) << result.err;
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
}

void Competition::train(const std::string& kind, const std::vector<std::string>& data) {
  const auto training = [&](const std::string& name, bool resume) {
    std::vector<std::string> words =
        with_settings({"train", kind, "--out", folder.path(name), "--quiet", "--epochs", "30"}, data);
    if (resume) words.push_back("--resume");
    return words;
  };
  const milliseconds whole = time_of(training("straight", false));
  int runs = 0, refused = 0;
  while (kills < wanted_kills) {
    const std::string name = "run-" + std::to_string(++runs), out = folder.path(name);
    while (!fs::exists(out + "/result.json")) {
      // A folder without a configuration was killed before it began.
      const bool resume = fs::exists(out + "/config.toml");
      for (const Ended& ended : compete(training(name, resume), whole)) {
        if (ended.status == 0 || ended.status == kKilled) continue;
        ++refused;
        EXPECT_EQ(ended.status, 2) << ended.err;
        EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
        EXPECT_THAT(ended.err,
                    ::testing::AnyOf(::testing::HasSubstr(name + ": another process is training there"),
                                     ::testing::HasSubstr(name + ": holds a run already")));
      }
    }
    expect_same_run(folder.path("straight"), out);
    const std::string result = read_whole_file(out + "/result.json");
    expect_rejected(training(name, false), "holds a run already");
    EXPECT_EQ(run_program(training(name, true)).status, 0);  // only reports
    EXPECT_EQ(read_whole_file(out + "/result.json"), result);
    for (const auto& entry : fs::directory_iterator(out))
      EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();  // half files of killed processes are gone
  }
  EXPECT_GT(refused, 0);
  RecordProperty("runs", runs);
}

TEST_F(Competition, ForTheFolderOfARunOnImages) {
  train("vit", kImages);
}

TEST_F(Competition, ForTheFolderOfARunOnClips) {
  wanted_kills = 10;
  train("vivit", kClips);
}

TEST_F(Competition, ForTheFolderOfAnExperiment) {
  const std::vector<std::string> runs = {"linear/seed-0", "grf/seed-0", "linear/seed-1", "grf/seed-1"};
  const auto table = [&](const std::string& name) {
    return with_settings({"experiment", "image-table", "--out", folder.path(name), "--variants", "linear,grf",
                          "--seeds", "0-1", "--epochs", "8"},
                         kImages);
  };
  const milliseconds whole = time_of(table("straight"));
  int tables = 0, left_out = 0;
  while (kills < wanted_kills) {
    const std::string name = "table-" + std::to_string(++tables), out = folder.path(name);
    std::map<std::string, std::string> finished;
    while (finished.size() < runs.size()) {
      for (const Ended& ended : compete(table(name), whole)) {
        if (ended.status == kKilled) continue;
        EXPECT_EQ(ended.status, 0) << ended.err;
        EXPECT_EQ(ended.err, "");
        // Whatever it did not finish itself was another's, and it says so.
        if (ended.out.find("4 of 4 runs are finished;") != std::string::npos) continue;
        ++left_out;
        EXPECT_THAT(ended.out, ::testing::HasSubstr("left out: another process is training it"));
        EXPECT_THAT(ended.out, ::testing::HasSubstr("left to other processes;"));
      }
      for (const std::string& run : runs) {
        const std::string path = out + "/" + run + "/result.json";
        if (finished.contains(run)) {
          EXPECT_EQ(read_whole_file(path), finished[run]) << run;
        } else if (fs::exists(path)) {
          finished[run] = read_whole_file(path);
        }
      }
    }
    for (const std::string& run : runs) expect_same_run(folder.path("straight/" + run), out + "/" + run);
    // A last call only merges.
    ASSERT_EQ(run_program(table(name)).status, 0);
    const auto merged = nlohmann::json::parse(read_whole_file(out + "/results.json"));
    EXPECT_EQ(merged["runs"].size(), runs.size());
    for (const std::string& run : runs)
      EXPECT_EQ(read_whole_file(out + "/" + run + "/result.json"), finished[run]);
  }
  RecordProperty("tables", tables);
  RecordProperty("left_out", left_out);
}

}  // namespace
}  // namespace topomask::testing
