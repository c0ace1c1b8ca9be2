#include <algorithm>
#include <cstring>

#include "support/expect_edges.h"
#include "support/temporary_folder.h"
#include "topomask/graph_io.h"

namespace topomask {
namespace {

using namespace topomask::testing;

void rejects_obj(std::string_view content, std::initializer_list<const char*> parts) {
  expect_rejected(read_obj, content, parts);
}
void rejects_ply(std::string_view content, std::initializer_list<const char*> parts) {
  expect_rejected(read_ply, content, parts);
}

TEST(obj, reads_each_side_once) {
  const EdgeList edges = read_obj(
      "# square\nmtllib x.mtl\nv 0 0 0\nv 1 0 0 1.0\nv 1 1 0 0.5 0.5 0.5\nvn 0 0 1\nv 0 1 0\nv 5 5 5\n"
      "f 1/1/1 2//2 3/3\nf 1 3 4\n",
      "file");
  EXPECT_EQ(edges.num_nodes, 5) << "the last vertex has no sides";
  EXPECT_FALSE(edges.directed);
  EXPECT_EQ(edges.source, (Ids{0, 0, 0, 1, 2}));
  EXPECT_EQ(edges.target, (Ids{1, 2, 3, 2, 3}));
  EXPECT_TRUE(edges.weight.empty());
}

TEST(obj, reads_relative_indices_lines_and_forward_references) {
  const EdgeList relative = read_obj("v 0 0 0\nv 1 0 0\nv 0 1 0\nf -3 -2 -1\n", "file");
  EXPECT_EQ(relative.source, (Ids{0, 0, 1}));
  EXPECT_EQ(read_obj("l 1 2 3\nv 0 0 0\nv 1 0 0\nv 0 1 0", "file").target, (Ids{1, 2}))
      << "a line is not closed";
}

TEST(obj, reads_continued_lines_comments_and_old_faces) {
  const std::string vertices = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0 # the last\n";
  for (const char* face : {"f 1 2 3 4", "f 1 2 \\\n 3 4", "f 1 2\\\r\n3\\\n4", "f 1 2 3 4 # a square",
                           "fo 1 2 3 4", "l 1 2 3 4 1", "f -4 -3 -2 -1", "f 1 2 3 4 \\"}) {
    SCOPED_TRACE(face);
    const EdgeList edges = read_obj(vertices + face, "file");
    EXPECT_EQ(edges.source, (Ids{0, 0, 1, 2}));
    EXPECT_EQ(edges.target, (Ids{1, 3, 2, 3}));
  }
  rejects_obj(vertices + "f 1 2 \\\n x\n", {"line 6", "'x'"});
  rejects_obj(vertices + "f 1\n", {"line 5", "at least 3"});
  rejects_obj(vertices + "f 1 2\n", {"line 5", "at least 3"});
  rejects_obj(vertices + "l 1\n", {"line 5", "at least 2"});
}

TEST(obj, rejects_malformed_files) {
  rejects_obj("", {"at least one vertex"});
  rejects_obj(binary_garbage(), {"line 1", "binary"});
  rejects_obj("hello world\n", {"at least one vertex"});
  rejects_obj("v 0 0\n", {"line 1", "three numbers"});
  rejects_obj("v 0 0 x\n", {"line 1", "three numbers"});
  rejects_obj("v 0 0 0\nf 1 1\n", {"line 2", "at least 3"});
  rejects_obj("v 0 0 0\nf 1 1 2\n", {"line 2", "from 1 to 1", "got 2"});
  rejects_obj("v 0 0 0\nf 1 1 0\n", {"line 2", "'0'"});
  rejects_obj("v 0 0 0\nf 1 1 -2\n", {"line 2", "'-2'"});
  rejects_obj("v 0 0 0\nf 1 1 /2\n", {"line 2", "'/2'"});
  rejects_obj("v 0 0 0\nf 1 1 9999999999\n", {"line 2", "'9999999999'"});
}

const std::string kAscii =
    "ply\nformat ascii 1.0\ncomment two triangles\nelement vertex 4\nproperty float x\nproperty float y\n"
    "property float z\nproperty uchar red\nelement face 2\nproperty list uchar int "
    "vertex_indices\nend_header\n";

TEST(ply, reads_ascii) {
  const EdgeList edges =
      read_ply(kAscii + "0 0 0 255\n1 0 0 0\n1 1 0 0\n0 1 0 0\n3 0 1 2\n3 0 2 3\n", "file");
  EXPECT_EQ(edges.num_nodes, 4);
  EXPECT_EQ(edges.source, (Ids{0, 0, 0, 1, 2}));
  EXPECT_EQ(edges.target, (Ids{1, 2, 3, 2, 3}));
}

// Appends numbers in the byte order of the file under construction.
class Bytes {
 public:
  explicit Bytes(bool big_endian) : big_endian_(big_endian) {}
  template <class T>
  Bytes& add(T value) {
    std::string raw(sizeof value, '\0');
    std::memcpy(raw.data(), &value, sizeof value);
    if (big_endian_) std::reverse(raw.begin(), raw.end());
    content_ += raw;
    return *this;
  }
  const std::string& content() const { return content_; }

