// What a build without CUDA says when it is given tensors on a GPU.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "attention/gpu.h"
#include "core/gpu.h"
#include "masks/gpu.h"
#include "support/expect_error.h"
#include "topomask/device.h"
#include "walks/gpu.h"

namespace topomask {
namespace {

using testing::expect_error;

TEST(GpuStubs, SayThatThereIsNoCuda) {
  const at::Tensor x = at::zeros({1, 2});
  expect_error([&] { look_up_cuda(x, x); }, "built without CUDA");
  expect_error([&] { mask_engine_forward_on_gpu({}, {}, false); }, "built without CUDA");
  expect_error([&] { sample_walks_cuda(Graph(), {}, 1); }, "built without CUDA");
}

TEST(GpuStubs, OfferNoKernels) {
  EXPECT_FALSE(cuda_is_built());
  EXPECT_FALSE(cuda_is_available());
  EXPECT_EQ(num_gpus(), 0);
  EXPECT_FALSE(runs_on_tensor_cores(at::kBFloat16, c10::kCPU, 64, 64));
}

}  // namespace
}  // namespace topomask
