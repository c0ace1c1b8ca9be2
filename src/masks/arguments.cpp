#include "masks/arguments.h"

#include <ATen/ops/matmul.h>

#include <limits>

#include "core/check.h"
#include "core/tensors.h"

namespace topomask {

namespace {

bool is_real(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
}

}  // namespace

void check_input(const Mask& mask, const at::Tensor& x) {
  const std::int64_t n = mask.num_nodes(), heads = mask.num_heads();
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

at::Tensor apply_factors(const at::Tensor& left, const at::Tensor& right, const at::Tensor& x) {
  const at::Tensor inner = at::matmul(right.to(x.scalar_type()).transpose(-2, -1), x);
  return at::matmul(left.to(x.scalar_type()), inner);
}

}  // namespace topomask
