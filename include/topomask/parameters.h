// The learned tensors of a model by name, for training and for loading from a file.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

namespace topomask {

enum class ParameterKind {
  weight,  // matrices: the only ones that decay
  plain,   // biases, norms, embeddings
  mask,    // of a mask: may have a learning rate of their own
};

struct NamedParameter {
  std::string name;
  at::Tensor tensor;  // a leaf that requires a gradient
  ParameterKind kind = ParameterKind::weight;
};

// Copies tensors into the parameters of the same names with `prefix` before them. Every name must be there
// with its shape; `path`, where the tensors come from, is named where it is not.
void load_parameters(const std::map<std::string, at::Tensor>& tensors, const std::string& path,
                     const std::string& prefix, const std::vector<NamedParameter>& parameters);

}  // namespace topomask
