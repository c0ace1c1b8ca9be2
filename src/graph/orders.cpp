#include <cmath>

#include "core/check.h"
#include "graph/cpu/orders.h"
#include "graph/cpu/transform.h"
#include "graph/gpu.h"
#include "graph/tensors.h"
#include "topomask/graph.h"

namespace topomask {

at::Tensor reverse_cuthill_mckee(const Graph& anywhere) {
  if (!anywhere.row_ptr.is_cpu()) return reverse_cuthill_mckee(anywhere.to(at::kCPU)).to(anywhere.device());
  const Graph& graph = anywhere;
  const CsrView rows = graph.view();
  if (!graph.directed) return order_tensor(reverse_cuthill_mckee_order(rows));
  return order_tensor(reverse_cuthill_mckee_order(symmetric_pattern(rows).view()));
}

at::Tensor morton_order(const at::Tensor& points) {
  check_points(points, "morton_order");
  check(points.size(1) >= 1 && points.size(1) <= 3,
        "morton_order: expected points [N, D] with D from 1 to 3, got D = {}", points.size(1));
  if (points.is_cuda()) return morton_order_cuda(points);
  const at::Tensor ready = points_on_cpu(points, "morton_order");
  const float* coordinate = ready.const_data_ptr<float>();
  for (std::int64_t i = 0; i < ready.numel(); ++i) {
    check(std::isfinite(coordinate[i]),
          "morton_order: coordinate {} of point {} is {}, expected a finite number", i % ready.size(1),
          i / ready.size(1), coordinate[i]);
  }
  return order_tensor(morton_point_order(coordinate, ready.size(0), ready.size(1)));
}

at::Tensor inverse_order(const at::Tensor& order) {
  const std::vector<std::int32_t> node =
      permutation_from(order, order.defined() ? order.numel() : 0, "inverse_order");
  std::vector<std::int32_t> position(node.size());
  for (std::size_t i = 0; i < node.size(); ++i) position[node[i]] = static_cast<std::int32_t>(i);
  return order_tensor(position).to(order.defined() ? order.device() : at::kCPU);
}

}  // namespace topomask
