#include "topomask/parameters.h"

#include <ATen/core/grad_mode.h>
#include <torch/types.h>

#include "train/checkpoint_file.h"

namespace topomask {

void load_parameters(const std::map<std::string, at::Tensor>& tensors, const std::string& path,
                     const std::string& prefix, const std::vector<NamedParameter>& parameters) {
  const at::NoGradGuard no_grad;
  for (const NamedParameter& parameter : parameters) {
    const at::Tensor& tensor = find_tensor(tensors, path, prefix + parameter.name, parameter.tensor.sizes());
    parameter.tensor.detach().copy_(tensor);
  }
}

}  // namespace topomask
