// Files as a whole: compression, extensions, points, what is written.
#include "io/files.h"

#include <cstring>

#include "io/memory.h"
#include "support/compressed.h"
#include "support/expect_edges.h"
#include "support/temporary_folder.h"
#include "topomask/graph_io.h"
#include "topomask/npy.h"

namespace topomask {
namespace {

using namespace topomask::testing;
using Coordinates = std::vector<double>;

TEST(files, decompresses_gzip_of_one_or_more_members) {
  const TemporaryFolder folder;
  const std::string large(3000000, 'x');
  EXPECT_EQ(read_file(folder.write("a.gz", gzip("0 1\n"))), "0 1\n");
  EXPECT_EQ(read_file(folder.write("b.GZ", gzip("0 1\n") + gzip("") + gzip("1 2\n"))), "0 1\n1 2\n");
  EXPECT_EQ(read_file(folder.write("c.gz", gzip(large) + std::string(512, '\0'))), large);
  EXPECT_EQ(read_file(folder.write("plain", gzip("x"))), gzip("x")) << "the extension decides";
}

TEST(files, decompresses_xz) {
  const TemporaryFolder folder;
  const std::string large(3000000, 'x');
  EXPECT_EQ(read_file(folder.write("a.xz", xz("0 1\n") + xz("1 2\n"))), "0 1\n1 2\n");
  EXPECT_EQ(read_file(folder.write("b.xz", xz(large))), large);
}

TEST(files, rejects_damaged_compression) {
  const TemporaryFolder folder;
  const auto rejects = [&](const std::string& name, const std::string& content, const char* reason) {
    const std::string path = folder.write(name, content);
    expect_error([&] { read_file(path); }, {name.c_str(), reason});
  };
  const std::string text = "a text of some length that does not repeat itself, 0123456789";
  for (const std::size_t cut : {std::size_t{1}, std::size_t{9}, gzip(text).size()}) {
    rejects("cut.gz", gzip(text).substr(0, gzip(text).size() - cut), "truncated");
  }
  for (const std::size_t cut : {std::size_t{1}, std::size_t{40}, xz(text).size()}) {
    rejects("cut.xz", xz(text).substr(0, xz(text).size() - cut), "truncated");
  }
  rejects("garbage.gz", binary_garbage(), "not valid gzip");
  rejects("garbage.xz", binary_garbage(), "not valid xz");
  rejects("tail.gz", gzip(text) + "tail", "gzip");
}

TEST(files, stops_at_the_limit) {
  const TemporaryFolder folder;
  const std::string large(5000000, 'x');
  for (const std::string& path :
       {folder.write("a", large), folder.write("a.gz", gzip(large)), folder.write("a.xz", xz(large))}) {
    expect_error([&] { read_file(path, {.max_file_size = 1000000}); },
                 {path.c_str(), "1000000", "max_file_size"});
    EXPECT_EQ(read_file(path, {.max_file_size = 5000000}).size(), large.size());
  }
}

TEST(files, what_a_file_may_unpack_to) {
  constexpr std::uint64_t kMega = 1 << 20, kGiga = 1 << 30;
  EXPECT_EQ(unpacked_limit(1000, {}, 64 * kGiga), 256 * kMega) << "always allowed";
  EXPECT_EQ(unpacked_limit(10 * kMega, {}, 64 * kGiga), 2000 * kMega) << "200 times its size";
  EXPECT_EQ(unpacked_limit(kGiga, {}, 64 * kGiga), 16 * kGiga) << "a quarter of the memory";
  EXPECT_EQ(unpacked_limit(1000, {}, 512 * kMega), 128 * kMega);
  EXPECT_EQ(unpacked_limit(UINT64_MAX, {}, UINT64_MAX), UINT64_MAX / 4);
  EXPECT_EQ(unpacked_limit(1000, {.max_file_size = 7}, kGiga), 7u);
  EXPECT_EQ(unpacked_limit(1000, {.max_file_size = 700 * kGiga}, kGiga), 700 * kGiga)
      << "on the caller's word";
  EXPECT_GT(available_memory(), kMega);
}

TEST(files, refuses_bombs) {
  const TemporaryFolder folder;
  // A hundredth of a megabyte a member; all of them unpack to 320 MiB of edges.
  std::string edges, bomb;
  while (edges.size() < std::size_t{1} << 24) edges += "0 1\n";
  const std::string member = gzip(edges);
  for (int k = 0; k < 20; ++k) bomb += member;
  const std::string path = folder.write("bomb.txt.gz", bomb);
  expect_error([&] { read_graph_file(path); }, {path.c_str(), "more than", "max_file_size"});
  const std::string small = folder.write("small.txt.xz", xz(edges));
  expect_error([&] { read_graph_file(small, {.max_file_size = 1 << 20}); }, {"small.txt.xz", "1048576"});
  const std::string points = folder.write("points.xyz.gz", member);
  expect_error([&] { read_points_file(points, {.max_file_size = 1 << 20}); }, {"points.xyz.gz", "1048576"});
}

TEST(files, refuses_archives_that_unpack_to_too_much) {
  const TemporaryFolder folder;
  NpyArray array{"<i8", {1 << 20, 2}, std::string(std::size_t{1} << 24, '\0')};
  const std::string bomb = zip_of("edges.npy", format_npy(array));
  ASSERT_LT(bomb.size(), std::size_t{1} << 16);
  EXPECT_EQ(read_npz(bomb, "file").source.size(), std::size_t{1} << 20);
  const std::string path = folder.write("bomb.npz", bomb);
  expect_error([&] { read_graph_file(path, {.max_file_size = 1 << 20}); },
               {path.c_str(), "'edges'", "1048576", "max_file_size"});
  expect_error([&] { read_npz_arrays(bomb, "file", {.max_file_size = 1 << 20}); }, {"file", "max_file_size"});
  // What is declared must be plausible before it is unpacked.
  std::string forged = bomb;
  for (const std::size_t at : {std::size_t{22}, forged.find("PK\1\2") + 24})
    forged.replace(at, 4, "\xff\xff\xff\x7f");
  expect_error([&] { read_npz(forged, "file"); }, {"declares 2147483647 bytes"});
}

TEST(files, says_why_a_file_cannot_be_read) {
  const TemporaryFolder folder;
  expect_error([&] { read_file(folder / "missing.txt"); }, {"missing.txt", "No such file"});
  expect_error([&] { read_file(folder.path().string()); }, {"directory"});
}

TEST(files, chooses_the_reader_by_extension) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_graph_file(folder.write("a.TSV", "0\t1\n")).num_nodes, 2);
  EXPECT_EQ(read_graph_file(folder.write("a.edges", "0 1\n")).num_nodes, 2);
  EXPECT_EQ(read_graph_file(folder.write("a.csv.gz", gzip("0,1\n"))).num_nodes, 2);
  EXPECT_EQ(read_graph_file(folder.write("a.gml.xz", xz("graph [ node [ id 0 ] ]"))).num_nodes, 1);
  EXPECT_EQ(read_graph_file(folder.write("a.obj", "v 0 0 0\n")).num_nodes, 1);
  EXPECT_EQ(
      read_graph_file(folder.write("a.mtx", "%%MatrixMarket matrix coordinate pattern general\n3 3 0\n"))
          .num_nodes,
      3);
  expect_error([] { read_graph_file("a.gmll"); }, {"a.gmll", ".mtx", ".ply", "did you mean '.gml'"});
  expect_error([] { read_graph_file("graph"); }, {"'graph'", ".mtx"});
  expect_error([] { read_graph_file("a.gz"); }, {"a.gz", ".mtx"});
  const std::string path = folder.write("bad.txt", "0 1\n1\n");
  expect_error([&] { read_graph_file(path); }, {path.c_str(), "line 2"});
}

