#include <cstring>
#include <limits>

#include "io/files.h"
#include "support/expect_edges.h"
#include "support/temporary_folder.h"
#include "topomask/graph_io.h"
#include "topomask/npy.h"

namespace topomask {
namespace {

using namespace topomask::testing;
using Arrays = std::vector<std::pair<std::string, NpyArray>>;

template <class T>
NpyArray array(const char* dtype, std::vector<T> values, std::vector<std::int64_t> shape = {}) {
  if (shape.empty()) shape = {static_cast<std::int64_t>(values.size())};
  NpyArray result{dtype, shape, std::string(values.size() * sizeof(T), '\0')};
  if (!values.empty()) std::memcpy(result.bytes.data(), values.data(), result.bytes.size());
  return result;
}

NpyArray ints(std::vector<std::int32_t> values) {
  return array("<i4", std::move(values));
}
NpyArray longs(std::vector<std::int64_t> values, std::vector<std::int64_t> shape = {}) {
  return array("<i8", std::move(values), std::move(shape));
}
NpyArray floats(std::vector<float> values) {
  return array("<f4", std::move(values));
}
NpyArray text(const std::string& value) {
  return {"|S" + std::to_string(value.size()), {}, value};
}

std::string archive(const Arrays& arrays) {
  const TemporaryFolder folder;
  write_npz(folder / "a.npz", arrays);
  return read_file(folder / "a.npz");
}

EdgeList read_content(std::string_view content, const std::string& name) {
  return read_npz(content, name);
}

EdgeList read(const Arrays& arrays) {
  return read_npz(archive(arrays), "file");
}

void rejects(const Arrays& arrays, std::initializer_list<const char*> parts) {
  expect_rejected(read_content, archive(arrays), parts);
}

TEST(npz_graph, reads_scipy_csr_csc_and_coo) {
  const Arrays common{{"shape", longs({3, 3})}, {"data", floats({1.0f, 2.0f, 3.0f})}};
  const auto with = [&](Arrays arrays) {
    arrays.insert(arrays.end(), common.begin(), common.end());
    return read(arrays);
  };
  const EdgeList csr =
      with({{"format", text("csr")}, {"indptr", ints({0, 2, 2, 3})}, {"indices", ints({0, 1, 1})}});
  EXPECT_TRUE(csr.directed);
  EXPECT_EQ(csr.num_nodes, 3);
  EXPECT_EQ(csr.source, (Ids{0, 0, 2}));
  EXPECT_EQ(csr.target, (Ids{0, 1, 1}));
  EXPECT_EQ(csr.weight, (Weights{1.0f, 2.0f, 3.0f}));
  const EdgeList csc =
      with({{"format", text("csc")}, {"indptr", ints({0, 2, 2, 3})}, {"indices", ints({0, 1, 1})}});
  EXPECT_EQ(csc.source, (Ids{0, 1, 1}));
  EXPECT_EQ(csc.target, (Ids{0, 0, 2}));
  const EdgeList coo = with({{"format", text("coo")}, {"row", longs({0, 0, 2})}, {"col", longs({0, 1, 1})}});
  EXPECT_EQ(coo.source, csr.source);
  EXPECT_EQ(coo.target, csr.target);
}

TEST(npz_graph, a_symmetric_scipy_matrix_is_undirected) {
  const Arrays symmetric{{"format", text("coo")},
                         {"shape", longs({3, 3})},
                         {"row", ints({0, 1, 2})},
                         {"col", ints({1, 0, 2})},
                         {"data", array<double>("<f8", {0.5, 0.5, 1.0})}};
  const EdgeList edges = read(symmetric);
  EXPECT_FALSE(edges.directed);
  EXPECT_EQ(edges.source, (Ids{0, 2}));
  EXPECT_EQ(edges.target, (Ids{1, 2}));
}

TEST(npz_graph, reads_adjacency_archives_with_names) {
  NpyArray names{"<U2", {3}, std::string(24, '\0')};
  for (const auto& [place, letter] : {std::pair(0, U'a'), {8, U'\u00fc'}, {12, U'x'}, {16, U'\U0001F600'}}) {
    std::memcpy(names.bytes.data() + place, &letter, 4);
  }
  const EdgeList edges = read({{"adj_data", floats({1, 1})},
                               {"adj_indices", ints({1, 0})},
                               {"adj_indptr", ints({0, 1, 1, 2})},
                               {"adj_shape", longs({3, 3})},
                               {"node_names", names}});
  EXPECT_FALSE(edges.directed);
  EXPECT_EQ(edges.num_nodes, 3);
  EXPECT_EQ(edges.source, (Ids{0, 2}));
  EXPECT_EQ(edges.target, (Ids{1, 0}));
  EXPECT_EQ(edges.names, (Names{"a", "\u00fcx", "\U0001F600"}));
}

TEST(npz_graph, the_rows_of_node_labels_are_the_nodes_of_edges) {
  const NpyArray edges = longs({0, 1, 1, 3}, {2, 2});
  const EdgeList labelled = read({{"edges", edges}, {"node_labels", longs({0, 0, 0, 0, 0, 0})}});
  EXPECT_EQ(labelled.num_nodes, 6);
  EXPECT_FALSE(labelled.directed);
  EXPECT_EQ(labelled.source, (Ids{0, 1}));
  EXPECT_EQ(labelled.target, (Ids{1, 3}));
  EXPECT_EQ(read({{"edges", edges}, {"node_features", longs({1, 2, 3, 4, 5}, {5, 1})}}).num_nodes, 5);
  EXPECT_EQ(read({{"edges", edges}}).num_nodes, 4);
  rejects({{"edges", edges}, {"node_labels", longs({0, 0, 0})}}, {"'edges'", "0 to 2", "got 3"});
}

TEST(npz_graph, reads_what_numpy_and_scipy_write) {
  for (const char* kind : {"csr", "csc", "coo"}) {
    SCOPED_TRACE(kind);
    const EdgeList edges = read_graph_file(TOPOMASK_SEEDS + std::string(kind) + ".npz");
    EXPECT_EQ(edges.num_nodes, 3);
    EXPECT_FALSE(edges.directed);
    EXPECT_EQ(edges.source, (Ids{0, 2}));
    EXPECT_EQ(edges.target, (Ids{1, 2}));
    EXPECT_EQ(edges.weight, (Weights{1.0f, 2.5f}));
  }
  EXPECT_EQ(read_graph_file(TOPOMASK_SEEDS "adjacency.npz").names, (Names{"a", "bc", "\u00fc"}));
}

TEST(npz_graph, pickled_arrays_are_left_out) {
  EXPECT_EQ(read_graph_file(TOPOMASK_SEEDS "edges.npz").num_nodes, 4);
  const auto arrays = read_npz_arrays(read_file(TOPOMASK_SEEDS "edges.npz"), "file");
  EXPECT_TRUE(arrays.contains("edges"));
  EXPECT_FALSE(arrays.contains("node_names"));
}

TEST(npz_graph, rejects_sizes_that_an_entry_cannot_unfold_to) {
  std::string content = archive({{"edges", longs({0, 1}, {1, 2})}});
  const std::size_t directory = content.find("PK\x01\x02");
  ASSERT_NE(directory, std::string::npos);
  constexpr std::size_t kSizeAt = 24;  // the uncompressed size in the central directory
  content.replace(directory + kSizeAt, 4, std::string("\xFF\xFF\xFF\x7F", 4));
  expect_rejected(read_content, content, {"'edges'", "2147483647"});
}

TEST(npz_graph, rejects_what_is_no_graph) {
  expect_rejected(read_content, "", {"empty"});
  expect_rejected(read_content, binary_garbage(), {"zip"});
  rejects({{"weights", floats({1})}}, {"'weights'"});
  rejects({{"format", text("bsr")}, {"shape", longs({1, 1})}}, {"'format'", "'bsr'"});
  rejects({{"format", floats({1})}, {"shape", longs({1, 1})}}, {"'format'", "strings"});
  rejects({{"format", text("csr")}, {"shape", longs({2, 3})}}, {"'shape'", "square", "(2, 3)"});
  rejects({{"format", text("csr")}, {"shape", longs({1L << 40, 1L << 40})}}, {"'shape'", "2147483647"});
  rejects({{"format", text("csr")}, {"shape", longs({2, 2})}}, {"'indices'"});
  rejects({{"edges", longs({0, 1, 2}, {1, 3})}}, {"'edges'", "(edges, 2)", "(1, 3)"});
  rejects({{"edges", array<float>("<f4", {0, 1}, {1, 2})}}, {"'edges'", "integers", "<f4"});
  rejects({{"edges", longs({0, -1}, {1, 2})}}, {"'edges'", "got -1"});
  rejects({{"edges", longs({0, 1L << 40}, {1, 2})}}, {"'edges'", "2147483647"});
  rejects({{"edges", longs({0, 2000000000}, {1, 2})}}, {"'edges'", "plausible"});
}

TEST(npz_graph, rejects_inconsistent_csr) {
  const auto csr = [](NpyArray indptr, NpyArray indices, NpyArray data) {
    return Arrays{{"format", text("csr")},
                  {"shape", longs({2, 2})},
                  {"indptr", std::move(indptr)},
                  {"indices", std::move(indices)},
                  {"data", std::move(data)}};
  };
  EXPECT_EQ(read(csr(ints({0, 1, 2}), ints({1, 0}), floats({1, 1}))).source, (Ids{0}));
  rejects(csr(ints({0, 1}), ints({1, 0}), floats({1, 1})), {"'indptr'", "3 pointers"});
  rejects(csr(ints({}), ints({}), floats({})), {"'indptr'", "3 pointers"});
  rejects(csr(ints({0, 3, 2}), ints({1, 0}), floats({1, 1})), {"'indptr'", "never decrease"});
  rejects(csr(ints({0, -1, 2}), ints({1, 0}), floats({1, 1})), {"'indptr'", "never decrease"});
  rejects(csr(ints({0, 1, 5}), ints({1, 0}), floats({1, 1})), {"'indptr'", "to 2"});
  rejects(csr(ints({0, 1, 2}), ints({1, 2}), floats({1, 1})), {"'indices'", "0 to 1", "got 2"});
  rejects(csr(ints({0, 1, 2}), ints({1, -1}), floats({1, 1})), {"'indices'", "got -1"});
  rejects(csr(ints({0, 1, 2}), ints({1, 0}), floats({1})), {"'data'", "2 values"});
  rejects(csr(ints({0, 1, 2}), ints({1, 0}), floats({1, std::numeric_limits<float>::quiet_NaN()})),
          {"'data'", "finite", "place 1"});
}

}  // namespace
}  // namespace topomask
