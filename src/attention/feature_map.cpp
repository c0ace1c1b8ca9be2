#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <mutex>
#include <numbers>
#include <tuple>

#include "attention/engines.h"
#include "core/check.h"
#include "core/random.h"
#include "topomask/attention.h"

namespace topomask {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

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

// The last tensors that were asked for, by what they were made of. Making them costs more than small
// attention does, and a GPU would be waited for at every call. Never destroyed: CUDA may end before it.
template <class Key>
class KeptTensors {
 public:
  template <class Make>
  at::Tensor get(const Key& key, const Make& make) {
    constexpr std::size_t kMost = 64;
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [known, tensor] : kept_) {
      if (known == key) return tensor;
    }
    const c10::InferenceMode learnable(false);  // gradients will ask for it too
    const at::AutoGradMode fixed(false);
    if (kept_.size() == kMost) kept_.pop_front();
    kept_.emplace_back(key, make());
    return kept_.back().second;
  }

 private:
  std::mutex mutex_;
  std::deque<std::pair<Key, at::Tensor>> kept_;
};

// [features, d]: rows with the law of N(0, I_d) / d^1/4, orthogonal to each other within every block of d
// rows. Shared by all callers, so nobody may write to it.
at::Tensor favor_projection(std::int64_t features, std::int64_t d, std::uint64_t seed, at::ScalarType dtype,
                            c10::Device device) {
  using Key = std::tuple<std::int64_t, std::int64_t, std::uint64_t, at::ScalarType, c10::Device>;
  static auto& drawn = *new KeptTensors<Key>;
  return drawn.get(Key(features, d, seed, dtype, device), [&] {
    const double scale = std::pow(static_cast<double>(d), -0.25);
    return (draw_projection(features, d, seed) * scale).to(device, dtype);
  });
}

// The block of each node: [N] int64. `blocks`: as Mask::blocks() gives them.
at::Tensor block_of_nodes(const std::vector<std::int64_t>& blocks, c10::Device device) {
  using Key = std::pair<std::vector<std::int64_t>, c10::Device>;
  static auto& sent = *new KeptTensors<Key>;
  const at::Tensor inner = sent.get(Key(blocks, device), [&] {
    return at::tensor(at::IntArrayRef(blocks).slice(1, blocks.size() - 2), at::kLong).to(device);
  });
  return at::bucketize(at::arange(blocks.back(), inner.options()), inner, /*out_int32=*/false,
                       /*right=*/true);
}

// The maximum over the rows of each block, at every row of it: [..., N, 1].
at::Tensor largest_of_block(const at::Tensor& rows, const std::vector<std::int64_t>& blocks) {
  const at::Tensor flat = rows.squeeze(-1), block = block_of_nodes(blocks, rows.device()).expand_as(flat);
  std::vector<std::int64_t> sizes = flat.sizes().vec();
  sizes.back() = static_cast<std::int64_t>(blocks.size()) - 1;
  return at::full(sizes, -std::numeric_limits<double>::infinity(), rows.options())
      .scatter_reduce(-1, block, flat, "amax")
      .gather(-1, block)
      .unsqueeze(-1);
}

// The largest exponents of all keys that a query can meet: [..., N or 1, 1]. `exponents`: the largest of each
// key, [..., N, 1].
at::Tensor largest_of_keys(const at::Tensor& exponents, const std::vector<std::int64_t>& blocks) {
  if (blocks.size() > 2) return largest_of_block(exponents, blocks);
  if (exponents.size(-2) > 0) return exponents.amax(-2, true);
  std::vector<std::int64_t> sizes = exponents.sizes().vec();
  sizes[sizes.size() - 2] = 1;
  return at::full(sizes, -std::numeric_limits<double>::infinity(), exponents.options());
}

