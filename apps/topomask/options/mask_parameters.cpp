#include "options/mask_parameters.h"

#include <fmt/ranges.h>

#include <vector>

#include "core/check.h"
#include "topomask/safetensors.h"

namespace topomask::cli {

MaskParameters::MaskParameters(const std::string& path, c10::Device device) : path_(path), device_(device) {
  if (!path.empty()) stored_ = read_safetensors(path).tensors;
}

at::Tensor MaskParameters::take(std::initializer_list<const char*> names, const at::Tensor& otherwise) {
  const std::string first = *names.begin();
  if (path_.empty()) return taken_[first] = otherwise.to(device_);
  std::vector<std::string> found;
  for (const auto& [stored, tensor] : stored_) {
    for (const std::string name : names) {
      if (stored == name || stored.ends_with("." + name)) found.push_back(stored);
    }
  }
  check(!found.empty(), "{}: expected a parameter named '{}' of this mask, but there is none", path_, first);
  check(found.size() == 1, "{}: expected the parameters of one mask, but it holds {}", path_,
        fmt::join(found, ", "));
  const at::Tensor tensor = stored_.at(found.front());
  stored_.erase(found.front());
  check(tensor.is_floating_point() && tensor.dim() == otherwise.dim(),
        "{}: expected '{}' to be a floating-point tensor of {} dimensions, got {} of shape [{}]", path_,
        found.front(), otherwise.dim(), c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
  const bool wide = tensor.scalar_type() == at::kDouble;
  return taken_[first] = tensor.to(device_, wide ? at::kDouble : at::kFloat);
}

void MaskParameters::check_all_taken() const {
  if (stored_.empty()) return;
  fail(
      "{}: '{}' is no parameter of this mask; expected the state dict of a mask of the kind that --mask "
      "names",
      path_, stored_.begin()->first);
}

void MaskParameters::write(const std::string& path) const {
  SafetensorsFile file;
  for (const auto& [name, tensor] : taken_) file.tensors[name] = tensor.to(at::kCPU, at::kFloat);
  file.metadata["format"] = "pt";
  write_safetensors(path, file);
}

}  // namespace topomask::cli
