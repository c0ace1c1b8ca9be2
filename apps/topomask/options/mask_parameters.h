// The parameters of a mask in a file: the state dict that the Python package writes and reads.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "topomask/mask_catalogue.h"

namespace topomask::cli {

class MaskFile {
 public:
  MaskFile(const std::string& path, c10::Device device);  // an empty path: no file
  // The tensor of that name, or of one that ends in it; there must be exactly one.
  at::Tensor take(const std::string& name);
  // Throws where the file holds more than was taken.
  void check_all_taken() const;

 private:
  std::string path_;
  c10::Device device_;
  std::map<std::string, at::Tensor> stored_;
};

void write_mask_parameters(const std::string& path, const MaskInfo& info, const Mask& mask);

}  // namespace topomask::cli
