#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sin.h>

#include <cmath>
#include <numbers>

#include "core/check.h"
#include "core/normal.h"
#include "core/parallel.h"
#include "core/random.h"
#include "core/tensors.h"
#include "masks/arguments.h"
#include "topomask/masks.h"

namespace topomask {

namespace {

constexpr std::uint32_t kSpePurpose = 0x73706500;
constexpr std::int64_t kMaxNoise = std::int64_t{1} << 33;  // numbers

// The sinusoids [H, N, 2K] of cos and sin of 2 pi f n + phase, each scaled by its gain. Angles are in double,
// for n may be large.
at::Tensor sinusoids(std::int64_t num_nodes, const at::Tensor& frequencies, const at::Tensor& gains,
                     const at::Tensor& phases) {
  const at::Tensor position =
      at::arange(num_nodes, frequencies.options().dtype(at::kDouble)).view({1, -1, 1});
  at::Tensor angle = frequencies.to(at::kDouble).unsqueeze(1) * position * (2 * std::numbers::pi);
  if (phases.defined()) angle = angle + phases.to(at::kDouble).unsqueeze(1);
  const at::Tensor gain = gains.to(at::kDouble).unsqueeze(1);
  return at::cat({at::cos(angle) * gain, at::sin(angle) * gain}, -1);
}

// sum_p filter_p noise_{n - p}: [H, P], [H, N + P - 1, R] -> [H, N, R].
at::Tensor filtered(const at::Tensor& filter, const at::Tensor& noise) {
  const at::Tensor weight = filter.to(at::kDouble).flip(1).unsqueeze(1);
  return at::conv1d(noise.permute({2, 0, 1}), weight, {}, 1, at::IntArrayRef{0}, 1, filter.size(0))
      .permute({1, 2, 0});
}

}  // namespace

SpeMask::SpeMask(std::int64_t num_nodes, std::vector<at::Tensor> parameters, std::int64_t noise_rows,
                 std::int64_t realisations, std::uint64_t seed)
    : num_nodes_(num_nodes), parameters_(std::move(parameters)) {
  const std::int64_t heads = parameters_.front().size(0);
  check(realisations >= 1, "SpeMask: realisations must be at least 1, got {}", realisations);
  check(noise_rows <= kMaxNoise / heads / realisations,
        "SpeMask: {} heads, {} rows and {} realisations need more than 2^33 random numbers; take fewer "
        "realisations",
        heads, noise_rows, realisations);
  noise_ = at::empty({heads, noise_rows, realisations}, at::kDouble);
  double* noise = noise_.data_ptr<double>();
  parallel_for(heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t head = begin; head < end; ++head) {
      RandomStream random(derive_seed(seed, head), kSpePurpose);
      fill_standard_normal(random, noise + head * noise_rows * realisations, noise_rows * realisations);
    }
  });
  noise_ = noise_.to(parameters_.front().device());
}

std::shared_ptr<const SpeMask> SpeMask::sine(std::int64_t num_nodes, at::Tensor frequencies, at::Tensor gains,
                                             at::Tensor phases, std::int64_t realisations,
                                             std::uint64_t seed) {
  checked_num_nodes("SpeMask", num_nodes);
  check_parameter("SpeMask", "frequencies", frequencies, {-1, -1}, "[H, K]");
  const std::string shape = fmt::format("[{}], as frequencies", fmt::join(frequencies.sizes(), ", "));
  check_parameter("SpeMask", "gains", gains, frequencies.sizes(), shape.c_str());
  check_parameter("SpeMask", "phases", phases, frequencies.sizes(), shape.c_str());
  const std::int64_t rows = 2 * frequencies.size(1);
  return std::shared_ptr<const SpeMask>(new SpeMask(
      num_nodes, {std::move(frequencies), std::move(gains), std::move(phases)}, rows, realisations, seed));
}

std::shared_ptr<const SpeMask> SpeMask::convolutional(std::int64_t num_nodes, at::Tensor query_filter,
                                                      at::Tensor key_filter, std::int64_t realisations,
                                                      std::uint64_t seed) {
  checked_num_nodes("SpeMask", num_nodes);
  check_parameter("SpeMask", "query_filter", query_filter, {-1, -1}, "[H, P]");
  check(query_filter.size(1) >= 1, "SpeMask: query_filter must be [H, P] with P at least 1, got {}",
        describe(query_filter));
  const std::string shape = fmt::format("[{}], as query_filter", fmt::join(query_filter.sizes(), ", "));
  check_parameter("SpeMask", "key_filter", key_filter, query_filter.sizes(), shape.c_str());
  const std::int64_t rows = num_nodes + query_filter.size(1) - 1;
  return std::shared_ptr<const SpeMask>(
      new SpeMask(num_nodes, {std::move(query_filter), std::move(key_filter)}, rows, realisations, seed));
}

Factors SpeMask::factors() const {
  const double scale = 1 / std::sqrt(static_cast<double>(noise_.size(2)));
  Factors factors;
  if (is_sine()) {
    // Only the queries carry the phases; both sides meet the same noise.
    const at::Tensor noise = noise_ * scale;
    factors.left = at::matmul(sinusoids(num_nodes_, parameters_[0], parameters_[1], parameters_[2]), noise);
    factors.right = at::matmul(sinusoids(num_nodes_, parameters_[0], parameters_[1], at::Tensor()), noise);
  } else {
    factors.left = filtered(parameters_[0], noise_) * scale;
    factors.right = filtered(parameters_[1], noise_) * scale;
  }
  const at::ScalarType dtype = parameters_.front().scalar_type();
  return {factors.left.to(dtype), factors.right.to(dtype)};
}

at::Tensor SpeMask::multiply(const at::Tensor& x, bool transposed) const {
  check_input(*this, x);
  return multiply_factors(factors(), x, transposed);
}

MaskProfile SpeMask::profile() const {
  return factored_profile(*this, noise_.size(2));
}

MaskPtr SpeMask::with_parameters(const std::vector<at::Tensor>& parameters) const {
  if (is_sine()) {
    check_replacements(*this, parameters, {"frequencies", "gains", "phases"});
  } else {
    check_replacements(*this, parameters, {"query_filter", "key_filter"});
  }
  auto copy = std::make_shared<SpeMask>(*this);
  copy->parameters_ = parameters;
  return copy;
}

}  // namespace topomask
