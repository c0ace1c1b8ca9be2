// The learnable parameters of a mask as a file: the state dict of the mask of the same kind in the Python
// package.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <map>
#include <string>

namespace topomask::cli {

class MaskParameters {
 public:
  // Reads a safetensors file; an empty path stands for none. Parameters are taken to the device.
  MaskParameters(const std::string& path, c10::Device device);

  // The parameter of one of these names (the first is the one that is written), [heads] or [heads, ...], from
  // the file; without a file the default. A name in the file may have a prefix, "mask.f", as long as there is
  // one such name.
  at::Tensor take(std::initializer_list<const char*> names, const at::Tensor& otherwise);

  // Throws if the file held a parameter that was not taken: it belongs to another kind of mask.
  void check_all_taken() const;

  void write(const std::string& path) const;  // what was taken

 private:
  std::string path_;
  c10::Device device_;
  std::map<std::string, at::Tensor> stored_, taken_;
};

}  // namespace topomask::cli
