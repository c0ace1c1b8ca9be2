#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>

#include "core/cuda_launch.h"
#include "masks/cuda/look_up.h"
#include "masks/gpu.h"

namespace topomask {

at::Tensor look_up_cuda(const at::Tensor& keys, const at::Tensor& table) {
  const CudaLaunch launch(table);
  at::Tensor out = at::empty({table.size(0), keys.size(0), keys.size(1)}, table.options());
  AT_DISPATCH_FLOATING_TYPES(table.scalar_type(), "look_up", [&] {
    check_cuda(
        look_up_on_device(keys.const_data_ptr<std::uint8_t>(), keys.numel(), table.const_data_ptr<scalar_t>(),
                          table.size(0), table.size(1), out.data_ptr<scalar_t>(), launch.stream),
        "look_up");
  });
  return out;
}

at::Tensor look_up_backward_cuda(const at::Tensor& keys, const at::Tensor& grad_out, std::int64_t size) {
  const CudaLaunch launch(grad_out);
  const std::int64_t heads = grad_out.size(0);
  at::Tensor grad = at::empty({heads, size}, grad_out.options());
  const at::Tensor partial =
      at::empty({look_up_runs(keys.numel()), heads, size}, grad_out.options().dtype(at::kDouble));
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "look_up_backward", [&] {
    check_cuda(look_up_backward_on_device(
                   keys.const_data_ptr<std::uint8_t>(), keys.numel(), grad_out.const_data_ptr<scalar_t>(),
                   heads, size, partial.data_ptr<double>(), grad.data_ptr<scalar_t>(), launch.stream),
               "look_up_backward");
  });
  return grad;
}

}  // namespace topomask
