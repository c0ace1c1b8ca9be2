// A NaN in any operand must reach everything that depends on it: none may be turned into a number.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <ostream>
#include <vector>

#include "attention/entry_oracle.h"
#include "topomask/masks.h"

namespace topomask::testing {

struct NanCase {
  Engine engine;
  AttentionKind kind;
  FeatureMapKind features;
};

inline void PrintTo(const NanCase& c, std::ostream* to) {
  *to << "engine " << static_cast<int>(c.engine) << " kind " << static_cast<int>(c.kind) << " features "
      << static_cast<int>(c.features);
}

// Every engine, kind and feature map.
inline std::vector<NanCase> nan_cases() {
  std::vector<NanCase> all;
  for (const Engine engine : {Engine::mask, Engine::dense, Engine::feature}) {
    for (const FeatureMapKind features :
         {FeatureMapKind::identity, FeatureMapKind::relu, FeatureMapKind::elu1, FeatureMapKind::squared_relu,
          FeatureMapKind::favor}) {
      all.push_back({engine, AttentionKind::linear, features});
    }
    if (engine != Engine::feature) all.push_back({engine, AttentionKind::softmax, FeatureMapKind::identity});
  }
  return all;
}

// One NaN at a time, in each of q, k, v and the values of M: results and gradients are NaN wherever those of
// the oracle are. The oracle takes most of the time, and serves all dtypes.
inline void expect_nan_kept(const NanCase& c, const SparsePattern& pattern, std::int64_t d,
                            const std::vector<at::ScalarType>& dtypes, c10::Device device) {
  AttentionOptions options;
  options.kind = c.kind;
  options.engine = c.engine;
  options.feature_map.kind = c.features;
  options.feature_map.num_features = 8;
  const auto moved = std::make_shared<const SparsePattern>(pattern.to(device));
  const std::int64_t n = pattern.num_nodes();
  const char* names[] = {"out", "grad q", "grad k", "grad v", "grad values"};
  for (int operand = 0; operand < 4; ++operand) {
    for (const double sign : {1.0, -1.0}) {  // processors make negative ones, std::nan positive ones
      SCOPED_TRACE(::testing::Message()
                   << "N " << n << " d " << d << " operand " << operand << " sign " << sign);
      at::manual_seed(3);
      oracle::Tensors operands = {at::rand({1, 2, n, d}) + 0.1, at::rand({1, 2, n, d}) + 0.1,
                                  at::randn({1, 2, n, d}), at::rand({2, pattern.nnz()}) + 0.1};
      operands[operand].view({-1})[operand < 3 ? 4 * d + 1 : 20].fill_(
          std::copysign(std::numeric_limits<double>::quiet_NaN(), sign));
      const auto in = [&](at::ScalarType narrow, at::ScalarType wide, c10::Device place) {
        oracle::Tensors all;
        for (int i = 0; i < 4; ++i) all.push_back(operands[i].to(place, i < 3 ? narrow : wide));
        return all;
      };
      const oracle::Tensors expected = oracle::with_gradients(
          in(at::kDouble, at::kDouble, at::kCPU),
          [&](const oracle::Tensors& x) { return oracle::entry_attention(x, pattern, options); });
      EXPECT_TRUE(expected[0].isnan().any().item<bool>());
      for (const at::ScalarType dtype : dtypes) {
        SCOPED_TRACE(c10::toString(dtype));
        const at::ScalarType wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
        const oracle::Tensors actual =
            oracle::with_gradients(in(dtype, wide, device), [&](const oracle::Tensors& x) {
              return attention(x[0], x[1], x[2], std::make_shared<SparseMask>(moved, x[3]), options);
            });
        for (int i = 0; i < 5; ++i) {
          const at::Tensor lost = expected[i].isnan().logical_and(actual[i].cpu().isnan().logical_not());
          EXPECT_EQ(lost.sum().item<std::int64_t>(), 0) << names[i];
        }
        if (c.engine == Engine::mask) {  // which touches nothing else
          EXPECT_TRUE(at::equal(expected[0].isnan(), actual[0].cpu().isnan()));
        }
      }
    }
  }
}

}  // namespace topomask::testing