// Positive features of exp(<q, k> / sqrt(d)). Factors that are common to a query, or to all keys that a query
// can meet, cancel in the normalised attention, so the largest exponent is taken out of each; of a query
// exp(-|x|^2 / 2) is such a factor, too. They count as constants in the backward pass. Keys of another graph
// must not count: if they are far larger, all features of this graph would underflow.
//
// Its own backward pass: what autograd would record reads and writes the features, wide, several times more.
class PositiveFeatures : public torch::autograd::Function<PositiveFeatures> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const FeatureMap& map,
                            bool is_query, const std::vector<std::int64_t>& blocks,
                            const LargestOfAll& of_all) {
    const std::int64_t d = x.size(-1);
    const at::ScalarType wide = at::toOpMathType(x.scalar_type());
    const at::Tensor rows = x.to(wide, false, false, at::MemoryFormat::Contiguous);
    at::Tensor exponents =
        at::matmul(rows, favor_projection(map.num_features, d, map.seed, wide, x.device()).t());
    // All that belongs to a row is [..., N, 1] and put together first: each pass over the features costs
    // more.
    at::Tensor shift = exponents.amax(-1, true);
    if (!is_query) {
      const at::Tensor half_square = rows.square().sum(-1, true).div_(2 * std::sqrt(static_cast<double>(d)));
      const at::Tensor largest = largest_of_keys(shift.sub_(half_square), blocks);
      shift = half_square + (of_all ? of_all(largest) : largest);
    }
    shift.add_(std::log(static_cast<double>(map.num_features)) / 2);
    const at::Tensor features = exponents.sub_(shift).exp_().to(x.scalar_type());
    context->save_for_backward({x, features});
    context->saved_data["seed"] = static_cast<std::int64_t>(map.seed);
    context->saved_data["is_query"] = is_query;
    return features;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &features = saved[1];
    const std::int64_t d = x.size(-1);
    const auto seed = static_cast<std::uint64_t>(context->saved_data["seed"].toInt());
    const at::Tensor of_exponents = grads[0] * features;
    at::Tensor of_x = at::matmul(
        of_exponents, favor_projection(features.size(-1), d, seed, features.scalar_type(), x.device()));
    if (!context->saved_data["is_query"].toBool())
      of_x = at::addcmul(of_x, of_exponents.sum(-1, true), x, -1 / std::sqrt(static_cast<double>(d)));
    return {of_x, {}, {}, {}, {}};
  }
};

at::Tensor positive_features(const FeatureMap& map, const at::Tensor& x, bool is_query,
                             const std::vector<std::int64_t>& blocks, const LargestOfAll& of_all = {}) {
  return PositiveFeatures::apply(x, map, is_query, blocks, of_all);
}

}  // namespace

at::Tensor key_features(const FeatureMap& map, const at::Tensor& x, const LargestOfAll& of_all) {
  if (map.kind != FeatureMapKind::favor) return map(x, /*is_query=*/false);
  return positive_features(map, x, /*is_query=*/false, {}, of_all);
}

std::int64_t FeatureMap::output_features(std::int64_t d) const {
  return kind == FeatureMapKind::favor ? num_features : d;
}

at::Tensor FeatureMap::operator()(const at::Tensor& x, bool is_query,
                                  const std::vector<std::int64_t>& blocks) const {
  const auto wide = [&] { return x.to(at::toOpMathType(x.scalar_type())); };
  switch (kind) {
    case FeatureMapKind::identity:
      return x;
    case FeatureMapKind::relu:
      // Unlike relu's, the gradient of clamp_min does not need the result.
      return at::clamp_min(wide(), 0).add_(epsilon).to(x.scalar_type());
    case FeatureMapKind::elu1:
      return (at::elu(wide()) + 1).to(x.scalar_type());
    case FeatureMapKind::squared_relu:
      return (at::relu(wide()).square() + epsilon).to(x.scalar_type());
    case FeatureMapKind::favor:
      check(num_features >= 1, "attention: num_features must be at least 1, got {}", num_features);
      check(x.dim() >= 2 && x.numel() > 0, "FeatureMap: favor needs a non-empty [..., N, d] tensor");
      if (!blocks.empty()) {
        check(blocks.front() == 0 && blocks.back() == x.size(-2) &&
                  std::is_sorted(blocks.begin(), blocks.end()),
              "FeatureMap: blocks must ascend from 0 to the {} nodes of x, got {} from {} to {}", x.size(-2),
              blocks.size(), blocks.front(), blocks.back());
      }
      return positive_features(*this, x, is_query, blocks);
  }
  fail("FeatureMap: unknown kind {}", static_cast<int>(kind));
}

}  // namespace topomask
