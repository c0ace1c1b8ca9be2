#include "options/arrays.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_file.h>

#include <cstring>
#include <filesystem>

#include "core/check.h"
#include "io/files.h"
#include "io/npy_values.h"
#include "topomask/npy.h"

namespace topomask::cli {

at::Tensor read_array(const std::string& path) {
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 40;
  const NpyArray array = parse_npy(read_file(path, {.max_file_size = kLargest}), path);
  check(array.dtype == "<f4" || array.dtype == "<f8", "{}: expected float32 or float64, got dtype '{}'", path,
        array.dtype);
  at::Tensor tensor = at::empty(array.shape, array.dtype == "<f4" ? at::kFloat : at::kDouble);
  std::memcpy(tensor.mutable_data_ptr(), array.bytes.data(), array.bytes.size());
  return tensor;
}

at::Tensor map_array(const std::string& path) {
  std::error_code missing;
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(path, missing));
  if (missing || size == 0) return read_array(path);  // which says what is wrong
  const at::Tensor bytes = at::from_file(path, /*shared=*/false, size, at::kByte);
  const NpyHeader header = parse_npy_header(
      {reinterpret_cast<const char*>(bytes.const_data_ptr<std::uint8_t>()), static_cast<std::size_t>(size)},
      path);
  const auto offset = static_cast<std::int64_t>(header.data_offset);
  std::int64_t expected = header.dtype == "<f8" ? 8 : 4;
  for (const std::int64_t extent : header.shape) {
    if (extent <= 0 || expected > size / extent) return read_array(path);
    expected *= extent;
  }
  const bool plain = (header.dtype == "<f4" || header.dtype == "<f8") && !header.fortran_order &&
                     offset % 8 == 0 && expected == size - offset;
  if (!plain) return read_array(path);
  return bytes.narrow(0, offset, expected)
      .view(header.dtype == "<f4" ? at::kFloat : at::kDouble)
      .view(header.shape);
}

void write_array(const std::string& path, const at::Tensor& array) {
  const at::Tensor plain = array.contiguous();
  NpyArray content{plain.scalar_type() == at::kDouble ? "<f8" : "<f4", plain.sizes().vec(), {}};
  content.bytes.assign(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  write_file(path, format_npy(content));
}

}  // namespace topomask::cli
