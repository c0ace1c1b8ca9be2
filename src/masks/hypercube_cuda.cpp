#include <ATen/Dispatch.h>
#include <ATen/ops/empty_like.h>

#include "core/cuda_launch.h"
#include "masks/cuda/hypercube.h"
#include "masks/gpu.h"

namespace topomask {

void hypercube_heat_cuda(int dimension, const at::Tensor& t, const at::Tensor& y) {
  const CudaLaunch launch(y);
  AT_DISPATCH_FLOATING_TYPES(y.scalar_type(), "hypercube_heat", [&] {
    check_cuda(hypercube_heat_on_device(dimension, t.const_data_ptr<scalar_t>(), y.size(0), y.size(2),
                                        y.data_ptr<scalar_t>(), launch.stream),
               "hypercube_heat");
  });
}

at::Tensor hypercube_laplacian_cuda(int dimension, const at::Tensor& z) {
  const CudaLaunch launch(z);
  at::Tensor product = at::empty_like(z);
  AT_DISPATCH_FLOATING_TYPES(z.scalar_type(), "hypercube_laplacian", [&] {
    check_cuda(hypercube_laplacian_on_device(dimension, z.size(0), z.size(2), z.const_data_ptr<scalar_t>(),
                                             product.data_ptr<scalar_t>(), launch.stream),
               "hypercube_laplacian");
  });
  return product;
}

}  // namespace topomask
