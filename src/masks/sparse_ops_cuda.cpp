#include "masks/gpu.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>

#include "core/cuda_launch.h"
#include "core/flops.h"
#include "masks/cuda/spmm.h"
#include "masks/gpu.h"

namespace topomask {

at::Tensor multiply_cuda(const SparsePattern& pattern, const at::Tensor& values, const at::Tensor& x,
                         bool transposed) {
  const std::int64_t heads = x.size(0), columns = x.size(2);
  const at::Tensor input = x.contiguous(), weights = values.contiguous();
  const CudaLaunch launch(input);
  const DeviceRows matrix = transposed ? device_columns(pattern) : device_rows(pattern);
  at::Tensor y = at::empty({heads, x.size(1), columns}, x.options());
  const at::Tensor workspace = at::empty({heads * matrix.num_segments * columns}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "sparse_matmul", [&] {
    check_cuda(
        spmm_on_device(matrix, weights.const_data_ptr<scalar_t>(), weights.size(0) == 1 ? 0 : weights.size(1),
                       input.const_data_ptr<scalar_t>(), heads, columns, y.data_ptr<scalar_t>(),
                       workspace.data_ptr<scalar_t>(), launch.stream),
        "sparse_matmul");
  });
  count_multiply_adds(heads * matrix.nnz * columns);
  return y;
}

at::Tensor value_gradient_cuda(const SparsePattern& pattern, const at::Tensor& grad_out, const at::Tensor& x,
                               bool transposed, std::int64_t value_heads) {
  const std::int64_t heads = x.size(0), columns = x.size(2);
  const at::Tensor left = grad_out.contiguous(), right = x.contiguous();
  const CudaLaunch launch(left);
  const DeviceRows matrix = transposed ? device_columns(pattern) : device_rows(pattern);
  at::Tensor grad = empty_values(pattern, {value_heads, pattern.nnz()}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "sparse_matmul_backward", [&] {
    check_cuda(
        sampled_dots_on_device(matrix, left.const_data_ptr<scalar_t>(), right.const_data_ptr<scalar_t>(),
                               heads, columns, grad.data_ptr<scalar_t>(), value_heads, launch.stream),
        "sparse_matmul_backward");
  });
  count_multiply_adds(heads * matrix.nnz * columns);
  return grad;
}

}  // namespace topomask
