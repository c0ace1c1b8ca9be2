// The feature engine by columns against the mask engine, and hubs against the sum written out.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <vector>

#include "attention/engines.h"
#include "core/parallel.h"
#include "topomask/attention.h"
#include "topomask/graph_builders.h"
#include "topomask/grf_mask.h"

namespace topomask {
namespace {

using Tensors = std::vector<at::Tensor>;

// The result and the gradients of its product with a fixed direction.
template <class Attend>
Tensors differentiate(const Attend& attend, const Tensors& values) {
  Tensors leaves;
  for (const at::Tensor& value : values) leaves.push_back(value.detach().clone().requires_grad_());
  const at::Tensor out = attend(leaves);
  const at::Tensor direction =
      (at::arange(out.numel(), at::kDouble) * 0.7 + 0.2).sin().view(out.sizes()).to(out.scalar_type());
  Tensors result = torch::autograd::grad({out}, leaves, {direction});
  result.insert(result.begin(), out);
  return result;
}

void expect_close(const Tensors& actual, const Tensors& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  // A gradient may vanish where others do not: errors are measured against the largest.
  double scale = 0;
  for (const at::Tensor& x : expected) scale = std::max(scale, x.norm().item<double>());
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_LE((actual[i] - expected[i]).norm().item<double>(), tolerance * scale) << "tensor " << i;
}

TEST(ColumnEngine, AgreesWithTheMaskEngine) {
  at::manual_seed(1);
  const std::vector<Graph> graphs = {normalise(barabasi_albert(300, 3, 5), Normalisation::symmetric),
                                     normalise(erdos_renyi(200, 0.005, 3), Normalisation::symmetric),
                                     normalise(grid_graph({9, 11}), Normalisation::random_walk),
                                     path_graph(1)};
  for (const Graph& graph : graphs) {
    for (const Ensembles ensembles : {Ensembles::shared, Ensembles::independent}) {
      for (const bool per_head : {false, true}) {
        for (const auto& [m, d_v] : {std::pair<std::int64_t, std::int64_t>{16, 16}, {5, 3}, {70, 33}}) {
          for (const FeatureMapKind map : {FeatureMapKind::relu, FeatureMapKind::elu1}) {
            if (map == FeatureMapKind::elu1 && m != 5) continue;
            SCOPED_TRACE(::testing::Message() << graph.num_nodes() << " nodes, " << word_of(ensembles) << ", "
                                              << m << " and " << d_v << " channels, per head " << per_head);
            FeatureOptions features;
            features.walks.num_walks = 8;
            features.walks.p_halt = 0.3;
            features.walks.max_hops = 5;
            features.ensembles = ensembles;
            const std::int64_t n = graph.num_nodes();
            const Tensors values = {
                at::randn({2, 2, n, m}, at::kDouble), at::randn({2, 2, n, m}, at::kDouble),
                at::randn({2, 2, n, d_v}, at::kDouble), at::rand({per_head ? 2 : 1, 6}, at::kDouble) + 0.1};
            // At zero, where max(x, 0) has two derivatives, all engines take the same.
            for (const std::size_t operand : {0, 1})
              values[operand].masked_fill_(at::rand({2, 2, n, m}) < 0.02, 0);
            const auto with = [&](Engine engine) {
              return differentiate(
                  [&](const Tensors& x) {
                    AttentionOptions options;
                    options.engine = engine;
                    options.feature_map.kind = map;
                    const std::shared_ptr<const Mask> mask =
                        per_head ? GrfMask::per_head(graph, features, x[3])
                                 : std::make_shared<GrfMask>(graph, features, x[3]);
                    return attention(x[0], x[1], x[2], mask, options);
                  },
                  values);
            };
            expect_close(with(Engine::feature), with(Engine::mask), 1e-10);
          }
        }
      }
    }
  }
}

// Every node meets node 0 and itself: column 0 is a hub, which the threads share, and all others have one
// entry.
class Hub : public ::testing::Test {
 protected:
  static constexpr std::int64_t kNodes = 5000, kChannels = 6;

