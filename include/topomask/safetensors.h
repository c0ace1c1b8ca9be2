// Named tensors in one file, in the safetensors format, to exchange parameters between C++ and Python.
//
// read_safetensors reads a state dict saved by `safetensors.torch.save_file`, and
// `safetensors.torch.load_file` reads what write_safetensors writes. Unlike a pickle, such a file contains
// nothing executable.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace topomask {

struct SafetensorsFile {
  // By parameter name ("blocks.0.qkv.weight"); on the CPU, contiguous.
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Every size in the header is checked against the bytes that are there before anything is allocated.
SafetensorsFile read_safetensors(const std::string& path);

// Tensors on any device and of any strides. The file appears under its path whole or not at all, and is on
// the disk when this returns. The same tensors give the same bytes.
void write_safetensors(const std::string& path, const SafetensorsFile& file);

}  // namespace topomask
