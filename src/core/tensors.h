// What error messages say about tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace topomask {

// "float32 [3, 4] on cpu", for error messages.
std::string describe(const at::Tensor& tensor);

bool is_index(const at::Tensor& tensor);  // int32 or int64

}  // namespace topomask
