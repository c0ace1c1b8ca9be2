#include "core/check.h"
#include "topomask/nn.h"

namespace topomask {
namespace {

void take_tensor(at::Tensor& target, const ParameterTensors& tensors, const std::string& name) {
  if (!target.defined()) return;  // a layer without bias
  const auto found = tensors.find(name);
  check(found != tensors.end(), "there is no tensor '{}' (is it of another model?)", name);
  check(found->second.sizes() == target.sizes(), "tensor '{}' is [{}], the model's is [{}]", name,
        fmt::join(found->second.sizes(), ", "), fmt::join(target.sizes(), ", "));
  target = found->second;
}

template <class Layer>
bool take_as(torch::nn::Module& module, const ParameterTensors& tensors, const std::string& prefix) {
  auto* layer = module.as<Layer>();
  if (layer == nullptr) return false;
  take_tensor(layer->weight, tensors, prefix + "weight");
  take_tensor(layer->bias, tensors, prefix + "bias");
  return true;
}

}  // namespace

void MaskModule::learn(const std::string& name, at::Tensor& field, at::Tensor start) {
  field = register_parameter(name, std::move(start));
  learned_[name] = &field;
}

void MaskModule::take_parameters(const ParameterTensors& tensors, const std::string& prefix) {
  for (const auto& [name, field] : learned_) {
    take_tensor(*field, tensors, prefix + name);
    if (field->scalar_type() != at::kDouble) *field = field->to(at::kFloat);
  }
}

void take_parameters(torch::nn::Module& module, const ParameterTensors& tensors) {
  for (const auto& item : module.named_modules("", /*include_self=*/true)) {
    const std::string prefix = item.key().empty() ? "" : item.key() + ".";
    torch::nn::Module& part = *item.value();
    if (take_as<torch::nn::LinearImpl>(part, tensors, prefix) ||
        take_as<torch::nn::Conv2dImpl>(part, tensors, prefix) ||
        take_as<torch::nn::LayerNormImpl>(part, tensors, prefix) ||
        take_as<torch::nn::GroupNormImpl>(part, tensors, prefix))
      continue;
    if (auto* own = dynamic_cast<TakesParameters*>(&part)) {
      own->take_parameters(tensors, prefix);
    } else {
      check(part.named_parameters(/*recurse=*/false).is_empty(),
            "take_parameters: {} has parameters of its own", part.name());
    }
  }
}

}  // namespace topomask
