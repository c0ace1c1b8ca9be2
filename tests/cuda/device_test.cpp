#include <ATen/ops/arange.h>

#include "gpu.h"
#include "topomask/error.h"

namespace topomask {
namespace {

TEST(Device, IsBuiltForCudaHere) {
  EXPECT_TRUE(cuda_is_built());
}

TEST(Device, KnowsItsWords) {
  EXPECT_EQ(parse_device("cpu").str(), "cpu");
  EXPECT_THROW(parse_device("gpu"), Error);
  EXPECT_THROW(parse_device("cuda:"), Error);
  EXPECT_THROW(parse_device("cuda:-1"), Error);
  EXPECT_THROW(parse_device("cuda:1000"), Error);
}

// The first that touches the device.
TEST(Device, KnowsItsMemoryBeforeTheFirstTensor) {
  TOPOMASK_NEEDS_GPU();
  reset_peak_memory(at::kCUDA);
  EXPECT_GE(peak_memory(at::kCUDA), 0);
  EXPECT_GT(free_memory(at::kCUDA), 0);
}

TEST(Device, HoldsTensors) {
  TOPOMASK_NEEDS_GPU();
  const at::Tensor x = at::arange(5, at::TensorOptions().device(parse_device("cuda")));
  EXPECT_EQ(x.sum().item<std::int64_t>(), 10);
}

TEST(Device, KnowsItsMemoryWithAndWithoutANumber) {
  TOPOMASK_NEEDS_GPU();
  const at::Tensor x = at::arange(5, at::TensorOptions().device(parse_device("cuda")));
  EXPECT_GT(free_memory(at::kCUDA), 0);
  EXPECT_GE(peak_memory(at::kCUDA), 5 * 8);
  EXPECT_EQ(device_name(at::kCUDA), device_name(x.device()));
}

}  // namespace
}  // namespace topomask
