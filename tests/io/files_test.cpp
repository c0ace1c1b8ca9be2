// Files as a whole: compression, extensions, points, what is written.
#include "io/files.h"
#include "support/expect_edges.h"
#include "support/temporary_folder.h"
#include "support/compressed.h"
#include "topomask/graph_io.h"
#include "topomask/npy.h"

namespace topomask {
namespace {

using namespace topomask::testing;

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
    expect_error([&] { read_file(path, 1000000); }, {path.c_str(), "1000000"});
  }
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
  EXPECT_EQ(mesh.coordinate, (Weights{1, 2, 3, 4, 5, 6}));
  NpyArray array{"<i2", {2, 1}, {}};
  array.bytes = {1, 0, -1, -1};
  const Points rows = read_points_file(folder.write("a.npy", format_npy(array)));
  EXPECT_EQ(rows.dimension, 1);
  EXPECT_EQ(rows.coordinate, (Weights{1, -1}));
  for (const char* table : {"x,y\n1,2.5\n3,4\n", "# c\n1;2.5\n\n3;4\n", "1 2.5\r\n3\t4\r\n"}) {
    const Points points = read_points_file(folder.write("a.csv", table));
    EXPECT_EQ(points.count, 2);
    EXPECT_EQ(points.dimension, 2);
    EXPECT_EQ(points.coordinate, (Weights{1, 2.5f, 3, 4}));
  }
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
  rejects("a.csv", "1,nan\n", {"line 1", "'nan'"});
  rejects("a.xyz", binary_garbage(), {"binary"});
  rejects("a.obj", "v 0 0 nan\n", {"vertex 0", "finite"});
  rejects("a.npy", format_npy({"<f4", {1}, std::string(4, '\0')}), {"(points, dimension)", "(1)"});
  rejects("a.npy", format_npy({"<U1", {1, 1}, std::string(4, '\0')}), {"numbers", "<U1"});
  expect_error([] { read_points_file("a.plyy"); }, {"a.plyy", ".npy", "did you mean '.ply'"});
}

TEST(node_ids, are_written_one_per_line) {
  const TemporaryFolder folder;
  write_node_ids(read_edge_list("7 3\n", "file"), folder / "ids.tsv");
  EXPECT_EQ(read_file(folder / "ids.tsv"), "0\t3\n1\t7\n");
  write_node_ids(read_edge_list("0 1\n", "file"), folder / "ids.tsv");
  EXPECT_EQ(read_file(folder / "ids.tsv"), "0\t0\n1\t1\n");
  EdgeList named;
  named.num_nodes = 1;
  named.names = {"a\tb\\c\nd"};
  write_node_ids(named, folder / "ids.tsv");
  EXPECT_EQ(read_file(folder / "ids.tsv"), "0\ta\\tb\\\\c\\nd\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1)
      << "no temporary file is left";
}

TEST(node_ids, a_path_that_cannot_be_written_is_one_sentence) {
  const TemporaryFolder folder;
  EdgeList edges;
  edges.num_nodes = 3;
  expect_error([&] { write_node_ids(edges, folder / "no/such/ids.tsv"); },
               {"no/such/ids.tsv", "No such file"});
  expect_error([&] { write_node_ids(edges, folder.path().string()); }, {"folder"});
  expect_error([&] { write_node_ids(edges, "/dev/full"); }, {"/dev/full", "No space left"});
}

}  // namespace
}  // namespace topomask
