#include "topomask/parameters.h"

#include <ATen/core/grad_mode.h>
#include <torch/types.h>

#include "core/check.h"
#include "topomask/safetensors.h"

namespace topomask {

void load_parameters(const SafetensorsFile& file, const std::string& path, const std::string& prefix,
                     const std::vector<NamedParameter>& parameters) {
  const at::NoGradGuard no_grad;
  for (const NamedParameter& parameter : parameters) {
    const auto found = file.tensors.find(prefix + parameter.name);
    check(found != file.tensors.end(), "{}: there is no tensor '{}{}' (is it of another model?)", path,
          prefix, parameter.name);
    check(found->second.sizes() == parameter.tensor.sizes(), "{}: tensor '{}{}' is [{}], the model's is [{}]",
          path, prefix, parameter.name, fmt::join(found->second.sizes(), ", "),
          fmt::join(parameter.tensor.sizes(), ", "));
    parameter.tensor.detach().copy_(found->second);
  }
}

}  // namespace topomask
