// Which devices this build of the library can compute on.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace topomask {

// Whether the library holds CUDA kernels, and whether there is a GPU to run them on.
bool cuda_is_built();
bool cuda_is_available();

// "cpu", "cuda" or "cuda:1". Throws where the word is none of these, where the library was built without
// CUDA, or where there is no such GPU.
c10::Device parse_device(const std::string& word);

}  // namespace topomask
