#include <cstring>
#include <filesystem>
#include <limits>

#include "io/files.h"
#include "support/expect_edges.h"
#include "support/temporary_folder.h"
#include "topomask/graph_io.h"
#include "topomask/npy.h"

namespace topomask {
namespace {

using namespace topomask::testing;

std::map<std::string, NpyArray> read_archive(std::string_view content, const std::string& name) {
  return read_npz_arrays(content, name);
}

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.begin(), bytes.size());
  return bytes;
}

// A .npy content with a header of our choosing.
std::string npy(const std::string& header, const std::string& data, int version = 1) {
  std::string content = "\x93NUMPY";
  content += static_cast<char>(version);
  content += '\0';
  content += static_cast<char>(header.size() & 0xFF);
  content += static_cast<char>(header.size() >> 8);
  if (version > 1) content += std::string(2, '\0');
  return content + header + data;
}

void rejects(const std::string& content, std::initializer_list<const char*> parts) {
  expect_rejected(parse_npy, content, parts);
}

TEST(npy, what_is_written_is_read_again) {
  const std::vector<NpyArray> arrays{{"<f4", {2, 1}, bytes_of<float>({1.5f, -2.0f})},
                                     {"<i8", {3}, bytes_of<std::int64_t>({1, 2, 3})},
                                     {"|S3", {}, "csr"},
                                     {"|b1", {0, 5}, ""}};
  for (const NpyArray& array : arrays) {
    const std::string content = format_npy(array);
    EXPECT_EQ((content.size() - array.bytes.size()) % 64, 0u);
    const NpyArray again = parse_npy(content, "file");
    EXPECT_EQ(again.dtype, array.dtype);
    EXPECT_EQ(again.shape, array.shape);
    EXPECT_EQ(again.bytes, array.bytes);
  }
}

TEST(npy, reads_every_version_and_brings_fortran_order_into_c_order) {
  const std::string data = bytes_of<std::int16_t>({1, 2, 3, 4, 5, 6});
  for (const int version : {1, 2, 3}) {
    const NpyArray array =
        parse_npy(npy("{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }\n", data, version), "file");
    EXPECT_EQ(array.bytes, bytes_of<std::int16_t>({1, 3, 5, 2, 4, 6}));
  }
}

TEST(npy, rejects_malformed_arrays) {
  rejects("", {"expected a .npy array"});
  rejects(binary_garbage(), {"expected a .npy array"});
  rejects(npy("{}", "", 9), {"version", "9"});
  rejects(npy("{}", ""), {"descr, fortran_order and shape"});
  rejects(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,", ""), {"header"});
  rejects(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", ""), {"header"});
  rejects(npy("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", ""), {"header"});
  rejects(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "1234"), {"(2)", "4 bytes"});
  rejects(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "12345"), {"(1)", "5 bytes"});
  rejects(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", ""),
          {"4611686018427387904"});
  rejects(npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "pickle"), {"'|O'"});
  rejects(npy("{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", "1234"), {"'>f4'"});
  rejects(npy("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,)}", "1234"),
          {"[('a', '<i4')]"});
  rejects(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2, 2)}", std::string(32, 'x')),
          {"Fortran"});
  rejects(std::string("\x93NUMPY\x01\0\xFF\xFF{", 11), {"65535"});
}

TEST(npy, format_checks_that_bytes_match_the_shape) {
  expect_error([] { format_npy({"<f4", {2}, "1234"}); }, {"(2)", "4 bytes"});
}

TEST(npz, what_is_written_is_read_again_and_gives_the_same_bytes) {
  const TemporaryFolder folder;
  const NpyArray numbers{"<f8", {2}, bytes_of<double>({0.5, -1.0})};
  write_npz(folder / "a.npz", {{"numbers", numbers}, {"format", {"|S3", {}, "csr"}}});
  write_npz(folder / "b.npz", {{"numbers", numbers}, {"format", {"|S3", {}, "csr"}}});
  const std::string content = read_file(folder / "a.npz");
  EXPECT_EQ(content, read_file(folder / "b.npz"));
  const auto arrays = read_npz_arrays(content, "file");
  ASSERT_EQ(arrays.size(), 2u);
  EXPECT_EQ(arrays.at("numbers").bytes, numbers.bytes);
  EXPECT_EQ(arrays.at("format").bytes, "csr");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2)
      << "no temporary file is left";
}

TEST(npz, rejects_damaged_archives) {
  const TemporaryFolder folder;
  write_npz(folder / "a.npz", {{"numbers", {"<f8", {2}, bytes_of<double>({0.5, -1.0})}}});
  std::string content = read_file(folder / "a.npz");
  expect_rejected(read_archive, content.substr(0, content.size() / 2), {"zip"});
  expect_rejected(read_archive, binary_garbage(), {"zip"});
  const std::size_t data =
      content.find("NUMPY") + 122 + 3;  // inside the elements: the checksum no longer fits
  content[data] = static_cast<char>(content[data] + 1);
  expect_rejected(read_archive, content, {"'numbers'"});
}

TEST(npz, a_path_that_cannot_be_written_is_one_sentence) {
  const TemporaryFolder folder;
  const NpyArray array{"|u1", {1}, "x"};
  expect_error([&] { write_npz(folder / "no/such/folder.npz", {{"a", array}}); }, {"no/such/folder.npz"});
  expect_error([&] { write_npz(folder.path().string(), {{"a", array}}); }, {"folder"});
  expect_error([&] { write_npz("/dev/full", {{"a", array}}); }, {"/dev/full", "regular"});
}

TEST(npz, scipy_matrices_are_read_back_as_graphs) {
  const TemporaryFolder folder;
  const std::vector<std::int64_t> indptr{0, 1, 1, 3};
  const std::vector<std::int32_t> indices{2, 0, 1};
  const std::vector<float> data{0.5f, -2.0f, 4.0f};
  write_scipy_csr(folder / "m.npz", 3, 3, indptr, indices, std::span<const float>(data));
  const auto arrays = read_npz_arrays(read_file(folder / "m.npz"), "file");
  EXPECT_EQ(arrays.at("indptr").dtype, "<i4");
  EXPECT_EQ(arrays.at("indices").dtype, "<i4");
  EXPECT_EQ(arrays.at("format").dtype, "|S3");
  const EdgeList edges = read_graph_file(folder / "m.npz");
  EXPECT_TRUE(edges.directed);
  EXPECT_EQ(edges.source, (Ids{0, 2, 2}));
  EXPECT_EQ(edges.target, (Ids{2, 0, 1}));
  EXPECT_EQ(edges.weight, (Weights{0.5f, -2.0f, 4.0f}));
  const std::vector<double> wide(data.begin(), data.end());
  write_scipy_csr(folder / "d.npz", 3, std::int64_t{1} << 33, indptr, indices, std::span<const double>(wide));
  const auto wide_arrays = read_npz_arrays(read_file(folder / "d.npz"), "file");
  EXPECT_EQ(wide_arrays.at("indptr").dtype, "<i8") << "columns past 2^31 need wide indices";
  EXPECT_EQ(wide_arrays.at("indices").dtype, "<i8");
  EXPECT_EQ(wide_arrays.at("data").dtype, "<f8");
  expect_error(
      [&] { write_scipy_csr(folder / "x.npz", 2, 3, indptr, indices, std::span<const float>(data)); },
      {"2 x 3"});
}

}  // namespace
}  // namespace topomask