TEST(points, reads_meshes_arrays_and_tables) {
  const TemporaryFolder folder;
  const Points mesh = read_points_file(folder.write("a.obj.gz", gzip("v 1 2 3\nv 4 5 6\n")));
  EXPECT_EQ(mesh.count, 2);
  EXPECT_EQ(mesh.dimension, 3);
  EXPECT_EQ(mesh.coordinate, (Coordinates{1, 2, 3, 4, 5, 6}));
  NpyArray array{"<i2", {2, 1}, {}};
  array.bytes = {1, 0, -1, -1};
  const Points rows = read_points_file(folder.write("a.npy", format_npy(array)));
  EXPECT_EQ(rows.dimension, 1);
  EXPECT_EQ(rows.coordinate, (Coordinates{1, -1}));
  for (const char* table : {"x,y\n1,2.5\n3,4\n", "# c\n1;2.5\n\n3;4\n", "1 2.5\r\n3\t4\r\n"}) {
    const Points points = read_points_file(folder.write("a.csv", table));
    EXPECT_EQ(points.count, 2);
    EXPECT_EQ(points.dimension, 2);
    EXPECT_EQ(points.coordinate, (Coordinates{1, 2.5, 3, 4}));
  }
}

TEST(points, keep_the_precision_of_the_file) {
  // Metres of a map: as floats they would be rounded to half a metre.
  const TemporaryFolder folder;
  const double east = 5412345.123456789, north = 1e7 + 0.25;
  NpyArray array{"<f8", {1, 2}, std::string(16, '\0')};
  std::memcpy(array.bytes.data(), &east, 8);
  std::memcpy(array.bytes.data() + 8, &north, 8);
  const Coordinates expected{east, north};
  EXPECT_EQ(read_points_file(folder.write("a.npy", format_npy(array))).coordinate, expected);
  EXPECT_EQ(read_points_file(folder.write("a.csv", "5412345.123456789,10000000.25\n")).coordinate, expected);
  const Coordinates solid{east, north, 0};
  EXPECT_EQ(read_points_file(folder.write("a.obj", "v 5412345.123456789 10000000.25 0\n")).coordinate, solid);
  EXPECT_EQ(read_points_file(folder.write("a.ply",
                                          "ply\nformat ascii 1.0\nelement vertex 1\nproperty double x\n"
                                          "property double y\nproperty double z\nend_header\n"
                                          "5412345.123456789 10000000.25 0\n"))
                .coordinate,
            solid);
}

