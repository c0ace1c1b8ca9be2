// Shards: what is written is read back bit for bit, from memory and from a stream of edges; halos and send
// lists fit together; damaged and foreign files are one sentence.
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>
#include <set>

#include "support/compressed.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "topomask/graph_builders.h"
#include "topomask/graph_spec.h"
#include "topomask/partition.h"
#include "topomask/safetensors.h"

namespace topomask {
namespace {

using topomask::testing::expect_error;
using topomask::testing::TemporaryFolder;
namespace fs = std::filesystem;

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void expect_same_graph(const Graph& expected, const Graph& actual) {
  EXPECT_TRUE(at::equal(expected.row_ptr, actual.row_ptr));
  EXPECT_TRUE(at::equal(expected.col, actual.col));
  EXPECT_TRUE(at::equal(expected.weight, actual.weight));
  EXPECT_EQ(expected.directed, actual.directed);
  EXPECT_EQ(expected.out_degree, actual.out_degree);
}

template <class Value>
std::vector<Value> values_of(const at::Tensor& tensor) {
  const Value* value = tensor.const_data_ptr<Value>();
  return {value, value + tensor.numel()};
}

// Each node and entry is in one shard, what a part needs is what the others send, and an exchange by the
// lists alone brings every value to where it is needed.
void expect_consistent(const std::string& folder, const Graph& graph) {
  const ShardIndex index = read_shard_index(folder);
  std::vector<Shard> shards;
  for (std::int64_t p = 0; p < index.parts; ++p) shards.push_back(read_shard(folder, p));
  std::set<std::int64_t> seen;
  std::int64_t entries = 0, first = 0;
  for (const Shard& shard : shards) {
    EXPECT_EQ(shard.first, first);
    first += shard.nodes.numel();
    entries += shard.col.numel();
    const auto nodes = values_of<std::int64_t>(shard.nodes);
    for (const std::int64_t node : nodes) EXPECT_TRUE(seen.insert(node).second) << node;
    const auto begin = values_of<std::int64_t>(shard.row_ptr);
    const CsrView whole = graph.view();
    for (std::size_t i = 0; i < nodes.size(); ++i) EXPECT_EQ(begin[i + 1] - begin[i], whole.degree(nodes[i]));
  }
  EXPECT_EQ(static_cast<std::int64_t>(seen.size()), graph.num_nodes());
  EXPECT_EQ(entries, graph.num_entries());
  for (const Shard& mine : shards) {
    const auto halo = values_of<std::int64_t>(mine.halo), halo_ptr = values_of<std::int64_t>(mine.halo_ptr);
    const auto owner = values_of<std::int32_t>(mine.halo_owner);
    // Every node of the halo is used, none is mine.
    std::set<std::int32_t> used;
    for (const std::int32_t column : values_of<std::int32_t>(mine.col)) {
      if (column >= mine.nodes.numel()) used.insert(column);
    }
    EXPECT_EQ(used.size(), halo.size());
    for (const Shard& other : shards) {
      const auto send_ptr = values_of<std::int64_t>(other.send_ptr);
      const auto send = values_of<std::int32_t>(other.send);
      const auto nodes = values_of<std::int64_t>(other.nodes);
      std::vector<std::int64_t> sent, wanted;
      for (std::int64_t k = send_ptr[mine.part]; k < send_ptr[mine.part + 1]; ++k)
        sent.push_back(nodes[send[k]]);
      for (std::int64_t k = halo_ptr[other.part]; k < halo_ptr[other.part + 1]; ++k) {
        wanted.push_back(halo[k]);
        EXPECT_EQ(owner[k], other.part);
      }
      EXPECT_EQ(sent, wanted) << other.part << " to " << mine.part;
      if (other.part == mine.part) {
        EXPECT_TRUE(wanted.empty());
      }
    }
  }
}

struct NamedGraph {
  std::string name;
  Graph graph;
  std::vector<std::string> names;
};

Graph random_directed() {
  std::mt19937 random(7);
  EdgeList edges;
  edges.num_nodes = 300;
  edges.directed = true;
  for (int e = 0; e < 1500; ++e) {
    edges.source.push_back(static_cast<std::int32_t>(random() % 290));  // the last ten are isolated or sinks
    edges.target.push_back(static_cast<std::int32_t>(random() % 295));
    edges.weight.push_back(static_cast<float>(random() % 1000) / 7.0f - 50.0f);
  }
  return Graph::from_edges(edges);
}

std::vector<NamedGraph> graphs() {
  std::vector<NamedGraph> all = {{"grid", grid_graph({12, 17}), {}},
                                 {"cloud", load_graph("torus:600,6").graph, {}},
                                 {"directed_cloud", knn_graph(torus_points(400), {.k = 5}), {}},
                                 {"hubs", barabasi_albert(500, 3, 2), {}},
                                 {"directed", random_directed(), {}},
                                 {"isolated", load_graph("er:40,0.01,3").graph, {}},
                                 {"no_edges", load_graph("er:10,0").graph, {}},
                                 {"two_nodes", path_graph(2), {"left", "right \t\n\xc3\xa9"}},
                                 {"no_nodes", Graph(), {}}};
  EdgeList parallel;
  parallel.num_nodes = 4;
  parallel.source = {3, 3, 0, 0, 2, 1};
  parallel.target = {0, 0, 0, 3, 1, 2};
  parallel.weight = {5, 4, 3, 2, 1, -1};
  GraphPolicy keep;
  keep.duplicates = Duplicates::keep;
  all.push_back({"parallel", Graph::from_edges(parallel, keep), {"a", "", "c", "d"}});
  return all;
}

class EveryMethod : public ::testing::TestWithParam<PartitionMethod> {};

TEST_P(EveryMethod, ShardsReassembleBitForBit) {
  for (const NamedGraph& named : graphs()) {
    for (const std::int64_t parts : {1, 2, 5, 13}) {
      SCOPED_TRACE(named.name + " in " + std::to_string(parts));
      const TemporaryFolder scratch;
      PartitionOptions options;
      options.parts = parts;
      options.method = GetParam();
      options.seed = 18446744073709551615u;
      const Partition partition = partition_graph(named.graph, options);
      const PartitionSummary summary = write_shards(scratch / "shards", named.graph, partition, named.names);
      EXPECT_EQ(summary.entries, named.graph.num_entries());
      const ShardedGraph whole = read_shards(scratch / "shards");
      expect_same_graph(named.graph, whole.graph);
      EXPECT_EQ(whole.names, named.names);
      EXPECT_TRUE(whole.partition.assignment.equal(partition.assignment));
      EXPECT_EQ(whole.partition.parts, parts);
      EXPECT_EQ(whole.partition.method, GetParam());
      EXPECT_EQ(whole.partition.seed, options.seed);
      expect_consistent(scratch / "shards", named.graph);
      const LoadedGraph loaded = load_graph("shards:" + scratch / "shards");
      expect_same_graph(named.graph, loaded.graph);
      EXPECT_EQ(loaded.names, named.names);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, EveryMethod,
                         ::testing::Values(PartitionMethod::morton, PartitionMethod::metis,
                                           PartitionMethod::stream),
                         [](const auto& test) { return std::string(word_of(test.param)); });

// A graph as the text of an edge list, in a shuffled order, some edges twice and some the other way round.
std::string shuffled_text(bool weighted, std::int64_t spread) {
  const CsrView graph = [] {
    static const Graph kept = barabasi_albert(700, 4, 5);
    return kept.view();
  }();
  std::mt19937 random(3);
  std::vector<std::string> lines;
  for (std::int64_t i = 0; i < graph.num_nodes; ++i) {
    for (std::int64_t e = graph.row_ptr[i]; e < graph.row_ptr[i + 1]; ++e) {
      if (graph.col[e] < i && random() % 4 != 0) continue;
      std::string line = std::to_string(i * spread) + " " + std::to_string(graph.col[e] * spread);
      if (weighted) line += " " + std::to_string(static_cast<double>(random() % 100) / 8);
      lines.push_back(line);
    }
  }
  lines.push_back(weighted ? "3 3 2.5" : "0 0");
  std::shuffle(lines.begin(), lines.end(), random);
  std::string text = "# a comment\n";
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::string words_text() {
  return "from,to,weight\nana,bob,1\nbob,\"c d\",2\nana,eve,3\neve,ana,4\nc d,c d,5\n";
}

struct TextFile {
  std::string name, content;
};

std::vector<TextFile> texts() {
  std::string sparse = shuffled_text(false, 1);
  return {{"plain.txt", sparse},
          {"weighted.tsv", shuffled_text(true, 1)},
          {"gaps.edges", shuffled_text(false, 3)},
          {"far.txt", "0 9000000000000000000\n9000000000000000000 5\n5 4611686018427387904\n"},
          {"packed.txt.gz", topomask::testing::gzip(shuffled_text(true, 1))},
          {"packed.csv.xz", topomask::testing::xz(words_text())},
          {"words.csv", words_text()},
          {"declared.txt", "# Nodes: 9 Edges: 2\n0 1\n4 1\n"},
          {"ids.txt", "source target\n1 2\r\n2 3\n\n% end"},
          {"numbered.txt",
           "\xEF\xBB\xBF"
           "0 5 6 1.5\n1 6 7 -2\n"}};
}

PartitionOptions stream_options(std::int64_t parts) {
  PartitionOptions options;
  options.parts = parts;
  options.method = PartitionMethod::stream;
  return options;
}

// The stream gives what the graph in memory gives: the same nodes, names, partition and files.
TEST(StreamedShards, EqualThoseOfTheGraphInMemory) {
  for (const TextFile& text : texts()) {
    for (const Direction direction : {Direction::as_read, Direction::directed}) {
      for (const Duplicates duplicates : {Duplicates::drop, Duplicates::sum, Duplicates::keep}) {
        SCOPED_TRACE(text.name + " " + std::string(word_of(direction)) + " " +
                     std::string(word_of(duplicates)));
        const TemporaryFolder scratch;
        const std::string path = scratch.write(text.name, text.content);
        LoadOptions loading;
        loading.policy.direction = direction;
        loading.policy.duplicates = duplicates;
        const LoadedGraph loaded = load_graph(path, loading);
        const Partition partition = partition_graph(loaded.graph, stream_options(3));
        write_shards(scratch / "memory", loaded.graph, partition, loaded.names);
        StreamOptions streaming;
        streaming.policy = loading.policy;
        const PartitionSummary summary =
            partition_edge_file(scratch / "stream", path, stream_options(3), streaming);
        EXPECT_EQ(summary.entries, loaded.graph.num_entries());
        for (const auto& file : fs::directory_iterator(scratch / "memory")) {
          const std::string name = file.path().filename().string();
          EXPECT_EQ(content_of(file.path().string()), content_of(scratch / ("stream/" + name))) << name;
        }
        std::size_t files = 0;
        for (const auto& file : fs::directory_iterator(scratch / "stream")) {
          ++files;
          EXPECT_NE(file.path().extension(), ".tmp") << file.path();
        }
        EXPECT_EQ(files, 5u);  // three parts, index.json and the lock
      }
    }
  }
}

TEST(StreamedShards, DoNotDependOnTheBuffer) {
  const TemporaryFolder scratch;
  const std::string path = scratch.write("edges.txt", shuffled_text(true, 2));
  std::map<std::string, std::string> expected;
  for (const std::int64_t bytes :
       {std::int64_t{1} << 27, std::int64_t{1}, std::int64_t{100}, std::int64_t{5000}}) {
    StreamOptions streaming;
    streaming.buffer_bytes = bytes;
    const std::string folder = scratch / ("buffer-" + std::to_string(bytes));
    partition_edge_file(folder, path, stream_options(4), streaming);
    for (const std::string name : {"index.json", "part-0000.safetensors", "part-0003.safetensors"}) {
      const std::string content = content_of(folder + "/" + name);
      EXPECT_FALSE(content.empty());
      EXPECT_EQ(expected.try_emplace(name, content).first->second, content) << name << " " << bytes;
    }
  }
}

TEST(StreamedShards, SelfLoopsCanGo) {
  const TemporaryFolder scratch;
  const std::string path = scratch.write("edges.txt", "0 0\n0 1\n1 1\n2 1\n");
  StreamOptions streaming;
  streaming.policy.self_loops = SelfLoops::drop;
  partition_edge_file(scratch / "out", path, stream_options(2), streaming);
  expect_same_graph(path_graph(3), read_shards(scratch / "out").graph);
}

TEST(StreamedShards, OneSentencePerMistake) {
  const TemporaryFolder scratch;
  const auto stream = [&](const std::string& name, std::string_view content, StreamOptions streaming = {}) {
    return [&, name, content, streaming] {
      partition_edge_file(scratch / "out", scratch.write(name, content), stream_options(2), streaming);
    };
  };
  expect_error(stream("graph.mtx", "%%MatrixMarket"), "expected a text table of edges");
  expect_error(stream("empty.txt", "# nothing\n"), "expected at least one edge, got none");
  expect_error(stream("bad.txt", "0 1\n1 2 3 4 5\n"), "bad.txt, line 2");
  expect_error(stream("negative.txt", "0 1\n-1 2\n"), "expected node ids from 0");
  expect_error(stream("nan.txt", "0 1 nan\n"), "expected a finite number as weight");
  expect_error(stream("binary.txt", std::string_view("0 1\n\0\1", 6)), "line 2: expected text");
  const std::string packed = topomask::testing::gzip(shuffled_text(false, 1));
  expect_error(stream("cut.txt.gz", std::string_view(packed).substr(0, packed.size() / 2)), "is truncated");
  const std::string xz = topomask::testing::xz(shuffled_text(false, 1));
  expect_error(stream("cut.txt.xz", std::string_view(xz).substr(0, xz.size() / 2)), "is truncated");
  expect_error(stream("no.txt.gz", "0 1\n"), "not valid gzip");
  StreamOptions small;
  small.read.max_file_size = 5;
  expect_error(stream("large.txt", "0 1\n1 2\n", small), "larger than 5 bytes");
  StreamOptions dropping;
  dropping.policy.components = Components::drop;
  expect_error(stream("edges.txt", "0 1\n", dropping), "needs the whole graph in memory");
  expect_error([&] { partition_edge_file(scratch / "out", scratch / "gone.txt", stream_options(2)); },
               "cannot open");
  PartitionOptions metis;
  expect_error([&] { partition_edge_file(scratch / "out", scratch / "edges.txt", metis); }, "stream alone");
  EXPECT_FALSE(fs::exists(scratch / "out"));  // nothing is left of what failed
}

class DamagedShards : public ::testing::Test {
 protected:
  void SetUp() override { write("shards", grid_graph({6, 6})); }
  void write(const std::string& name, const Graph& graph) {
    PartitionOptions options;
    options.parts = 3;
    write_shards(scratch / name, graph, partition_graph(graph, options));
  }
  void expect_unreadable(std::initializer_list<const char*> parts) {
    expect_error([&] { read_shards(scratch / "shards"); }, parts);
    expect_error([&] { load_graph("shards:" + scratch / "shards"); }, parts);
  }
  void edit_index(const std::string& from, const std::string& to) {
    std::string text = content_of(scratch / "shards/index.json");
    ASSERT_NE(text.find(from), std::string::npos);
    text.replace(text.find(from), from.size(), to);
    scratch.write("shards/index.json", text);
  }

  TemporaryFolder scratch;
};

TEST_F(DamagedShards, NoIndex) {
  fs::remove(scratch / "shards/index.json");
  expect_unreadable({"holds no finished partition", "index.json is missing"});
  expect_error([] { load_graph("shards:/nonexistent"); }, "holds no finished partition");
  expect_error([] { load_graph("shards:"); }, "expected a folder of shards, got nothing");
}

TEST_F(DamagedShards, BadIndex) {
  scratch.write("shards/index.json", "{");
  expect_unreadable({"not the index of a partition"});
  scratch.write("shards/index.json", "{\"format\": 3}");
  expect_unreadable({"not the index of a partition"});
  fs::remove_all(scratch / "shards");
  write("shards", grid_graph({6, 6}));
  edit_index("\"version\": 1", "\"version\": 2");
  expect_unreadable({"expected version 1, got 2"});
  edit_index("\"version\": 2", "\"version\": 1");
  edit_index("\"nodes\": 36", "\"nodes\": -1");
  expect_unreadable({"expected a whole number from 0 as 'nodes'"});
  edit_index("\"nodes\": -1", "\"nodes\": 37");
  expect_unreadable({"expected shards of 37 nodes"});
  edit_index("\"nodes\": 37", "\"nodes\": 36");
  edit_index("part-0001.safetensors", "../../passwords");
  expect_unreadable({"expected the file 'part-0001.safetensors'"});
  edit_index("../../passwords", "part-0001.safetensors");
  edit_index("\"directed\": false", "\"directed\": true");
  expect_unreadable({"do not make up the graph"});
}

TEST_F(DamagedShards, MissingPart) {
  fs::remove(scratch / "shards/part-0002.safetensors");
  expect_unreadable({"part-0002.safetensors", "cannot open"});
}

TEST_F(DamagedShards, TruncatedPart) {
  const std::string path = scratch / "shards/part-0001.safetensors";
  fs::resize_file(path, fs::file_size(path) - 1);
  expect_unreadable({"part-0001.safetensors"});
  fs::resize_file(path, 4);
  expect_unreadable({"part-0001.safetensors"});
}

TEST_F(DamagedShards, ForeignPart) {
  write("other", cycle_graph(36));
  fs::copy_file(scratch / "other/part-0000.safetensors", scratch / "shards/part-0000.safetensors",
                fs::copy_options::overwrite_existing);
  expect_unreadable({"part-0000.safetensors", "belongs to another partition"});
}

TEST_F(DamagedShards, PartUnderAnotherNumber) {
  fs::copy_file(scratch / "shards/part-0001.safetensors", scratch / "shards/part-0000.safetensors",
                fs::copy_options::overwrite_existing);
  expect_unreadable({"belongs to another partition", "another of its parts"});
}

TEST_F(DamagedShards, ChangedValues) {
  const std::string path = scratch / "shards/part-0001.safetensors";
  const SafetensorsFile original = read_safetensors(path);
  const auto with = [&](const char* name, const at::Tensor& tensor) {
    SafetensorsFile file = original;
    file.tensors[name] = tensor;
    write_safetensors(path, file);
  };
  const auto changed = [&](const char* name, std::int64_t place, double value) {
    at::Tensor tensor = original.tensors.at(name).clone();
    tensor.select(0, place).fill_(value);
    with(name, tensor);
  };
  changed("weight", 0, 2);
  expect_unreadable({"do not make up the graph"});
  changed("weight", 0, std::numeric_limits<double>::infinity());
  expect_unreadable({"not finite"});
  changed("col", 0, 1000);
  expect_unreadable({"'col' holds 1000 at 0"});
  changed("nodes", 0, -1);
  expect_unreadable({"'nodes' holds -1"});
  changed("row_ptr", 1, 100000);
  expect_unreadable({"'row_ptr' must ascend"});
  changed("send", 0, 36);
  expect_unreadable({"'send' holds 36"});
  changed("halo_owner", 0, 3);
  expect_unreadable({"'halo_owner' holds 3"});
  with("halo", at::zeros({1}, at::kLong));
  expect_unreadable({"expected tensor 'halo'"});
  with("col", original.tensors.at("col").to(at::kLong));
  expect_unreadable({"expected tensor 'col' to be Int"});
  SafetensorsFile file = original;
  file.tensors.erase("weight");
  write_safetensors(path, file);
  expect_unreadable({"tensor 'weight' is missing"});
  // A node that two parts own.
  at::Tensor nodes = original.tensors.at("nodes").clone();
  nodes.copy_(read_safetensors(scratch / "shards/part-0000.safetensors")
                  .tensors.at("nodes")
                  .slice(0, 0, 1)
                  .expand_as(nodes));
  with("nodes", nodes);
  expect_unreadable({"is in part"});
}

TEST(ShardFolders, AnotherPartitionIsLeftAlone) {
  const TemporaryFolder scratch;
  const Graph graph = grid_graph({5, 5});
  const Partition partition = partition_graph(graph, {});
  write_shards(scratch / "a/b", graph, partition);
  const std::string index = content_of(scratch / "a/b/index.json");
  expect_error([&] { write_shards(scratch / "a/b", path_graph(25), partition); },
               {"holds a partition already", "choose another folder"});
  EXPECT_EQ(content_of(scratch / "a/b/index.json"), index);
  expect_same_graph(graph, read_shards(scratch / "a/b").graph);
  scratch.write("file", "");
  expect_error([&] { write_shards(scratch / "file", graph, partition); }, "is not a folder");
  expect_error([&] { write_shards("", graph, partition); }, "expected the path of a folder");
}

TEST(ShardFolders, LeftoversOfAKilledRunGo) {
  const TemporaryFolder scratch;
  fs::create_directory(scratch / "out");
  for (const char* name : {"part-0007.safetensors", "part-0000.safetensors.123.tmp", "bucket-3.tmp",
                           "rows-col.tmp", "part-0001-col.tmp", "index.json.7.tmp"})
    scratch.write(std::string("out/") + name, "leftover");
  scratch.write("out/notes.txt", "mine");
  scratch.write("out/part-of-me.safetensors", "mine");
  const Graph graph = grid_graph({5, 5});
  write_shards(scratch / "out", graph, partition_graph(graph, {}));
  std::set<std::string> names;
  for (const auto& file : fs::directory_iterator(scratch / "out"))
    names.insert(file.path().filename().string());
  EXPECT_EQ(names, (std::set<std::string>{".lock", "index.json", "notes.txt", "part-0000.safetensors",
                                          "part-0001.safetensors", "part-of-me.safetensors"}));
}

TEST(ShardFolders, ShardsFollowThePolicyOfTheLoader) {
  const TemporaryFolder scratch;
  EdgeList edges;
  edges.num_nodes = 4;
  edges.source = {0, 1, 1};
  edges.target = {1, 1, 0};
  edges.weight = {1, 2, 3};
  GraphPolicy keep;
  keep.duplicates = Duplicates::keep;
  const Graph graph = Graph::from_edges(edges, keep);
  write_shards(scratch / "out", graph, partition_graph(graph, {}), {"a", "b", "c", "d"});
  const std::string spec = "shards:" + scratch / "out";
  expect_same_graph(graph, load_graph(spec).graph);
  LoadOptions options;
  options.policy.duplicates = Duplicates::sum;
  EXPECT_EQ(load_graph(spec, options).graph.num_entries(), 3);
  options = {};
  options.policy.self_loops = SelfLoops::drop;
  EXPECT_EQ(summarise(load_graph(spec, options).graph).self_loops, 0);
  options = {};
  options.policy.isolated = Isolated::drop;
  EXPECT_THAT(load_graph(spec, options).names, ::testing::ElementsAre("a", "b"));
}

TEST(GraphSpecPoints, AreThoseOfTheNodesThatAreLeft) {
  LoadOptions options;
  EXPECT_FALSE(load_graph("grid:3x4", options).points.defined());
  options.points = true;
  const at::Tensor cells = load_graph("grid:3x4", options).points;
  EXPECT_TRUE(cells.equal(at::tensor({0., 0., 0., 1., 0., 2., 0., 3., 1., 0., 1., 1.,
                                      1., 2., 1., 3., 2., 0., 2., 1., 2., 2., 2., 3.},
                                     at::kFloat)
                              .view({12, 2})));
  EXPECT_TRUE(load_graph("torus:50,3", options).points.equal(torus_points(50)));
  EXPECT_EQ(load_graph("path:5", options).points.size(1), 1);
  EXPECT_FALSE(load_graph("karate", options).points.defined());
  const TemporaryFolder scratch;
  const std::string file = scratch.write("points.txt", "0 0 0\n1 0 0\n9 9 9\n8 8 8\n7 7 7\n");
  options.policy.components = Components::drop;
  const LoadedGraph kept = load_graph("knn:" + file + ",1", options);
  EXPECT_EQ(kept.points.size(0), kept.graph.num_nodes());
  EXPECT_EQ(kept.points[0][0].item<float>(), 9);
}

}  // namespace
}  // namespace topomask
