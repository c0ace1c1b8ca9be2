#include "masks/gpu.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "core/cuda_launch.h"
#include "masks/cpu/forest.h"
#include "masks/cuda/forest.h"

namespace topomask {

struct ForestOnDevice {
  at::Tensor node, child_begin, child_end, level_ptr;  // int32
  at::Tensor length;                                   // float32
  std::vector<std::int32_t> host_level_ptr;
  DeviceForest view;  // pointers into them
};

namespace {

template <class T>
at::Tensor tensor_of(const std::vector<T>& values, at::ScalarType dtype, c10::Device device) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(values.size())}, dtype);
  std::copy(values.begin(), values.end(), tensor.data_ptr<T>());
  return tensor.to(device);
}

}  // namespace

std::shared_ptr<const ForestOnDevice> forest_on_cuda(const RootedForest& forest, c10::Device device) {
  const std::int64_t n = forest.num_nodes();
  // Tree after tree becomes level after level. A stable sort keeps children together: they are neighbours
  // already.
  std::vector<std::int32_t> depth(static_cast<std::size_t>(n), 0), position(depth.size()),
      by_level(depth.size());
  for (std::int64_t k = 0; k < n; ++k) {
    for (std::int64_t c = forest.child_begin[k]; c < forest.child_end[k]; ++c) depth[c] = depth[k] + 1;
  }
  std::iota(by_level.begin(), by_level.end(), 0);
  std::stable_sort(by_level.begin(), by_level.end(),
                   [&](std::int32_t a, std::int32_t b) { return depth[a] < depth[b]; });
  for (std::int64_t k = 0; k < n; ++k) position[by_level[k]] = static_cast<std::int32_t>(k);

  std::vector<std::int32_t> node(depth.size()), child_begin(depth.size()), child_end(depth.size()), level_ptr;
  std::vector<float> length(depth.size());
  for (std::int64_t k = 0; k < n; ++k) {
    const std::int32_t old = by_level[k];
    const auto children = static_cast<std::int32_t>(forest.child_end[old] - forest.child_begin[old]);
    node[k] = forest.order[old];
    child_begin[k] = children == 0 ? 0 : position[forest.child_begin[old]];
    child_end[k] = child_begin[k] + children;
    length[k] = forest.length[old];
    if (depth[old] == static_cast<std::int32_t>(level_ptr.size()))
      level_ptr.push_back(static_cast<std::int32_t>(k));
  }
  level_ptr.push_back(static_cast<std::int32_t>(n));

  auto result = std::make_shared<ForestOnDevice>();
  result->node = tensor_of(node, at::kInt, device);
  result->child_begin = tensor_of(child_begin, at::kInt, device);
  result->child_end = tensor_of(child_end, at::kInt, device);
  result->level_ptr = tensor_of(level_ptr, at::kInt, device);
  result->length = tensor_of(length, at::kFloat, device);
  result->host_level_ptr = std::move(level_ptr);
  result->view = {n,
                  static_cast<std::int64_t>(result->host_level_ptr.size()) - 1,
                  result->node.const_data_ptr<std::int32_t>(),
                  result->child_begin.const_data_ptr<std::int32_t>(),
                  result->child_end.const_data_ptr<std::int32_t>(),
                  result->length.const_data_ptr<float>(),
                  result->level_ptr.const_data_ptr<std::int32_t>(),
                  result->host_level_ptr.data()};
  return result;
}

void forest_product_cuda(const ForestOnDevice& forest, const at::Tensor& a, const at::Tensor& x,
                         const at::Tensor& y, const at::Tensor& derivative) {
  const CudaLaunch launch(x);
  const at::Tensor workspace = at::empty({(derivative.defined() ? 4 : 2) * x.numel()}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "forest_product", [&] {
    DeviceForestProduct<scalar_t> product;
    product.heads = x.size(0);
    product.columns = x.size(2);
    product.size = x.numel();
    product.a = a.const_data_ptr<scalar_t>();
    product.x = x.const_data_ptr<scalar_t>();
    product.y = y.data_ptr<scalar_t>();
    product.derivative = derivative.defined() ? derivative.data_ptr<scalar_t>() : nullptr;
    product.workspace = workspace.data_ptr<scalar_t>();
    check_cuda(forest_product_on_device(forest.view, product, launch.stream), "forest_product");
  });
}

}  // namespace topomask
