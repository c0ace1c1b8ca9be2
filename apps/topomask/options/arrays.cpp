#include "options/arrays.h"

#include <ATen/ops/empty.h>

#include <cstring>

#include "core/check.h"
#include "io/files.h"
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

void write_array(const std::string& path, const at::Tensor& array) {
  const at::Tensor plain = array.contiguous();
  NpyArray content{plain.scalar_type() == at::kDouble ? "<f8" : "<f4", plain.sizes().vec(), {}};
  content.bytes.assign(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  write_file(path, format_npy(content));
}

}  // namespace topomask::cli
