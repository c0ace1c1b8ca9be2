// Gradients summed over ranks: the sums, their bits, and that they travel while others are computed.
#include "train/gradient_reducer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>

namespace topomask {
namespace {

constexpr int kLayers = 5;

// x W_1 ... W_5, and a parameter that only some ranks use.
struct Chain {
  Chain() {
    for (int i = 0; i < kLayers; ++i) {
      const at::Tensor weight = (at::arange(36, at::kDouble) * (i + 1)).sin().view({6, 6});
      parameters.push_back({"w" + std::to_string(i), weight.requires_grad_()});
    }
    parameters.push_back({"rare", at::ones({3}, at::kDouble).requires_grad_()});
    parameters.push_back({"unused", at::ones({2}, at::kDouble).requires_grad_()});
    parameters.push_back({"half", at::full({2}, 0.1, at::kFloat).requires_grad_()});
  }
  at::Tensor loss(std::int64_t batch, bool rare) const {
    at::Tensor x = (at::arange(24, at::kDouble) + 100 * batch).cos().view({4, 6});
    for (int i = 0; i < kLayers; ++i) x = x.matmul(parameters[static_cast<std::size_t>(i)].tensor).tanh();
    at::Tensor total = x.square().sum() + (parameters[7].tensor * batch).sum();
    if (rare) total = total + parameters[5].tensor.square().sum();
    return total;
  }
  std::vector<NamedParameter> parameters;
};

TEST(GradientReducer, SumsInTheOrderOfRanksWithTheSameBits) {
  for (const int size : {1, 2, 3, 4}) {
    for (const std::int64_t bucket_bytes : {1, 700, 1 << 20}) {
      std::vector<std::vector<at::Tensor>> found(static_cast<std::size_t>(size));
      Ranks::run_threads(size, [&](const RanksPtr& ranks) {
        const int rank = ranks->rank();
        Chain chain;
        GradientReducer reducer(chain.parameters, ranks, bucket_bytes);
        for (int step = 0; step < 3; ++step) {
          for (NamedParameter& parameter : chain.parameters) parameter.tensor.mutable_grad() = at::Tensor();
          // Two batches, of which the first alone may use the rare parameter.
          chain.loss(10 * step + 2 * rank, rank == 1).backward();
          reducer.start();
          chain.loss(10 * step + 2 * rank + 1, false).backward();
          reducer.finish();
        }
        for (const NamedParameter& parameter : chain.parameters)
          found[static_cast<std::size_t>(rank)].push_back(parameter.tensor.grad());
        const std::size_t buckets = bucket_bytes == 1 ? 8 : bucket_bytes == 700 ? 4 : 2;
        EXPECT_EQ(reducer.num_buckets(), size == 1 ? 0 : buckets);
      });
      Chain chain;
      for (int rank = 0; rank < size; ++rank) {
        chain.loss(20 + 2 * rank, rank == 1).backward();
        chain.loss(20 + 2 * rank + 1, false).backward();
      }
      for (std::size_t i = 0; i < chain.parameters.size(); ++i) {
        const at::Tensor expected = chain.parameters[i].tensor.grad();
        for (const auto& of_rank : found) {
          ASSERT_EQ(of_rank[i].defined(), expected.defined()) << chain.parameters[i].name;
          if (!expected.defined()) continue;
          EXPECT_TRUE(at::allclose(of_rank[i], expected, 1e-12, 1e-12)) << chain.parameters[i].name;
          EXPECT_TRUE(at::equal(of_rank[i], found[0][i])) << chain.parameters[i].name;
        }
      }
      EXPECT_EQ(chain.parameters[5].tensor.grad().defined(), size > 1);
      EXPECT_FALSE(chain.parameters[6].tensor.grad().defined());
    }
  }
}

TEST(GradientReducer, StartsWhileTheBackwardPassStillRuns) {
  Ranks::run_threads(2, [&](const RanksPtr& ranks) {
    Chain chain;
    std::vector<NamedParameter> weights(chain.parameters.begin(), chain.parameters.begin() + kLayers);
    GradientReducer reducer(weights, ranks, 1);
    ASSERT_EQ(reducer.num_buckets(), 5u);
    std::size_t at_the_first_layer = 0;
    weights[0].tensor.register_hook([&](const at::Tensor&) { at_the_first_layer = reducer.num_started(); });
    reducer.start();
    chain.loss(0, false).backward();
    reducer.finish();
    EXPECT_EQ(at_the_first_layer, 4u);  // those of all other layers are under way
    EXPECT_EQ(reducer.num_started(), 5u);
  });
}

TEST(GradientReducer, LeavesOtherBackwardPassesAlone) {
  Ranks::run_threads(2, [&](const RanksPtr& ranks) {
    Chain chain, alone;
    alone.loss(ranks->rank(), true).backward();
    {
      GradientReducer reducer(chain.parameters, ranks);
      chain.loss(ranks->rank(), true).backward();
    }
    chain.loss(ranks->rank(), true).backward();
    for (std::size_t i = 0; i < kLayers; ++i)
      EXPECT_TRUE(at::allclose(chain.parameters[i].tensor.grad(), 2 * alone.parameters[i].tensor.grad()));
  });
}

}  // namespace
}  // namespace topomask
