#include "masks/arguments.h"

#include <ATen/ops/matmul.h>

#include <cstdlib>
#include <limits>
#include <mutex>

#include "core/check.h"
#include "core/tensors.h"
#include "masks/derived_pattern.h"

namespace topomask {

namespace {

constexpr double kFloatBytes = 4;

bool is_real(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
}

}  // namespace

void check_input(const Mask& mask, const at::Tensor& x) {
  const std::int64_t n = mask.num_nodes(), heads = mask.heads();
  const bool sound =
      x.defined() && x.dim() == 3 && is_real(x) && x.size(1) == n && (heads == 1 || x.size(0) == heads);
  check(sound, "mask '{}': x must be float32 or float64 [{}, {}, columns], got {}", mask.name(),
        heads == 1 ? "heads" : std::to_string(heads), n, describe(x));
  if (const std::optional<c10::Device> device = mask.device()) {
    check(*device == x.device(), "mask '{}': x must be on {} as the mask, got {}", mask.name(), device->str(),
          describe(x));
  }
}

void check_same_device(const char* mask, const char* argument, const at::Tensor& tensor, const char* other,
                       const at::Tensor& reference) {
  check(tensor.device() == reference.device(), "{}: {} must be on {} as {}, got {}", mask, argument,
        reference.device().str(), other, describe(tensor));
}

void check_parameter(const char* mask, const char* argument, const at::Tensor& tensor, at::IntArrayRef sizes,
                     const char* shape) {
  bool sound = tensor.defined() && is_real(tensor) &&
               tensor.dim() == static_cast<std::int64_t>(sizes.size()) &&
               (sizes.empty() || sizes[0] >= 0 || tensor.size(0) >= 1);
  for (std::size_t k = 0; sound && k < sizes.size(); ++k) sound = sizes[k] < 0 || tensor.size(k) == sizes[k];
  check(sound, "{}: {} must be float32 or float64 {}, got {}", mask, argument, shape, describe(tensor));
}

Graph graph_on_cpu(const Graph& graph) {
  if (graph.row_ptr.is_cpu()) return graph;
  return {graph.row_ptr.to(at::kCPU), graph.col.to(at::kCPU), graph.weight.to(at::kCPU), graph.directed};
}

std::int64_t checked_num_nodes(const char* mask, std::int64_t num_nodes) {
  check(num_nodes >= 0 && num_nodes <= std::numeric_limits<std::int32_t>::max(),
        "{}: num_nodes must be from 0 to 2^31 - 1, got {}", mask, num_nodes);
  return num_nodes;
}

at::Tensor multiply_factors(const Factors& factors, const at::Tensor& x, bool transposed) {
  const at::Tensor left = (transposed ? factors.right : factors.left).to(x.scalar_type());
  const at::Tensor right = (transposed ? factors.left : factors.right).to(x.scalar_type());
  return at::matmul(left, at::matmul(right.transpose(-2, -1), x));
}

double far_share(const SparsePattern& pattern) {
  constexpr std::int64_t kNear = 2048, kSampledRows = 256;
  const std::int64_t nodes = pattern.num_nodes();
  if (!pattern.device().is_cpu() || nodes <= kNear) return 0;
  const std::lock_guard<std::mutex> lock(pattern.derived->mutex);
  double& known = pattern.derived->far_share;
  if (known >= 0) return known;
  const auto* row_ptr = pattern.row_ptr.const_data_ptr<std::int64_t>();
  const auto* col = pattern.col.const_data_ptr<std::int32_t>();
  std::int64_t far = 0, all = 0;
  for (std::int64_t i = 0; i < kSampledRows; ++i) {
    const std::int64_t row = i * nodes / kSampledRows;
    for (std::int64_t e = row_ptr[row]; e < row_ptr[row + 1]; ++e)
      far += std::abs(col[e] - row) > kNear ? 1 : 0;
    all += row_ptr[row + 1] - row_ptr[row];
  }
  known = all == 0 ? 0 : static_cast<double>(far) / static_cast<double>(all);
  return known;
}

MaskProfile basic_profile(const Mask& mask, double multiply_adds_per_column, double bytes_per_column) {
  MaskProfile profile;
  profile.name = mask.name();
  profile.num_nodes = mask.num_nodes();
  profile.heads = mask.heads();
  profile.multiply_adds_per_column = multiply_adds_per_column;
  profile.bytes_per_column = bytes_per_column;
  return profile;
}

MaskProfile dense_profile(const Mask& mask) {
  const double n = static_cast<double>(mask.num_nodes());
  return basic_profile(mask, n * n, kFloatBytes * n * n);
}

MaskProfile factored_profile(const Mask& mask, std::int64_t rank) {
  const double n = static_cast<double>(mask.num_nodes()), entries = n * static_cast<double>(rank);
  MaskProfile profile = basic_profile(mask, 2 * entries, kFloatBytes * 2 * (entries + n));
  profile.rank = rank;
  return profile;
}

void check_replacements(const Mask& mask, const std::vector<at::Tensor>& parameters,
                        std::initializer_list<const char*> names) {
  const std::vector<at::Tensor> own = mask.parameters();
  check(parameters.size() == own.size(), "mask '{}': expected {} parameters, got {}", mask.name(), own.size(),
        parameters.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    const at::Tensor& given = parameters[i];
    const char* name = names.begin()[i];
    check(given.defined() && is_real(given) && given.sizes() == own[i].sizes(),
          "mask '{}': {} must be float32 or float64 [{}], got {}", mask.name(), name,
          fmt::join(own[i].sizes(), ", "), describe(given));
    check(given.device() == own[i].device(), "mask '{}': {} must be on {} as the mask, got {}", mask.name(),
          name, own[i].device().str(), describe(given));
  }
}

}  // namespace topomask
