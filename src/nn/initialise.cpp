#include <ATen/core/grad_mode.h>
#include <cmath>
#include <numbers>

#include "core/random.h"
#include "topomask/nn.h"

namespace topomask {

namespace {

constexpr std::uint32_t kPurpose = 0x1217;  // of these numbers among all that the seed may serve

// FNV-1a: any well-spread function of the name would do.
std::uint64_t hash_name(const std::string& name) {
  std::uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return hash;
}

template <class Draw>
void fill(at::Tensor tensor, std::uint64_t seed, const std::string& name, Draw&& draw) {
  const at::NoGradGuard no_grad;
  RandomStream stream(derive_seed(seed, hash_name(name)), kPurpose);
  const at::Tensor values = at::empty(tensor.sizes(), at::kFloat);
  float* data = values.data_ptr<float>();
  const std::int64_t count = values.numel();
  for (std::int64_t i = 0; i < count; i += 2) {
    const std::array<double, 2> pair = draw(stream);
    data[i] = static_cast<float>(pair[0]);
    if (i + 1 < count) data[i + 1] = static_cast<float>(pair[1]);
  }
  tensor.copy_(values);
}

}  // namespace

void fill_normal(at::Tensor tensor, double mean, double stddev, std::uint64_t seed, const std::string& name) {
  fill(std::move(tensor), seed, name, [&](RandomStream& stream) {
    // Box-Muller; 1 - u lies in (0, 1], where the logarithm is finite.
    const double radius = stddev * std::sqrt(-2 * std::log(1 - stream.next_double()));
    const double angle = 2 * std::numbers::pi * stream.next_double();
    return std::array<double, 2>{mean + radius * std::cos(angle), mean + radius * std::sin(angle)};
  });
}

void fill_uniform(at::Tensor tensor, double bound, std::uint64_t seed, const std::string& name) {
  fill(std::move(tensor), seed, name, [&](RandomStream& stream) {
    return std::array<double, 2>{bound * (2 * stream.next_double() - 1),
                                 bound * (2 * stream.next_double() - 1)};
  });
}

void initialise_fan_in(const torch::nn::Module& module, std::uint64_t seed) {
  const auto parameters = module.named_parameters();
  for (const auto& item : parameters) {
    const std::string& name = item.key();
    const at::Tensor& tensor = item.value();
    if (parameter_kind(name, tensor) == ParameterKind::mask) continue;
    if (name.ends_with("_embedding")) {
      fill_normal(tensor, 0, 0.02, seed, name);
      continue;
    }
    const bool bias = name.ends_with(".bias");
    const at::Tensor& matrix = bias ? parameters[name.substr(0, name.rfind('.')) + ".weight"] : tensor;
    if (matrix.dim() < 2) continue;  // of a norm
    fill_uniform(tensor, 1 / std::sqrt(static_cast<double>(matrix[0].numel())), seed, name);
  }
}

ParameterKind parameter_kind(const std::string& name, const at::Tensor& tensor) {
  if (name.find(".mask.") != std::string::npos || name.starts_with("mask.")) return ParameterKind::mask;
  const bool embedding = name.ends_with("_embedding") || name.ends_with("_token");
  return tensor.dim() >= 2 && !embedding ? ParameterKind::weight : ParameterKind::plain;
}

}  // namespace topomask