  Hub() {
    at::manual_seed(2);
    const at::Tensor node = at::arange(kNodes, at::kInt);
    const at::Tensor row_ptr = at::cat({at::zeros({1}, at::kLong), at::arange(1, 2 * kNodes, 2)});
    const at::Tensor col = at::stack({at::zeros_like(node), node}, 1).flatten().slice(0, 1);
    pattern_ = std::make_shared<const SparsePattern>(SparsePattern::from_rows(row_ptr, col));
    const auto positive = [](at::IntArrayRef sizes) { return at::rand(sizes, at::kDouble) + 0.1; };
    values_ = {positive({1, 1, kNodes, kChannels}), positive({1, 1, kNodes, kChannels}),
               at::randn({1, 1, kNodes, 5}, at::kDouble), positive({1, 2 * kNodes - 1}),
               positive({1, 2 * kNodes - 1})};
  }

  Tensors by_columns(at::ScalarType dtype) const {
    EngineInputs inputs;
    inputs.q = values_[0].to(dtype);
    inputs.k = values_[1].to(dtype);
    inputs.v = values_[2].to(dtype);
    const std::vector<SparseFactors> factors = {
        {{pattern_, values_[3].to(dtype)}, {pattern_, values_[4].to(dtype)}}};
    const EngineResult result = column_engine_forward(inputs, factors);
    const at::Tensor direction =
        (at::arange(result.out.numel(), at::kDouble) * 0.7 + 0.2).sin().view(result.out.sizes()).to(dtype);
    const EngineGradients grads = column_engine_backward(direction, inputs, factors, result, true);
    return {result.out, grads.q, grads.k, grads.v, grads.mask[0], grads.mask[1]};
  }

  std::shared_ptr<const SparsePattern> pattern_;
  Tensors values_;
};

TEST_F(Hub, IsTheSumWrittenOut) {
  const auto written_out = [](const Tensors& x) {
    // Values of (0, 0), then of (i, 0) and (i, i) in turns.
    const auto parts = [](const at::Tensor& values) {
      const at::Tensor pairs = values[0].slice(0, 1).view({-1, 2});
      const at::Tensor own = at::cat({at::zeros({1}, values.options()), pairs.select(1, 1)});
      return std::pair{at::cat({values[0].slice(0, 0, 1), pairs.select(1, 0)}).unsqueeze(-1),
                       own.unsqueeze(-1)};
    };
    const auto [phi_hub, phi_own] = parts(x[3]);
    const auto [psi_hub, psi_own] = parts(x[4]);
    const at::Tensor q = x[0][0][0], k = x[1][0][0];
    const at::Tensor v1 = at::cat({x[2][0][0], at::ones({q.size(0), 1}, q.options())}, 1);
    const at::Tensor state = k.mul(psi_hub).t().matmul(v1);
    const at::Tensor sums = phi_hub * q.matmul(state) + phi_own * psi_own * (q * k).sum(1, true) * v1;
    return (sums.slice(1, 0, 5) / sums.slice(1, 5)).view({1, 1, q.size(0), 5});
  };
  const Tensors expected = differentiate(written_out, values_);
  expect_close(by_columns(at::kDouble), expected, 1e-11);
  Tensors single = by_columns(at::kFloat);
  for (at::Tensor& x : single) x = x.to(at::kDouble);
  expect_close(single, expected, 1e-4);
}

TEST_F(Hub, IsTheSameForAnyNumberOfThreads) {
  const int before = num_threads();
  set_num_threads(1);
  const Tensors alone = by_columns(at::kFloat);
  for (const int threads : {2, 5}) {
    set_num_threads(threads);
    const Tensors together = by_columns(at::kFloat);
    for (std::size_t i = 0; i < alone.size(); ++i)
      EXPECT_TRUE(together[i].equal(alone[i])) << threads << " " << i;
  }
  set_num_threads(before);
}

}  // namespace
}  // namespace topomask
