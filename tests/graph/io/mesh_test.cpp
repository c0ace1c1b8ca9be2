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
    EXPECT_EQ(Weights(points.coordinate.begin() + 3, points.coordinate.begin() + 6),
              (Weights{1.5f, 7.0f, 0.25f}));
  }
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
