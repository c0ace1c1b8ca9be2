// The reader of streams numbers and names nodes as the reader of whole files does.
#include "graph/io/edge_stream.h"

#include <random>
#include <set>

#include "support/expect_edges.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "topomask/graph_io.h"

namespace topomask {
namespace {

using namespace topomask::testing;

void expect_as_whole(std::string_view content) {
  const TemporaryFolder scratch;
  const std::string path = scratch.write("edges.txt", content);
  const EdgeList whole = read_edge_list(content, "file");
  for (const std::size_t buffer : {1u, 7u, 1u << 20}) {
    EdgeStreamOptions options;
    options.buffer_bytes = buffer;
    const EdgeStream stream(path, options);
    EXPECT_EQ(stream.num_nodes(), whole.num_nodes);
    EXPECT_EQ(stream.num_edges(), static_cast<std::int64_t>(whole.source.size()));
    EXPECT_EQ(stream.weighted(), !whole.weight.empty());
    ASSERT_EQ(stream.has_names(), !whole.names.empty());
    std::vector<std::int32_t> source, target;
    std::vector<float> weight;
    stream.for_each_edge([&](std::int32_t a, std::int32_t b, float w) {
      source.push_back(a);
      target.push_back(b);
      weight.push_back(w);
    });
    EXPECT_EQ(source, whole.source);
    EXPECT_EQ(target, whole.target);
    if (!whole.weight.empty()) {
      EXPECT_EQ(weight, whole.weight);
    }
    for (std::size_t i = 0; i < whole.names.size(); ++i) {
      std::string name;
      stream.append_name(static_cast<std::int32_t>(i), name);
      EXPECT_EQ(name, whole.names[i]);
    }
  }
}

TEST(edge_stream, reads_what_the_reader_of_whole_files_reads) {
  expect_as_whole("2 1\n0 1\n");
  expect_as_whole("3 1\n0 3\n");
  expect_as_whole("9000000000000000000 7\n7 +12\n");
  expect_as_whole("0 9223372036854775807\n");
  expect_as_whole("1 2\n2 3");
  expect_as_whole("# Nodes: 36 Edges: 2\n1 2\n2 3\n");
  expect_as_whole("# Nodes: 3 Edges: 2\n1 2\n2 3\n");
  expect_as_whole("source target\n0 1\n1 2\n");
  expect_as_whole("source,target,weight\na,b,1\nb,c,2.5\n");
  expect_as_whole("from;to\nx;y\n\"y;z\";x\n");
  expect_as_whole("a b\n");
  expect_as_whole(
      "\xEF\xBB\xBF"
      "0\t4\t1.5\r\n4 5 -1e3\r\n\r\n// end\r\n");
  expect_as_whole("0 5 6 1\n1 6 7 2\n");
  expect_as_whole("0 1\n1 x\n");  // words after all
  std::mt19937_64 random(1);
  for (const std::uint64_t range : {50u, 5000u, 10000000u}) {
    std::string text;
    for (int e = 0; e < 400; ++e)
      text += std::to_string(random() % range) + " " + std::to_string(random() % range) + "\n";
    expect_as_whole(text);
  }
}

TEST(edge_stream, a_changed_file_is_noticed) {
  const TemporaryFolder scratch;
  const std::string path = scratch.write("edges.txt", "0 1\n1 4\n");
  const EdgeStream stream(path);
  const auto again = [&](std::string_view content) {
    return [&, content] {
      scratch.write("edges.txt", content);
      stream.for_each_edge([](std::int32_t, std::int32_t, float) {});
    };
  };
  expect_error(again("0 1\n"), "changed while it was read");
  expect_error(again("0 1\n1 3\n"), "changed while it was read");
  expect_error(again("0 1\n1 4\n0 4\n"), "changed while it was read");
  expect_error(again("0 1 2\n1 4 2\n"), "changed while it was read");
}

TEST(id_set, ranks_and_places_are_inverse) {
  std::mt19937_64 random(5);
  for (const std::int64_t limit : {std::int64_t{0}, std::int64_t{1000}, std::int64_t{1} << 22}) {
    IdSet ids(limit);
    std::set<std::int64_t> expected;
    for (int i = 0; i < 200000; ++i) {
      const auto id = static_cast<std::int64_t>(random() % (std::uint64_t{1} << (1 + random() % 24)));
      ids.add(id);
      expected.insert(id);
    }
    ids.finish();
    ASSERT_EQ(ids.size(), static_cast<std::int64_t>(expected.size()));
    EXPECT_EQ(ids.largest(), *expected.rbegin());
    std::int64_t rank = 0;
    for (const std::int64_t id : expected) {
      ASSERT_EQ(ids.rank(id), rank) << id;
      ASSERT_EQ(ids.at(rank), id);
      ++rank;
    }
    EXPECT_EQ(ids.rank(*expected.rbegin() + 1), -1);
  }
}

}  // namespace
}  // namespace topomask
