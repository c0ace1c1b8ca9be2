#include "graph/tensors.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "core/check.h"
#include "graph/cpu/limits.h"

namespace topomask {

std::vector<std::int32_t> permutation_from(const at::Tensor& order, std::int64_t num_nodes,
                                           const char* where) {
  check(order.defined() && order.dim() == 1 && order.size(0) == num_nodes && is_index(order),
        "{}: expected order [{}] of int32 or int64, got {}", where, num_nodes, describe(order));
  const at::Tensor wide = order.to(at::kCPU, at::kLong).contiguous();
  const std::int64_t* node = wide.const_data_ptr<std::int64_t>();
  std::vector<std::int32_t> result(static_cast<std::size_t>(num_nodes));
  std::vector<bool> seen(result.size(), false);
  for (std::int64_t i = 0; i < num_nodes; ++i) {
    check(node[i] >= 0 && node[i] < num_nodes,
          "{}: expected nodes from 0 to {} in order, got {} at position {}", where, num_nodes - 1, node[i],
          i);
    check(!seen[node[i]], "{}: expected a permutation, but node {} comes twice in order", where, node[i]);
    seen[node[i]] = true;
    result[i] = static_cast<std::int32_t>(node[i]);
  }
  return result;
}

at::Tensor order_tensor(const std::vector<std::int32_t>& order) {
  at::Tensor result = at::empty({static_cast<std::int64_t>(order.size())}, at::kLong);
  std::copy(order.begin(), order.end(), result.mutable_data_ptr<std::int64_t>());
  return result;
}

void check_points(const at::Tensor& points, const char* where) {
  check(points.defined() && points.dim() == 2 && points.is_floating_point(),
        "{}: expected floating-point points [N, D], got {}", where, describe(points));
  check_num_nodes(where, points.size(0));
}

at::Tensor points_on_cpu(const at::Tensor& points, const char* where) {
  check_points(points, where);
  return points.detach().to(at::kCPU, at::kFloat).contiguous();
}

}  // namespace topomask
