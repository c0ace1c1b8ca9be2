// Passes that do several layers' work at once, against the same layers one by one in float64 on the CPU.
#include "nn/fused_layers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "compare.h"
#include "gpu.h"
#include "train/autocast.h"

namespace topomask::testing {
namespace {

at::Tensor sample(at::IntArrayRef sizes, std::uint64_t seed) {
  at::manual_seed(seed);
  return at::randn(sizes, at::kDouble);
}

// `run` on leaves in float64 on the CPU, and in float32 on the GPU with products in each of `types`.
void compare(const std::vector<at::Tensor>& values, const std::vector<at::ScalarType>& types,
             const std::function<at::Tensor(const std::vector<at::Tensor>&, at::ScalarType)>& run) {
  const Outcome expected = differentiate([&](const auto& x) { return run(x, at::kDouble); },
                                         leaves_on(values, at::kCPU, at::kDouble));
  for (const at::ScalarType type : types) {
    SCOPED_TRACE(c10::toString(type));
    const Run on_gpu = [&](const auto& x) {
      const AutocastScope scope(type == at::kBFloat16);
      return run(x, type);
    };
    const Outcome actual = differentiate(on_gpu, leaves_on(values, at::kCUDA, at::kFloat));
    expect_close(actual, expected, tolerance_of(type));
    expect_identical(actual, differentiate(on_gpu, leaves_on(values, at::kCUDA, at::kFloat)));
  }
}

const std::vector<at::ScalarType> kTypes = {at::kFloat, at::kBFloat16};

class FusedLayers : public OnGpu<std::pair<int, int>> {};
// Fewer rows than slices, and as many as all warps take in three steps, or in two where many channels make
// the oracle slow; less than a warp's share of channels, whole ones, and sizes that no kernel takes.
std::vector<std::pair<int, int>> rows_and_channels() {
  std::vector<std::pair<int, int>> shapes;
  for (const bool few : {true, false}) {
    for (const int channels : {4, 64, 100, 256, 768, 1024, 30, 1032}) {
      shapes.emplace_back(few ? 3 : channels <= 256 ? 9001 : 4501, channels);
    }
  }
  return shapes;
}
INSTANTIATE_TEST_SUITE_P(Shapes, FusedLayers, ::testing::ValuesIn(rows_and_channels()));

TEST_P(FusedLayers, SumAndNorm) {
  const auto [rows, channels] = GetParam();
  // Leaves: what the branch is added to, weight and bias of the norm, the branch, the branch's bias.
  const std::vector<at::Tensor> all = {sample({1, rows, channels}, 0), sample({channels}, 2),
                                       sample({channels}, 3), sample({1, rows, channels}, 1),
                                       sample({channels}, 4)};
  for (const std::ptrdiff_t leaves : {3, 4, 5}) {
    SCOPED_TRACE(::testing::Message() << leaves << " leaves");
    compare({all.begin(), all.begin() + leaves}, kTypes,
            [&](const std::vector<at::Tensor>& x, at::ScalarType dtype) {
              const auto [sum, normed] =
                  add_and_normalise(x[0], leaves > 3 ? x[3].to(dtype) : at::Tensor(),
                                    leaves > 4 ? x[4] : at::Tensor(), x[1], x[2], 1e-5);
              if (dtype == at::kBFloat16 && channels % 4 == 0 && channels <= 1024) {
                EXPECT_EQ(normed.scalar_type(), at::kBFloat16);
              }
              return at::cat({sum.flatten().to(x[0].dtype()), normed.flatten().to(x[0].dtype())});
            });
  }
}

TEST_P(FusedLayers, SumThatNobodyElseUses) {
  const auto [rows, channels] = GetParam();
  const std::vector<at::Tensor> values = {sample({rows, channels}, 0), sample({channels}, 2),
                                          sample({channels}, 3), sample({rows, channels}, 1)};
  compare(values, {at::kFloat}, [](const std::vector<at::Tensor>& x, at::ScalarType) {
    return add_and_normalise(x[0], x[3], {}, x[1], x[2], 1e-5).second;
  });
}

TEST_P(FusedLayers, NormThatNobodyUses) {
  const auto [rows, channels] = GetParam();
  const std::vector<at::Tensor> values = {sample({rows, channels}, 0), sample({channels}, 2),
                                          sample({channels}, 3), sample({rows, channels}, 1),
                                          sample({channels}, 4)};
  compare(values, {at::kBFloat16}, [](const std::vector<at::Tensor>& x, at::ScalarType dtype) {
    return add_and_normalise(x[0], x[3].to(dtype), x[4], x[1], x[2], 1e-5).first;
  });
}

TEST_P(FusedLayers, Gelu) {
  const auto [rows, channels] = GetParam();
  const std::vector<at::Tensor> values = {sample({rows, channels}, 0), sample({channels}, 2)};
  compare(values, kTypes, [](const std::vector<at::Tensor>& x, at::ScalarType dtype) {
    return add_bias_and_gelu(x[0].to(dtype), x[1]);
  });
}

TEST_P(FusedLayers, Linear) {
  const auto [rows, channels] = GetParam();
  const std::vector<at::Tensor> values = {sample({1, rows, 24}, 0), sample({channels, 24}, 1),
                                          sample({channels}, 2)};
  compare(values, kTypes, [](const std::vector<at::Tensor>& x, at::ScalarType dtype) {
    return linear_layer(x[0].to(dtype), x[1], x[2]);
  });
}

}  // namespace
}  // namespace topomask::testing
