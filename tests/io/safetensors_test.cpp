#include "topomask/safetensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "io/files.h"
#include "support/expect_edges.h"
#include "support/temporary_folder.h"
#include "topomask/graph_io.h"

namespace topomask {
namespace {

using namespace topomask::testing;

constexpr at::ScalarType kAllTypes[] = {at::kBool,
                                        at::kByte,
                                        at::kChar,
                                        at::kFloat8_e4m3fn,
                                        at::kFloat8_e4m3fnuz,
                                        at::kFloat8_e5m2,
                                        at::kFloat8_e5m2fnuz,
                                        at::kUInt16,
                                        at::kShort,
                                        at::kHalf,
                                        at::kBFloat16,
                                        at::kUInt32,
                                        at::kInt,
                                        at::kFloat,
                                        at::kUInt64,
                                        at::kLong,
                                        at::kDouble,
                                        at::kComplexFloat};

// The numbers 0 to 5 in every type, with names in an order that is not that of their sizes.
SafetensorsFile every_type() {
  SafetensorsFile file;
  for (const at::ScalarType type : kAllTypes) {
    file.tensors[std::string("layer.") + c10::toString(type)] = at::arange(6).reshape({2, 3}).to(type);
  }
  file.tensors["scalar"] = at::scalar_tensor(1.5);
  file.tensors["empty"] = at::zeros({0, 4});
  file.metadata = {{"format", "pt"}, {"note", "größer"}};
  return file;
}

void expect_same(const SafetensorsFile& got, const SafetensorsFile& expected) {
  EXPECT_EQ(got.metadata, expected.metadata);
  ASSERT_EQ(got.tensors.size(), expected.tensors.size());
  for (const auto& [name, tensor] : expected.tensors) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(got.tensors.contains(name));
    const at::Tensor& other = got.tensors.at(name);
    EXPECT_EQ(other.scalar_type(), tensor.scalar_type());
    ASSERT_EQ(other.sizes(), tensor.sizes());
    // memcmp takes no null, which is where nothing lies.
    EXPECT_TRUE(tensor.numel() == 0 ||
                std::memcmp(other.const_data_ptr(), tensor.const_data_ptr(), tensor.nbytes()) == 0);
  }
}

TEST(safetensors, what_is_written_is_read_again_and_gives_the_same_bytes) {
  const TemporaryFolder folder;
  write_safetensors(folder / "a.safetensors", every_type());
  write_safetensors(folder / "b.safetensors", every_type());
  EXPECT_EQ(read_file(folder / "a.safetensors"), read_file(folder / "b.safetensors"));
  expect_same(read_safetensors(folder / "a.safetensors"), every_type());
  write_safetensors(folder / "none.safetensors", {});
  EXPECT_TRUE(read_safetensors(folder / "none.safetensors").tensors.empty());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 3)
      << "no temporary file is left";
}

TEST(safetensors, strided_tensors_and_parameters_are_written_as_they_look) {
  const TemporaryFolder folder;
  const at::Tensor wide = at::arange(12.0).reshape({3, 4});
  at::Tensor parameter = at::arange(3.0).requires_grad_();
  write_safetensors(
      folder / "a",
      {{{"transposed", wide.t()}, {"column", wide.select(1, 2)}, {"parameter", parameter}}, {}});
  const SafetensorsFile file = read_safetensors(folder / "a");
  EXPECT_TRUE(at::equal(file.tensors.at("transposed"), wide.t()));
  EXPECT_TRUE(at::equal(file.tensors.at("column"), wide.select(1, 2)));
  EXPECT_TRUE(at::equal(file.tensors.at("parameter"), parameter));
}

// The official Python package reads our file, checks the numbers, and writes another one for us to read.
TEST(safetensors, agrees_with_the_python_package_in_both_directions) {
  if (std::system(TOPOMASK_PYTHON " -c 'import safetensors' 2>/dev/null") != 0) {
    GTEST_SKIP() << TOPOMASK_PYTHON " has no safetensors";
  }
  const TemporaryFolder folder;
  write_safetensors(folder / "ours", every_type());
  const std::string script = folder.write("check.py", R"(
import sys, torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
ours, theirs = sys.argv[1:]
tensors = load_file(ours)
numbers = torch.arange(6).reshape(2, 3)
layers = {name: tensor for name, tensor in tensors.items() if name.startswith("layer.")}
assert len(layers) == 18, len(layers)
for name, tensor in layers.items():
    assert torch.equal(tensor.to(torch.complex64), numbers.to(tensor.dtype).to(torch.complex64)), name
assert tensors["scalar"].shape == () and tensors["scalar"] == 1.5
assert tensors["empty"].shape == (0, 4)
with safe_open(ours, "pt") as file:
    metadata = file.metadata()
assert metadata == {"format": "pt", "note": "größer"}, metadata
save_file(tensors, theirs, metadata)
)");
  const std::string command =
      std::string(TOPOMASK_PYTHON) + " " + script + " " + (folder / "ours") + " " + (folder / "theirs");
  ASSERT_EQ(std::system(command.c_str()), 0);
  expect_same(read_safetensors(folder / "theirs"), every_type());
}

TEST(safetensors, files_that_cannot_be_read_are_one_sentence) {
  const TemporaryFolder folder;
  expect_error([&] { read_safetensors(folder / "none"); }, {"none", "No such file"});
  expect_error([&] { read_safetensors(folder.path().string()); }, {"regular file"});
  expect_error([&] { read_safetensors(folder.write("text", "hello")); }, {"text", "5 bytes"});
  write_safetensors(folder / "whole", every_type());
  const std::string content = read_file(folder / "whole");
  expect_error([&] { read_safetensors(folder.write("cut", content.substr(0, content.size() - 1))); },
               {"cut"});
}

TEST(safetensors, tensors_that_cannot_be_written_are_one_sentence) {
  const TemporaryFolder folder;
  expect_error(
      [&] {
        write_safetensors(folder / "a", {{{"z", at::zeros({1}, at::kComplexDouble)}}, {}});
      },
      {"'z'", "ComplexDouble"});
  expect_error(
      [&] {
        write_safetensors(folder / "a", {{{"s", at::zeros({2, 2}).to_sparse()}}, {}});
      },
      {"'s'", "sparse"});
  expect_error([&] { write_safetensors(folder / "a", {{{"u", at::Tensor()}}, {}}); }, {"'u'"});
  expect_error([&] { write_safetensors(folder / "no/folder", every_type()); }, {"no/folder"});
  expect_error([&] { write_safetensors("/dev/full", every_type()); }, {"/dev/full", "No space left"});
}

TEST(safetensors, a_write_that_fails_leaves_the_old_file) {
  const TemporaryFolder folder;
  write_safetensors(folder / "a", every_type());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler =
      std::signal(SIGXFSZ, SIG_IGN);  // then writing past the limit is an error, as on a full disk
  const rlimit small{1 << 16, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error(
      [&] {
        write_safetensors(folder / "a", {{{"large", at::zeros({1 << 16})}}, {}});
      },
      {"cannot write"});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  expect_same(read_safetensors(folder / "a"), every_type());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace topomask
