#include "options/mask_parameters.h"

#include <fmt/ranges.h>

#include <vector>

#include "core/check.h"
#include "topomask/safetensors.h"

namespace topomask::cli {

MaskFile::MaskFile(const std::string& path, c10::Device device) : path_(path), device_(device) {
  if (path.empty()) return;
  for (auto& [name, tensor] : read_safetensors(path).tensors) stored_[name] = tensor;
}

at::Tensor MaskFile::take(const std::string& name) {
  std::vector<std::string> found;
  for (const auto& [stored, tensor] : stored_) {
    const std::string known = current_parameter_name(stored);
    if (known == name || known.ends_with("." + name)) found.push_back(stored);
  }
  check(!found.empty(), "{}: expected a parameter named '{}' of this mask, but there is none", path_, name);
  check(found.size() == 1, "{}: expected the parameters of one mask, but it holds {}", path_,
        fmt::join(found, ", "));
  const at::Tensor tensor = stored_.at(found.front());
  stored_.erase(found.front());
  check(tensor.is_floating_point() && tensor.dim() >= 1,
        "{}: expected '{}' to be a floating-point tensor [heads, ...], got {} of shape [{}]", path_,
        found.front(), c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
  const bool wide = tensor.scalar_type() == at::kDouble;
  return tensor.to(device_, wide ? at::kDouble : at::kFloat);
}

void MaskFile::check_all_taken() const {
  if (stored_.empty()) return;
  fail(
      "{}: '{}' is no parameter of this mask; expected the state dict of a mask of the kind that --mask "
      "names",
      path_, stored_.begin()->first);
}

void write_mask_parameters(const std::string& path, const MaskInfo& info, const Mask& mask) {
  SafetensorsFile file;
  const std::vector<at::Tensor> parameters = mask.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    file.tensors[std::string(info.parameters[i].name)] = parameters[i].detach().to(at::kCPU, at::kFloat);
  file.metadata["format"] = "pt";
  write_safetensors(path, file);
}

}  // namespace topomask::cli
