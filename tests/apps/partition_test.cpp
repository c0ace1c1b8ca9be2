// `topomask partition` as a user runs it: what it prints, what it writes, what is left after a kill or on a
// full disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <utility>

#include "run_program.h"
#include "running_program.h"

namespace topomask::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

std::vector<std::string> partition_of(const std::string& graph, const std::string& parts,
                                      const std::string& out, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {"partition", "--graph", graph, "--parts", parts, "--out", out};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::map<std::string, std::string> files_in(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder))
    files[entry.path().filename().string()] = read_whole_file(entry.path().string());
  return files;
}

TEST(PartitionCommand, PrintsCutBalanceAndHalos) {
  const TemporaryDirectory scratch;
  const json result = run_json(partition_of("grid:32x32", "4", scratch.path("parts")));
  EXPECT_EQ(result["nodes"], 1024);
  EXPECT_EQ(result["edges"], 1984);
  EXPECT_EQ(result["entries"], 3968);
  EXPECT_EQ(result["directed"], false);
  EXPECT_EQ(result["method"], "metis");
  EXPECT_LT(result["cut"]["edges"], 96);
  EXPECT_DOUBLE_EQ(result["cut"]["share"].get<double>(), result["cut"]["edges"].get<double>() / 1984);
  EXPECT_LE(result["balance"], 1.05);
  EXPECT_EQ(result["exchange_bytes"], 4 * result["halo"]["total"].get<int>());
  ASSERT_EQ(result["parts"].size(), 4u);
  std::int64_t nodes = 0, halo = 0, sends = 0;
  for (const json& part : result["parts"]) {
    nodes += part["nodes"].get<std::int64_t>();
    halo += part["halo"].get<std::int64_t>();
    sends += part["sends"].get<std::int64_t>();
  }
  EXPECT_EQ(nodes, 1024);
  EXPECT_EQ(halo, result["halo"]["total"]);
  EXPECT_EQ(halo, sends);
  const json index = json::parse(read_whole_file(scratch.path("parts/index.json")));
  EXPECT_EQ(index["version"], 1);
  EXPECT_EQ(index["parts"], 4);
  EXPECT_EQ(index["cut_edges"], result["cut"]["edges"]);
  EXPECT_EQ(index["shards"][3]["file"], "part-0003.safetensors");
  const ProgramResult text = run_program(partition_of("karate", "2", scratch.path("karate")));
  EXPECT_EQ(text.status, 0) << text.err;
  for (const char* word : {"cut", "balance", "halo", "exchange", "sends", "34 nodes, 78 edges (undirected)"})
    EXPECT_THAT(text.out, HasSubstr(word));
  EXPECT_EQ(run_program(partition_of("karate", "2", scratch.path("quiet"), {"--quiet"})).out, "");
}

TEST(PartitionCommand, ShardsAreTheGraph) {
  const TemporaryDirectory scratch;
  scratch.write("edges.csv", "a,b,0.5\nb,c,2\nd,a,1\nc,c,4\n");
  scratch.write("cloud.txt", "0 0\n1 0\n5 5\n6 5\n0 1\n9 9\n");
  int number = 0;
  const std::string cloud = "knn:" + scratch.path("cloud.txt"), table = scratch.path("edges.csv");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"ba:300,3", "metis"}, {cloud, "stream"}, {cloud + ",2", "morton"},
      {table, "metis"},      {table, "morton"}, {table, "stream"}};
  for (const auto& [spec, method] : cases) {
    SCOPED_TRACE(spec + " " + method);
    const std::string out = scratch.path("out-" + std::to_string(number++));
    ASSERT_EQ(run_program(partition_of(spec, "3", out, {"--method", method})).status, 0);
    const std::string before = scratch.path("before.npz"), after = scratch.path("after.npz");
    EXPECT_EQ(run_json({"graph", "--graph", spec, "--out-ids", scratch.path("ids")}),
              run_json({"graph", "--graph", "shards:" + out, "--out-ids", scratch.path("ids-again")}));
    EXPECT_EQ(read_whole_file(scratch.path("ids")), read_whole_file(scratch.path("ids-again")));
    ASSERT_EQ(run_program({"features", "--graph", spec, "--walks", "4", "--out", before}).status, 0);
    ASSERT_EQ(run_program({"features", "--graph", "shards:" + out, "--walks", "4", "--out", after}).status,
              0);
    EXPECT_EQ(read_whole_file(before), read_whole_file(after));
  }
}

TEST(PartitionCommand, SameBytesOnAnyNumberOfThreads) {
  const TemporaryDirectory scratch;
  const std::string edges = scratch.write("edges.txt", [] {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += std::to_string(i) + " " + std::to_string(i * 7919 % 2003) + "\n";
    return text;
  }());
  for (const std::string method : {"morton", "metis", "stream"}) {
    std::map<std::string, std::string> first;
    for (const std::string threads : {"1", "4"}) {
      const std::string out = scratch.path(method + threads);
      ASSERT_EQ(run_program(
                    partition_of(edges, "5", out, {"--method", method, "--threads", threads, "--seed", "9"}))
                    .status,
                0);
      if (first.empty()) first = files_in(out);
      EXPECT_EQ(first, files_in(out)) << method;
    }
  }
}

