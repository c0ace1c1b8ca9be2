// The masks whose product is one or two calls of the tensor library: none, causal, degree, learned features,
// low rank, dense.
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

NoMask::NoMask(std::int64_t num_nodes, std::optional<c10::Device> device)
    : num_nodes_(checked_num_nodes("NoMask", num_nodes)), device_(device) {}

at::Tensor NoMask::multiply(const at::Tensor& x, bool) const {
  check_input(*this, x);
  return x.sum(1, /*keepdim=*/true).expand_as(x);
}

Factors NoMask::factors() const {
  const at::Tensor ones =
      at::ones({1, num_nodes_, 1}, at::TensorOptions(at::kFloat).device(device_.value_or(at::kCPU)));
  return {ones, ones};
}

MaskProfile NoMask::profile() const {
  const double n = static_cast<double>(num_nodes_);
  MaskProfile profile = basic_profile(*this, n, 8 * n);
  profile.rank = 1;
  return profile;
}

MaskPtr NoMask::with_parameters(const std::vector<at::Tensor>& parameters) const {
  return replaced(*this, parameters, {});
}

CausalMask::CausalMask(std::int64_t num_nodes, std::optional<c10::Device> device)
    : num_nodes_(checked_num_nodes("CausalMask", num_nodes)), device_(device) {}

at::Tensor CausalMask::multiply(const at::Tensor& x, bool transposed) const {
  check_input(*this, x);
  return transposed ? x.flip(1).cumsum(1).flip(1) : x.cumsum(1);
}

MaskProfile CausalMask::profile() const {
  const double n = static_cast<double>(num_nodes_);
  return basic_profile(*this, n, 8 * n);
}

MaskPtr CausalMask::with_parameters(const std::vector<at::Tensor>& parameters) const {
  return replaced(*this, parameters, {});
}

DegreeMask::DegreeMask(const Graph& graph, at::Tensor logits) : logits_(std::move(logits)) {
  check_parameter("DegreeMask", "logits", logits_, {-1, -1}, "[H, max_degree + 1]");
  check(logits_.size(1) >= 1, "DegreeMask: logits must be [H, max_degree + 1] with max_degree >= 0, got {}",
        describe(logits_));
  degree_ = graph.row_ptr.diff().clamp_max(logits_.size(1) - 1).to(logits_.device());
}

Factors DegreeMask::factors() const {
  // sin(a + b) = sin a cos b + cos a sin b
  const at::Tensor z =
      at::embedding(at::sigmoid(logits_).t(), degree_).t();  // its gradient is a fast scatter
  const at::Tensor angle = z * (std::numbers::pi / 4);
  const at::Tensor sine = at::sin(angle), cosine = at::cos(angle);
  return {at::stack({sine, cosine}, -1), at::stack({cosine, sine}, -1)};
}

at::Tensor DegreeMask::multiply(const at::Tensor& x, bool transposed) const {
  check_input(*this, x);
  return multiply_factors(factors(), x, transposed);
}

MaskProfile DegreeMask::profile() const {
  return factored_profile(*this, 2);
}

MaskPtr DegreeMask::with_parameters(const std::vector<at::Tensor>& parameters) const {
  return replaced(*this, parameters, {"logits"}, &DegreeMask::logits_);
}

LearnedFeaturesMask::LearnedFeaturesMask(at::Tensor features) : features_(std::move(features)) {
  check_parameter("LearnedFeaturesMask", "features", features_, {-1, -1, -1}, "[H, N, R]");
}

at::Tensor LearnedFeaturesMask::multiply(const at::Tensor& x, bool) const {
  check_input(*this, x);
  return multiply_factors(factors(), x, false);
}

MaskProfile LearnedFeaturesMask::profile() const {
  return factored_profile(*this, features_.size(2));
}

MaskPtr LearnedFeaturesMask::with_parameters(const std::vector<at::Tensor>& parameters) const {
  return replaced(*this, parameters, {"features"}, &LearnedFeaturesMask::features_);
}

LowRankMask::LowRankMask(at::Tensor left, at::Tensor right)
    : left_(std::move(left)), right_(std::move(right)) {
  check_parameter("LowRankMask", "left", left_, {-1, -1, -1}, "[H, N, R]");
  const std::string shape = fmt::format("[1 or H, {}, {}], as left", left_.size(1), left_.size(2));
  check_parameter("LowRankMask", "right", right_, {-1, left_.size(1), left_.size(2)}, shape.c_str());
  check(left_.size(0) == right_.size(0) || left_.size(0) == 1 || right_.size(0) == 1,
        "LowRankMask: left and right must have 1 or the same number of heads, got {} and {}", left_.size(0),
        right_.size(0));
  check_same_device("LowRankMask", "right", right_, "left", left_);
}

at::Tensor LowRankMask::multiply(const at::Tensor& x, bool transposed) const {
  check_input(*this, x);
  return multiply_factors(factors(), x, transposed);
}

MaskProfile LowRankMask::profile() const {
  return factored_profile(*this, left_.size(2));
}

MaskPtr LowRankMask::with_parameters(const std::vector<at::Tensor>& parameters) const {
  return replaced(*this, parameters, {"left", "right"}, &LowRankMask::left_, &LowRankMask::right_);
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
  return matrix_.to(dtype).expand({heads(), num_nodes(), num_nodes()});
}

at::Tensor DenseMask::multiply(const at::Tensor& x, bool transposed) const {
  check_input(*this, x);
  const at::Tensor matrix = dense(x.scalar_type());
  return at::matmul(transposed ? matrix.transpose(-2, -1) : matrix, x);
}

MaskProfile DenseMask::profile() const {
  return dense_profile(*this);
}

MaskPtr DenseMask::with_parameters(const std::vector<at::Tensor>& parameters) const {
  return replaced(*this, parameters, {"matrix"}, &DenseMask::matrix_);
}

}  // namespace topomask
