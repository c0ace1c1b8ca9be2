#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <deque>
#include <mutex>
#include <numbers>
#include <tuple>

#include "attention/engines.h"
#include "core/check.h"
#include "core/random.h"
#include "topomask/attention.h"

namespace topomask {

namespace {

constexpr std::uint32_t kFavorStream = 0x46415652;  // keeps these draws apart from those of graph generators

at::Tensor gaussian_matrix(std::int64_t rows, std::int64_t columns, RandomStream& stream) {
  at::Tensor matrix = at::empty({rows, columns}, at::kDouble);
  double* data = matrix.data_ptr<double>();
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    // Box-Muller; 1 - u is never zero.
    const double radius = std::sqrt(-2 * std::log(1 - stream.next_double()));
    data[i] = radius * std::cos(2 * std::numbers::pi * stream.next_double());
  }
  return matrix;
}

at::Tensor draw_projection(std::int64_t features, std::int64_t d, std::uint64_t seed) {
  RandomStream stream(seed, kFavorStream);
  std::vector<at::Tensor> blocks;
  for (std::int64_t done = 0; done < features; done += d) {
    const auto [basis, triangle] = at::linalg_qr(gaussian_matrix(d, d, stream));
    // A factorisation fixes the signs of its basis by convention; those of R's diagonal make it uniform
    // again.
    const at::Tensor directions = (basis * triangle.diagonal().sign()).t();
    const at::Tensor lengths = gaussian_matrix(d, d, stream).norm(2, {1}, true);
    blocks.push_back((directions * lengths).slice(0, 0, std::min(d, features - done)));
  }
  return at::cat(blocks);
}

}  // namespace

at::Tensor favor_projection(std::int64_t features, std::int64_t d, std::uint64_t seed, at::ScalarType dtype,
                            c10::Device device) {
  // Drawn once: factorising costs more than small attention does, and a GPU would be waited for at every
  // call.
  using Key = std::tuple<std::int64_t, std::int64_t, std::uint64_t, at::ScalarType, c10::Device>;
  struct Drawn {
    std::mutex mutex;
    std::deque<std::pair<Key, at::Tensor>> matrices;
  };
  static Drawn& drawn = *new Drawn;  // never destroyed: CUDA may end before it
  constexpr std::size_t kMostMatrices = 64;
  const Key key(features, d, seed, dtype, device);
  const std::lock_guard<std::mutex> lock(drawn.mutex);
  for (const auto& [known, matrix] : drawn.matrices) {
    if (known == key) return matrix;
  }
  const c10::InferenceMode learnable(false);  // gradients will ask for it too
  const at::AutoGradMode fixed(false);
  if (drawn.matrices.size() == kMostMatrices) drawn.matrices.pop_front();
  drawn.matrices.emplace_back(key, draw_projection(features, d, seed).to(device, dtype));
  return drawn.matrices.back().second;
}

namespace {

// Positive features of exp(<q, k> / sqrt(d)). Factors that are common to a query, or to all keys, cancel in
// the normalised attention, so the largest exponent is taken out of each.
at::Tensor positive_features(const at::Tensor& x, std::int64_t features, std::uint64_t seed, bool is_query) {
  const std::int64_t d = x.size(-1);
  const at::Tensor scaled = x * std::pow(static_cast<double>(d), -0.25);
  const at::Tensor projection = favor_projection(features, d, seed, x.scalar_type(), x.device());
  const at::Tensor exponent = at::matmul(scaled, projection.t()) - scaled.square().sum(-1, true) / 2;
  const at::Tensor largest = is_query ? exponent.amax(-1, true) : exponent.amax({-2, -1}, true);
  return (exponent - largest.detach()).exp() / std::sqrt(static_cast<double>(features));
}

}  // namespace

std::int64_t FeatureMap::output_features(std::int64_t d) const {
  return kind == FeatureMapKind::favor ? num_features : d;
}

at::Tensor FeatureMap::operator()(const at::Tensor& x, bool is_query) const {
  switch (kind) {
    case FeatureMapKind::identity:
      return x;
    case FeatureMapKind::relu:
      return at::clamp_min(x, 0).add_(epsilon);  // unlike relu's, its gradient does not need the result
    case FeatureMapKind::elu1:
      return at::elu(x) + 1;
    case FeatureMapKind::squared_relu:
      return at::relu(x).square() + epsilon;
    case FeatureMapKind::favor:
      check(num_features >= 1, "FeatureMap: favor needs at least one feature, got {}", num_features);
      check(x.dim() >= 2 && x.numel() > 0, "FeatureMap: favor needs a non-empty [..., N, d] tensor");
      return positive_features(x, num_features, seed, is_query);
  }
  fail("FeatureMap: unknown kind {}", static_cast<int>(kind));
}

}  // namespace topomask