TEST(PartitionCommand, OrderIsSaid) {
  const TemporaryDirectory scratch;
  const auto order = [&](const std::string& graph, const std::string& method) {
    const std::string out = scratch.path(graph.substr(0, 4) + method);
    return run_json(partition_of(graph, "2", out, {"--method", method}))["order"].get<std::string>();
  };
  EXPECT_THAT(order("grid:6x6", "morton"), HasSubstr("Morton"));
  EXPECT_THAT(order("karate", "morton"), HasSubstr("reverse Cuthill-McKee"));
  EXPECT_THAT(order("karate", "stream"), HasSubstr("in their order"));
}

TEST(PartitionCommand, OneSentencePerMistake) {
  const TemporaryDirectory scratch;
  const std::string out = scratch.path("parts");
  expect_rejected(partition_of("karate", "0", out), "--parts: expected a number from 1, got 0");
  expect_rejected(partition_of("karate", "5000", out), "4096");
  expect_rejected(partition_of("karate", "2", out, {"--method", "metric"}), "did you mean 'metis'?");
  expect_rejected(partition_of("karate", "2", out, {"--imbalance", "-1"}), "--imbalance must be above 0");
  expect_rejected(partition_of("nowhere.txt", "2", out, {"--method", "stream"}), "nowhere.txt");
  expect_rejected(partition_of("karate", "2", scratch.write("file", "x")), "is not a folder");
  expect_rejected({"partition", "--graph", "karate", "--parts", "2"}, "--out");
  EXPECT_FALSE(fs::exists(out));
  ASSERT_EQ(run_program(partition_of("karate", "2", out)).status, 0);
  const auto before = files_in(out);
  expect_rejected(partition_of("karate", "3", out), "holds a partition already");
  EXPECT_EQ(files_in(out), before);
  expect_rejected({"graph", "--graph", "shards:" + scratch.path("nothing")}, "holds no finished partition");
  expect_rejected({"graph", "--graph", "shard:parts"}, "did you mean 'shards'?");
  fs::resize_file(out + "/part-0001.safetensors", 100);
  expect_rejected({"graph", "--graph", "shards:" + out}, "part-0001.safetensors");
}

TEST(PartitionCommand, KilledInTheMiddleLeavesNoIndex) {
  const TemporaryDirectory scratch;
  const std::string out = scratch.path("parts");
  const std::vector<std::string> words = partition_of("grid:800x800", "64", out, {"--method", "morton"});
  {
    RunningProgram program(words, scratch.path("err"));
    ASSERT_TRUE(program.wait_until([&] { return fs::exists(out + "/part-0001.safetensors"); }));
    program.send(SIGKILL);
    ASSERT_EQ(program.wait(), 128 + SIGKILL);
  }
  EXPECT_FALSE(fs::exists(out + "/index.json"));
  EXPECT_TRUE(fs::exists(out + "/part-0000.safetensors"));
  expect_rejected({"graph", "--graph", "shards:" + out}, "holds no finished partition");
  // The next run starts afresh.
  const json result = run_json(words);
  EXPECT_EQ(result["nodes"], 640000);
  EXPECT_EQ(run_json({"graph", "--graph", "shards:" + out})["nodes"], 640000);
  for (const auto& [name, content] : files_in(out))
    EXPECT_THAT(name, ::testing::Not(::testing::EndsWith(".tmp")));
}

TEST(PartitionCommand, AFullDiskIsOneSentence) {
  const TemporaryDirectory scratch;
  std::string text;
  for (int i = 0; i < 20000; ++i) text += std::to_string(i) + " " + std::to_string(i + 1) + "\n";
  const std::string edges = scratch.write("edges.txt", text);
  for (const std::string method : {"metis", "stream"}) {
    const std::string out = scratch.path(method), err = scratch.path("err-" + method);
    // The largest file may have 32 KiB: to write more fails as it does on a full disk.
    const std::string command =
        "trap '' XFSZ; ulimit -f 64; exec '" TOPOMASK_PROGRAM "' partition --graph '" + edges +
        "' --parts 2 --method " + method + " --out '" + out + "' 2> '" + err + "'";
    const int status = std::system(("sh -c \"" + command + "\"").c_str());
    EXPECT_EQ(WEXITSTATUS(status), 2) << method;
    const std::string message = read_whole_file(err);
    EXPECT_THAT(message, HasSubstr("cannot write"));
    EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 1) << message;
    EXPECT_FALSE(fs::exists(out)) << method;  // nothing stays behind
  }
}

}  // namespace
}  // namespace topomask::testing
