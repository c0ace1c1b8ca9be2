// Tensors from and to NumPy's .npy files.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace topomask::cli {

at::Tensor read_array(const std::string& path);  // float32 or float64
// The same, but maps the file, so that ranks read only their own rows. The file must not change meanwhile.
at::Tensor map_array(const std::string& path);
void write_array(const std::string& path, const at::Tensor& array);

}  // namespace topomask::cli
