// The masks whose product is one or two calls of the tensor library: none, causal, degree, learned features,
// dense.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>

#include <numbers>

#include "core/check.h"
#include "core/tensors.h"
#include "masks/arguments.h"
#include "topomask/masks.h"

namespace topomask {

namespace {

constexpr double kFloatBytes = 4;

MaskCost low_rank_cost(std::int64_t num_nodes, std::int64_t rank) {
  const double entries = static_cast<double>(num_nodes) * static_cast<double>(rank);
  return {2 * entries, kFloatBytes * (2 * entries + 2 * static_cast<double>(num_nodes))};
}

MaskCost dense_cost(std::int64_t num_nodes) {
  const double n = static_cast<double>(num_nodes);
  return {n * n, kFloatBytes * n * n};
}

}  // namespace

NoMask::NoMask(std::int64_t num_nodes) : num_nodes_(checked_num_nodes("NoMask", num_nodes)) {}

at::Tensor NoMask::apply(const at::Tensor& x) const {
  check_input(*this, x);
  return x.sum(1, /*keepdim=*/true).expand_as(x);
}

LowRankFactors NoMask::low_rank() const {
  const at::Tensor ones = at::ones({1, num_nodes_, 1}, at::kFloat);
  return {ones, ones};
}

MaskCost NoMask::cost() const {
  const double n = static_cast<double>(num_nodes_);
  return {n, 2 * kFloatBytes * n};
}

CausalMask::CausalMask(std::int64_t num_nodes) : num_nodes_(checked_num_nodes("CausalMask", num_nodes)) {}

at::Tensor CausalMask::apply(const at::Tensor& x) const {
  check_input(*this, x);
  return x.cumsum(1);
}

at::Tensor CausalMask::apply_transposed(const at::Tensor& x) const {
  check_input(*this, x);
  return x.flip(1).cumsum(1).flip(1);
}

MaskCost CausalMask::cost() const {
  const double n = static_cast<double>(num_nodes_);
  return {n, 2 * kFloatBytes * n};
}

DegreeMask::DegreeMask(const Graph& graph, at::Tensor logits) : logits_(std::move(logits)) {
  check_parameter("DegreeMask", "logits", logits_, {-1, -1}, "[H, max_degree + 1]");
  check(logits_.size(1) >= 1, "DegreeMask: logits must be [H, max_degree + 1] with max_degree >= 0, got {}",
        describe(logits_));
  degree_ = graph.row_ptr.diff().clamp_max(logits_.size(1) - 1).to(logits_.device());
}

LowRankFactors DegreeMask::low_rank() const {
  // sin(a + b) = sin a cos b + cos a sin b
  const at::Tensor z =
      at::embedding(at::sigmoid(logits_).t(), degree_).t();  // its gradient is a fast scatter
  const at::Tensor angle = z * (std::numbers::pi / 4);
  const at::Tensor sine = at::sin(angle), cosine = at::cos(angle);
  return {at::stack({sine, cosine}, -1), at::stack({cosine, sine}, -1)};
}

at::Tensor DegreeMask::apply(const at::Tensor& x) const {
  check_input(*this, x);
  const LowRankFactors factors = low_rank();
  return apply_factors(factors.left, factors.right, x);
}

MaskCost DegreeMask::cost() const {
  return low_rank_cost(num_nodes(), 2);
}

LearnedFeaturesMask::LearnedFeaturesMask(at::Tensor features) : features_(std::move(features)) {
  check_parameter("LearnedFeaturesMask", "features", features_, {-1, -1, -1}, "[H, N, R]");
}

at::Tensor LearnedFeaturesMask::apply(const at::Tensor& x) const {
  check_input(*this, x);
  return apply_factors(features_, features_, x);
}

MaskCost LearnedFeaturesMask::cost() const {
  return low_rank_cost(num_nodes(), features_.size(2));
}

DenseMask::DenseMask(at::Tensor matrix) : matrix_(std::move(matrix)) {
  check(matrix_.defined() && (matrix_.dim() == 2 || matrix_.dim() == 3),
        "DenseMask: matrix must be [N, N] or [H, N, N], got {}", describe(matrix_));
  const std::int64_t n = matrix_.size(-1);
  if (matrix_.dim() == 2) {
    check(matrix_.size(0) == n, "DenseMask: matrix must be [N, N] or [H, N, N], got {}", describe(matrix_));
    check_parameter("DenseMask", "matrix", matrix_.unsqueeze(0), {1, n, n}, "[N, N]");
  } else {
    check_parameter("DenseMask", "matrix", matrix_, {-1, n, n}, "[H, N, N]");
  }
}

at::Tensor DenseMask::dense(at::ScalarType dtype) const {
  return matrix_.to(dtype).expand({num_heads(), num_nodes(), num_nodes()});
}

at::Tensor DenseMask::apply(const at::Tensor& x) const {
  check_input(*this, x);
  return at::matmul(dense(x.scalar_type()), x);
}

at::Tensor DenseMask::apply_transposed(const at::Tensor& x) const {
  check_input(*this, x);
  return at::matmul(dense(x.scalar_type()).transpose(-2, -1), x);
}

MaskCost DenseMask::cost() const {
  return dense_cost(num_nodes());
}

}  // namespace topomask
