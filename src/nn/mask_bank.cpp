#include "nn/mask_bank.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <typeinfo>

#include "nn/dense_mask_module.h"

namespace topomask {

namespace {

bool are_equal(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || at::equal(a, b));
}

// Whether both compute the same function, each with its own parameter and constants.
bool are_alike(const DenseMaskModule& a, const DenseMaskModule& b) {
  return typeid(a) == typeid(b) && a.parameter().sizes() == b.parameter().sizes() &&
         are_equal(a.shared_constants(), b.shared_constants());
}

}  // namespace

MaskBank::MaskBank(std::vector<std::shared_ptr<MaskModule>> modules) : modules_(std::move(modules)) {
  for (const auto& module : modules_) {
    if (module == nullptr) continue;
    const auto* dense = dynamic_cast<const DenseMaskModule*>(module.get());
    if (dense == nullptr || (!together_.empty() && !are_alike(*together_[0], *dense))) {
      together_.clear();
      return;
    }
    together_.push_back(dense);
  }
}

// One tensor for all layers, which then see their parts of it.
at::Tensor MaskBank::head_constants() {
  const at::Tensor first = together_[0]->head_constants();
  if (!first.defined()) return {};
  if (constants_.defined() && first.is_alias_of(constants_)) return constants_;
  std::vector<at::Tensor> parts;
  for (const DenseMaskModule* module : together_) parts.push_back(module->head_constants());
  constants_ = at::cat(parts);
  std::int64_t begin = 0;
  for (at::Tensor& part : parts) {
    part.set_data(constants_.narrow(0, begin, part.size(0)));
    begin += part.size(0);
  }
  return constants_;
}

std::vector<MaskPtr> MaskBank::masks() {
  // Masks are sums of many terms and stay in float32; the engines know bfloat16 operands by themselves.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  std::vector<MaskPtr> result;
  if (together_.size() < 2) {
    for (const auto& module : modules_) result.push_back(module == nullptr ? nullptr : module->mask());
    return result;
  }
  std::vector<at::Tensor> parameters;
  for (const DenseMaskModule* module : together_) parameters.push_back(module->parameter());
  const at::Tensor all =
      together_[0]->matrices(at::cat(parameters), head_constants());  // [layers heads, N, N]
  const auto layers = static_cast<std::int64_t>(together_.size());
  const std::vector<at::Tensor> matrices = all.view({layers, -1, all.size(1), all.size(2)}).unbind();
  auto next = matrices.begin();
  for (const auto& module : modules_)
    result.push_back(module == nullptr ? nullptr : std::make_shared<DenseMask>(*next++));
  return result;
}

}  // namespace topomask