 private:
  bool big_endian_;
  std::string content_;
};

std::string binary_mesh(bool big_endian) {
  Bytes body(big_endian);
  for (const float x : {0.0f, 1.5f, -2.0f, 3.0f, 4.0f})
    body.add(std::uint8_t{9}).add(double{0.25}).add(x).add(7.0f);
  body.add(std::uint16_t{2}).add(std::int16_t{-1}).add(std::int16_t{5});  // an element nobody knows
  body.add(std::uint8_t{4});
  for (const std::uint32_t corner : {0u, 1u, 2u, 3u}) body.add(corner);
  body.add(-1.0f);
  body.add(std::int32_t{4}).add(std::int32_t{0});
  return std::string("ply\r\nformat binary_") + (big_endian ? "big" : "little") +
         "_endian 1.0\r\nelement vertex 5\r\nproperty uchar tag\r\nproperty double z\r\nproperty float x\r\n"
         "property float y\r\nelement material 1\r\nproperty list ushort short tags\r\nelement face 1\r\n"
         "property list uint8 uint32 vertex_index\r\nproperty float quality\r\nelement edge 1\r\n"
         "property int vertex1\r\nproperty int vertex2\r\nend_header\r\n" +
         body.content();
}

TEST(ply, reads_both_binary_kinds_and_skips_what_it_does_not_know) {
  const TemporaryFolder folder;
  for (const bool big_endian : {false, true}) {
    const std::string content = binary_mesh(big_endian);
    const EdgeList edges = read_ply(content, "file");
    EXPECT_EQ(edges.num_nodes, 5);
    EXPECT_EQ(edges.source, (Ids{0, 0, 0, 1, 2}));
    EXPECT_EQ(edges.target, (Ids{1, 3, 4, 2, 3}));
    const Points points = read_points_file(folder.write("mesh.ply", content));
    EXPECT_EQ(points.count, 5);
    ASSERT_EQ(points.dimension, 3);
    EXPECT_EQ(std::vector<double>(points.coordinate.begin() + 3, points.coordinate.begin() + 6),
              (std::vector<double>{1.5, 7.0, 0.25}));
  }
}

// The header of an ascii mesh of `vertices` vertices and one more element.
std::string header_with(int vertices, const std::string& element) {
  return "ply\nformat ascii 1.0\nelement vertex " + std::to_string(vertices) +
         "\nproperty float x\nproperty float y\nproperty float z\n" + element + "end_header\n";
}

std::string points(int count) {
  std::string lines;
  for (int k = 0; k < count; ++k) lines += std::to_string(k) + " 0 0\n";
  return lines;
}

const std::string kStrips = "element tristrips 1\nproperty list int int vertex_indices\n";

TEST(ply, reads_triangle_strips) {
  // Two strips: the triangles 012, 123, 234 and 567.
  const EdgeList edges = read_ply(header_with(8, kStrips) + points(8) + "10 0 1 2 3 4 -1 5 6 7 -1\n", "file");
  EXPECT_EQ(edges.num_nodes, 8);
  EXPECT_EQ(edges.source, (Ids{0, 0, 1, 1, 2, 2, 3, 5, 5, 6}));
  EXPECT_EQ(edges.target, (Ids{1, 2, 2, 3, 3, 4, 4, 6, 7, 7}));
  const EdgeList open = read_ply(header_with(8, kStrips) + points(8) + "9 0 1 2 3 4 -1 5 6 7\n", "file");
  EXPECT_EQ(open.source, edges.source) << "the last strip may lack its -1";
  EXPECT_EQ(open.target, edges.target);
}

TEST(ply, strips_are_the_triangles_that_they_stand_for) {
  // Strips linked by degenerate triangles, as some writers do: what links them is no side of the mesh.
  const EdgeList linked = read_ply(header_with(6, kStrips) + points(6) + "8 0 1 2 2 3 3 4 5\n", "file");
  EXPECT_EQ(linked.source, (Ids{0, 0, 1, 3, 3, 4}));
  EXPECT_EQ(linked.target, (Ids{1, 2, 2, 4, 5, 5}));
  // A surface as faces and as strips.
  const std::string faces = "element face 4\nproperty list uchar int vertex_indices\n";
  const EdgeList polygons =
      read_ply(header_with(6, faces) + points(6) + "3 0 1 2\n3 2 1 3\n3 2 3 4\n3 4 3 5\n", "file");
  const EdgeList strips = read_ply(header_with(6, kStrips) + points(6) + "6 0 1 2 3 4 5\n", "file");
  EXPECT_EQ(polygons.source, strips.source);
  EXPECT_EQ(polygons.target, strips.target);
  // Strips of one or two vertices hold no triangle.
  EXPECT_TRUE(read_ply(header_with(4, kStrips) + points(4) + "7 -1 0 -1 1 2 -1 -1\n", "file").source.empty());
  rejects_ply(header_with(4, kStrips) + points(4) + "4 0 1 2 -2\n", {"line 14", "got -2"});
  rejects_ply(header_with(4, kStrips) + points(4) + "4 0 1 2 4\n", {"line 14", "0 to 3", "got 4"});
}

TEST(ply, reads_binary_strips) {
  for (const bool big_endian : {false, true}) {
    Bytes body(big_endian);
    for (int k = 0; k < 12; ++k) body.add(static_cast<float>(k));
    body.add(std::int32_t{6});
    for (const std::int32_t corner : {0, 1, 2, -1, 3, -1}) body.add(corner);
    const EdgeList edges =
        read_ply(std::string("ply\nformat binary_") + (big_endian ? "big" : "little") +
                     "_endian 1.0\nelement vertex 4\nproperty float x\nproperty float y\nproperty float z\n" +
                     kStrips + "end_header\n" + body.content(),
                 "file");
    EXPECT_EQ(edges.source, (Ids{0, 0, 1}));
    EXPECT_EQ(edges.target, (Ids{1, 2, 2}));
  }
}

TEST(ply, reads_lines) {
  const std::string lines = "element edge 2\nproperty list uchar int vertex_indices\n";
  const EdgeList edges = read_ply(header_with(4, lines) + points(4) + "3 0 1 2\n2 2 3\n", "file");
  EXPECT_EQ(edges.source, (Ids{0, 1, 2}));
  EXPECT_EQ(edges.target, (Ids{1, 2, 3}));
}

TEST(ply, sides_that_are_not_understood_are_an_error) {
  const TemporaryFolder folder;
  struct Case {
    std::string element, body;
    std::initializer_list<const char*> parts;
  };
  for (const Case& c : {
           Case{"element face 1\nproperty list uchar int corners\n", "3 0 1 2\n", {"'face'", "'corners'"}},
           Case{"element face 1\nproperty uchar red\n", "3\n", {"'face'", "'red'"}},
           Case{"element face 1\n", "", {"'face'"}},
           Case{
               "element tristrips 1\nproperty list int int strip\n", "3 0 1 2\n", {"'tristrips'", "'strip'"}},
           Case{"element edge 1\nproperty int vertex1\n", "0\n", {"'edge'", "vertex2"}},
           Case{"element edge 1\nproperty int from\nproperty int to\n", "0 1\n", {"'edge'", "'from to'"}},
           Case{"element triangle 1\nproperty int a\nproperty int b\n", "0 1\n", {"'triangle'", "knn:"}},
           Case{"element trifans 1\nproperty list int int vertex_indices\n", "3 0 1 2\n", {"'trifans'"}},
           Case{"element range_grid 3\nproperty list uchar int vertex_indices\n",
                "1 0\n0\n1 2\n",
                {"'range_grid'", "'vertex_indices'"}},
       }) {
    const std::string content = header_with(3, c.element) + points(3) + c.body;
    rejects_ply(content, c.parts);
    EXPECT_EQ(read_points_file(folder.write("a.ply", content)).count, 3) << "its vertices are still points";
  }
  // No such element at all, or an empty one, is a cloud of points; textures have vertices of their own.
  EXPECT_TRUE(read_ply(header_with(3, "") + points(3), "file").source.empty());
  EXPECT_TRUE(
      read_ply(header_with(3, "element face 0\nproperty list uchar int corners\n") + points(3), "file")
          .source.empty());
  EXPECT_TRUE(
      read_ply(
          header_with(3, "element multi_texture_face 1\nproperty list uchar int texture_vertex_indices\n") +
              points(3) + "1 0\n",
          "file")
          .source.empty());
}

TEST(mesh, without_edges_is_a_warning) {
  const TemporaryFolder folder;
  const std::string ply = folder.write("cloud.ply", header_with(3, "") + points(3));
  const EdgeList cloud = read_graph_file(ply);
  ASSERT_EQ(cloud.warnings.size(), 1u);
  EXPECT_EQ(cloud.warnings[0], ply + ": 3 nodes and no edges (knn:" + ply + " joins near vertices)");
  EXPECT_EQ(read_graph_file(folder.write("cloud.obj", "v 0 0 0\np 1\n")).warnings.size(), 1u);
  const std::string matrix = "%%MatrixMarket matrix coordinate pattern general\n3 3 0\n";
  const EdgeList empty = read_graph_file(folder.write("empty.mtx", matrix));
  ASSERT_EQ(empty.warnings.size(), 1u);
  EXPECT_EQ(empty.warnings[0].find("knn:"), std::string::npos);
  EXPECT_TRUE(read_graph_file(folder.write("line.obj", "v 0 0 0\nv 1 0 0\nl 1 2\n")).warnings.empty());
}

TEST(ply, rejects_bad_headers) {
  rejects_ply("", {"line 1", "'ply'"});
  rejects_ply("hello", {"line 1", "'ply'", "'hello'"});
  rejects_ply(binary_garbage(), {"line 1", "'ply'"});
  rejects_ply("ply\nformat ascii 1.0\n", {"inside the header"});
  rejects_ply("ply\nend_header\n", {"format"});
  rejects_ply("ply\nformat utf8 1.0\nend_header\n", {"line 2", "'utf8'"});
  rejects_ply("ply\nformat ascii 1.0\nelement vertex -1\n", {"line 3", "'-1'"});
  rejects_ply("ply\nformat ascii 1.0\nelement vertex 3000000000\n", {"line 3", "2147483647"});
  rejects_ply("ply\nformat ascii 1.0\nproperty float x\n", {"line 3"});
  rejects_ply("ply\nformat ascii 1.0\nelement vertex 1\nproperty real x\n", {"line 4", "'property real x'"});
  rejects_ply("ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nend_header\n0\n", {"x, y and z"});
  rejects_ply("ply\nformat ascii 1.0\nelement face 0\nend_header\n", {"at least one vertex"});
  rejects_ply("ply\nformat ascii 1.0\nelement vertex 1\nelement vertex 1\nend_header\n", {"line 4", "twice"});
  rejects_ply(header_with(3, "element edge 1\nproperty int vertex1\nproperty int vertex1\n"),
              {"line 9", "'vertex1'", "twice"});
}

TEST(ply, rejects_bad_bodies) {
  rejects_ply(kAscii + "0 0 0 255\n1 0 0 0\n", {"4 elements 'vertex'", "more than the file can hold"});
  rejects_ply(kAscii + "0 0 0 255\n1 0 0 0\n1 1 0 0\n0 1 0 0\n3 0 1 2\n",
              {"'face' 1 of 2", "end of the file"});
  rejects_ply(kAscii + "0 0 0 255\n1 0 0 0\n1 1 0 0\n0 1 0 0\n3 0 1 4\n3 0 2 3\n",
              {"line 16", "0 to 3", "got 4"});
  rejects_ply(kAscii + "0 0 0 255\n1 0 0 0\n1 1 0 0\n0 1 0 0\n3 0 1 -1\n3 0 2 3\n", {"line 16", "got -1"});
  rejects_ply(kAscii + "0 0 0 255\n1 0 0 0\n1 1 0 0\n0 1 0 0\n900000 0 1 2\n3 0 2 3\n",
              {"line 16", "900000"});
  rejects_ply(kAscii + "0 0 0 255\n1 0 0 0\n1 x 0 0\n0 1 0 0\n3 0 1 2\n3 0 2 3\n", {"line 14", "'vertex'"});
  const std::string huge =
      "ply\nformat binary_little_endian 1.0\nelement vertex 2000000000\nproperty float x\nproperty float y\n"
      "property float z\nend_header\n";
  rejects_ply(huge + "0123456789ab", {"2000000000", "more than the file can hold"});
  const std::string mesh = binary_mesh(false);
  for (std::size_t cut = 1; cut < 30; ++cut) {
    rejects_ply(std::string_view(mesh).substr(0, mesh.size() - cut), {"file"});
  }
}

}  // namespace
}  // namespace topomask