TEST(points, rejects_malformed_files) {
  const TemporaryFolder folder;
  const auto rejects = [&](const std::string& name, std::string_view content,
                           std::initializer_list<const char*> parts) {
    const std::string path = folder.write(name, content);
    expect_error([&] { read_points_file(path); }, {path.c_str()});
    expect_error([&] { read_points_file(path); }, parts);
  };
  rejects("a.csv", "", {"at least one point"});
  rejects("a.csv", "1,2\n3\n", {"line 2", "2 numbers"});
  rejects("a.csv", "1,2\n3,x\n", {"line 2", "'x'"});
  rejects("a.csv", "1,1e39\n", {"line 1", "'1e39'"});
  rejects("a.csv", "1,nan\n", {"line 1", "'nan'"});
  rejects("a.xyz", binary_garbage(), {"binary"});
  rejects("a.obj", "v 0 0 nan\n", {"vertex 0", "finite"});
  rejects("a.npy", format_npy({"<f4", {1}, std::string(4, '\0')}), {"(points, dimension)", "(1)"});
  rejects("a.npy", format_npy({"<U1", {1, 1}, std::string(4, '\0')}), {"numbers", "<U1"});
  expect_error([] { read_points_file("a.plyy"); }, {"a.plyy", ".npy", "did you mean '.ply'"});
}

TEST(node_ids, are_written_one_per_line) {
  const TemporaryFolder folder;
  write_node_ids(2, {"3", "7"}, folder / "ids.tsv");
  EXPECT_EQ(read_file(folder / "ids.tsv"), "0\t3\n1\t7\n");
  write_node_ids(2, {}, folder / "ids.tsv");
  EXPECT_EQ(read_file(folder / "ids.tsv"), "0\t0\n1\t1\n");
  write_node_ids(1, {"a\tb\\c\nd"}, folder / "ids.tsv");
  EXPECT_EQ(read_file(folder / "ids.tsv"), "0\ta\\tb\\\\c\\nd\n");
  expect_error([&] { write_node_ids(2, {"a"}, folder / "ids.tsv"); }, {"each of 2 nodes", "got 1"});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1)
      << "no temporary file is left";
}

TEST(node_ids, a_path_that_cannot_be_written_is_one_sentence) {
  const TemporaryFolder folder;
  expect_error([&] { write_node_ids(3, {}, folder / "no/such/ids.tsv"); },
               {"no/such/ids.tsv", "No such file"});
  expect_error([&] { write_node_ids(3, {}, folder.path().string()); }, {"folder"});
  expect_error([&] { write_node_ids(3, {}, "/dev/full"); }, {"/dev/full", "No space left"});
}

}  // namespace
}  // namespace topomask
