// Attention over ranks and all its gradients against one process: every graph, number of ranks, kind of
// ensembles and engine, in both dtypes.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "distributed/cases.h"
#include "support/expect_error.h"
#include "topomask/distributed.h"
#include "topomask/grf_mask.h"
#include "topomask/masks.h"

namespace topomask {
namespace {

using topomask::testing::expect_error;
using topomask::testing::feature_options;

constexpr std::int64_t kBatch = 2, kHeads = 2, kChannels = 5, kValues = 3;

struct Operands {
  at::Tensor q, k, v, f, weight;  // weight: of the loss sum(weight * out)

  Operands(std::int64_t nodes, at::ScalarType dtype) {
    const auto draw = [&](std::int64_t columns, std::int64_t salt) {
      // Without a generator: a function of its place, so that every rank has the same numbers.
      at::Tensor x = at::arange(kBatch * kHeads * nodes * columns, at::kDouble);
      return (x * 12.9898 + static_cast<double>(salt)).sin().view({kBatch, kHeads, nodes, columns}).to(dtype);
    };
    q = draw(kChannels, 1);
    k = draw(kChannels, 2);
    v = draw(kValues, 3);
    weight = draw(kValues, 4);
    f = at::tensor({1.0, 0.6, 0.3, 0.2, 0.9, -0.4, 0.3, 0.1}, at::kDouble).view({kHeads, 4}).to(dtype);
    if (dtype == at::kDouble) return;
    // Normalisers near zero would leave few digits in any order of sums.
    f = f.abs();
    q = q.abs() + 0.2;
    k = k.abs() + 0.2;
  }
  Operands rows(const at::Tensor& nodes) const {
    Operands own = *this;
    for (at::Tensor* x : {&own.q, &own.k, &own.v, &own.weight}) *x = x->index_select(2, nodes);
    return own;
  }
  std::vector<at::Tensor> leaves() {
    std::vector<at::Tensor> all;
    for (at::Tensor* x : {&q, &k, &v, &f}) all.push_back(*x = x->detach().clone().requires_grad_());
    return all;
  }
};

// Output, then the gradients of q, k, v and f.
template <class Attend>
std::vector<at::Tensor> outputs_of(Operands operands, const Attend& attend) {
  const std::vector<at::Tensor> leaves = operands.leaves();
  const at::Tensor out = attend(operands);
  std::vector<at::Tensor> all = {out.detach()};
  for (const at::Tensor& grad : torch::autograd::grad({(out * operands.weight).sum()}, leaves, {},
                                                      std::nullopt, false, /*allow_unused=*/true))
    all.push_back(grad);
  return all;
}

void expect_close(const std::vector<at::Tensor>& whole, const std::vector<at::Tensor>& own,
                  const at::Tensor& nodes) {
  const char* names[] = {"out", "q", "k", "v", "f"};
  ASSERT_EQ(whole.size(), own.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (!whole[i].defined()) continue;
    ASSERT_TRUE(own[i].defined()) << names[i] << " has no gradient";
    const at::Tensor expected = i == 4 ? whole[i] : whole[i].index_select(2, nodes);
    const double tolerance = own[i].scalar_type() == at::kDouble ? 1e-12 : 1e-5;
    const double size = whole[i].numel() == 0 ? 1.0 : std::max(1.0, whole[i].abs().max().item<double>());
    EXPECT_TRUE(at::allclose(own[i], expected, 0, tolerance * size))
        << names[i] << " differs by "
        << (own[i].numel() == 0 ? 0.0 : (own[i] - expected).abs().max().item<double>()) << " of " << size;
  }
}

struct Variant {
  std::string name;
  Ensembles ensembles = Ensembles::shared;
  at::ScalarType dtype = at::kDouble;
  AttentionOptions attention;
};

std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (const auto& ensembles : words<Ensembles>()) {
    for (const Engine engine : {Engine::mask, Engine::feature}) {
      for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
        Variant variant;
        variant.name =
            std::string(ensembles.word) + " " + std::string(word_of(engine)) + " " + c10::toString(dtype);
        variant.ensembles = ensembles.value;
        variant.dtype = dtype;
        variant.attention.engine = engine;
        all.push_back(variant);
      }
    }
  }
  return all;
}

TEST(DistributedAttention, is_that_of_one_process) {
  const std::vector<Variant> all = variants();
  for (const testing::GraphCase& one : testing::graph_cases()) {
    SCOPED_TRACE(one.name);
    const Graph graph = normalise(one.graph, Normalisation::symmetric);
    std::vector<std::vector<at::Tensor>> expected;
    for (const Variant& variant : all) {
      const GraphFeatures features = sample_features(graph, feature_options(variant.ensembles));
      expected.push_back(outputs_of(Operands(graph.num_nodes(), variant.dtype), [&](const Operands& x) {
        const auto mask = std::make_shared<GrfMask>(std::vector<GraphFeatures>{features}, x.f);
        return attention(x.q, x.k, x.v, mask, variant.attention);
      }));
    }
    for (const int size : testing::kRankCounts) {
      const Partition partition = testing::parts_of(graph, size);
      Ranks::run_threads(size, [&](const RanksPtr& ranks) {
        const DistributedGraph part = DistributedGraph::from_graph(graph, partition, ranks);
        for (std::size_t i = 0; i < all.size(); ++i) {
          SCOPED_TRACE(one.name + ", " + all[i].name + ", " + std::to_string(size) + " ranks");
          const Operands own = Operands(graph.num_nodes(), all[i].dtype).rows(part.nodes());
          const DistributedGrfMask mask(part, feature_options(all[i].ensembles), own.f);
          expect_close(expected[i],
                       outputs_of(own,
                                  [&](const Operands& x) {
                                    return attention(x.q, x.k, x.v, *mask.with_f(x.f), all[i].attention);
                                  }),
                       part.nodes());
        }
      });
    }
  }
}

// On a path few rows lie at a border: there queries and keys share the rows of the interior. An f of the
// keys' own parts their values.
TEST(DistributedAttention, with_few_rows_at_the_boundary_and_an_f_of_the_keys) {
  const Graph graph = normalise(path_graph(240), Normalisation::symmetric);
  std::vector<Variant> all = variants();
  Variant softmax;
  softmax.name = "softmax";
  softmax.attention.kind = AttentionKind::softmax;
  all.push_back(softmax);
  for (const Variant& variant : all) {
    for (const bool two_f : {false, true}) {
      if (two_f && variant.ensembles == Ensembles::asymmetric) continue;
      Operands whole(graph.num_nodes(), variant.dtype);
      if (two_f) whole.f = at::stack({whole.f, whole.f.flip(1) * 0.5}, 1);
      const FeatureOptions options = feature_options(variant.ensembles);
      const auto expected = outputs_of(whole, [&](const Operands& x) {
        return attention(x.q, x.k, x.v, std::make_shared<GrfMask>(graph, options, x.f), variant.attention);
      });
      for (const int size : {2, 3}) {
        SCOPED_TRACE(variant.name + (two_f ? ", two f, " : ", ") + std::to_string(size) + " ranks");
        Ranks::run_threads(size, [&](const RanksPtr& ranks) {
          const DistributedGraph part =
              DistributedGraph::from_graph(graph, testing::parts_of(graph, size), ranks);
          const Operands own = whole.rows(part.nodes());
          const DistributedGrfMask mask(part, options, own.f);
          EXPECT_LT(8 * mask.counts(Engine::mask).boundary_rows, part.num_own());
          expect_close(expected,
                       outputs_of(own,
                                  [&](const Operands& x) {
                                    return attention(x.q, x.k, x.v, *mask.with_f(x.f), variant.attention);
                                  }),
                       part.nodes());
        });
      }
    }
  }
  const DistributedGraph one =
      DistributedGraph::from_graph(graph, testing::parts_of(graph, 1), Ranks::alone());
  expect_error(
      [&] {
        DistributedGrfMask(one, feature_options(Ensembles::asymmetric), at::ones({1, 2, 4}));
      },
      "one-hot keys without an f of their own");
}

TEST(DistributedAttention, heads_may_have_walks_of_their_own) {
  const std::vector<testing::GraphCase> cases = testing::graph_cases();
  for (const testing::GraphCase& one : {cases[0], cases[3]}) {  // a grid and a directed graph
    const Graph graph = normalise(one.graph, Normalisation::symmetric);
    for (const Variant& variant : variants()) {
      if (variant.dtype != at::kDouble) continue;
      const Operands whole(graph.num_nodes(), at::kDouble);
      const FeatureOptions options = feature_options(variant.ensembles);
      const auto mask = GrfMask::per_head(graph, options, whole.f);
      const auto expected = outputs_of(whole, [&](const Operands& x) {
        return attention(x.q, x.k, x.v, mask->with_f(x.f), variant.attention);
      });
      for (const int size : {1, 3}) {
        SCOPED_TRACE(one.name + ", " + variant.name + ", " + std::to_string(size) + " ranks");
        Ranks::run_threads(size, [&](const RanksPtr& ranks) {
          const DistributedGraph part =
              DistributedGraph::from_graph(graph, testing::parts_of(graph, size), ranks);
          const Operands own = whole.rows(part.nodes());
          const auto parts = DistributedGrfMask::per_head(part, options, own.f);
          EXPECT_EQ(parts->num_sets(), kHeads);
          expect_close(expected,
                       outputs_of(own,
                                  [&](const Operands& x) {
                                    return attention(x.q, x.k, x.v, *parts->with_f(x.f), variant.attention);
                                  }),
                       part.nodes());
          const at::Tensor x = own.v[0];
          EXPECT_TRUE(at::allclose(parts->multiply(x),
                                   mask->multiply(whole.v[0]).index_select(1, part.nodes()), 1e-12, 1e-12));
          expect_error([&] { parts->with_f(own.f.narrow(0, 0, 1)); },
                       "there are walks for 2 heads, got f with 1 rows");
        });
      }
    }
  }
}

TEST(DistributedAttention, knows_softmax_feature_maps_packed_rows_and_no_mask) {
  const Graph graph = normalise(grid_graph({6, 5}), Normalisation::symmetric);
  const Operands whole(graph.num_nodes(), at::kDouble);
  const GraphFeatures features = sample_features(graph, feature_options(Ensembles::shared));
  const auto packed = [](const at::Tensor& x) { return x[0].permute({1, 0, 2}); };
  for (const auto& map : words<FeatureMapKind>()) {
    for (const AttentionKind kind : {AttentionKind::linear, AttentionKind::softmax}) {
      AttentionOptions options;
      options.kind = kind;
      options.feature_map.kind = map.value;
      options.feature_map.num_features = 8;
      options.engine = Engine::mask;
      SCOPED_TRACE(std::string(map.word) + " " + std::string(word_of(kind)));
      // Features of identity may be negative, and normalisers near zero: squares are not.
      Operands given = whole;
      if (map.value == FeatureMapKind::identity) {
        given.q = given.q.square();
        given.k = given.k.square();
      }
      const auto masked = outputs_of(given, [&](const Operands& x) {
        const auto mask = std::make_shared<GrfMask>(std::vector<GraphFeatures>{features}, x.f.abs());
        return attention(x.q, x.k, x.v, mask, options);
      });
      std::vector<at::Tensor> plain;
      AttentionOptions without = options;
      without.engine = Engine::automatic;
      if (kind == AttentionKind::linear) {
        plain = outputs_of(given, [&](const Operands& x) {
          return attention(x.q, x.k, x.v, std::make_shared<NoMask>(graph.num_nodes()), without);
        });
      }
      Ranks::run_threads(3, [&](const RanksPtr& ranks) {
        const DistributedGraph part = DistributedGraph::from_graph(graph, testing::parts_of(graph, 3), ranks);
        const Operands own = given.rows(part.nodes());
        const DistributedGrfMask mask(part, feature_options(Ensembles::shared), own.f);
        expect_close(masked,
                     outputs_of(own,
                                [&](const Operands& x) {
                                  return attention(x.q, x.k, x.v, *mask.with_f(x.f.abs()), options);
                                }),
                     part.nodes());
        const at::Tensor first =
            attention(packed(own.q), packed(own.k), packed(own.v), *mask.with_f(own.f.abs()), options);
        EXPECT_TRUE(
            at::allclose(first.permute({1, 0, 2}), masked[0][0].index_select(1, part.nodes()), 0, 1e-12));
        if (kind == AttentionKind::softmax) return;
        expect_close(
            plain,
            outputs_of(own, [&](const Operands& x) { return attention(x.q, x.k, x.v, ranks, without); }),
            part.nodes());
      });
    }
  }
}

TEST(DistributedAttention, sends_each_row_of_k_and_v_once) {
  const Graph graph = normalise(grid_graph({20, 20}), Normalisation::symmetric);
  Ranks::run_threads(4, [&](const RanksPtr& ranks) {
    const DistributedGraph part = DistributedGraph::from_graph(graph, testing::parts_of(graph, 4), ranks);
    const Operands own = Operands(graph.num_nodes(), at::kFloat).rows(part.nodes());
    const DistributedGrfMask mask(part, feature_options(Ensembles::shared), own.f);
    AttentionOptions options;
    options.engine = Engine::mask;
    const DistributedGrfMask::Counts counts = mask.counts(Engine::mask);
    EXPECT_EQ(counts.interior_rows + counts.boundary_rows, part.num_own());
    EXPECT_GT(counts.interior_rows, 0);
    EXPECT_GT(counts.halo, 0);
    attention(own.q, own.k, own.v, mask, options);
    ranks->reset_bytes_sent();
    attention(own.q, own.k, own.v, mask, options);
    EXPECT_EQ(ranks->bytes_sent(), counts.sends * kBatch * kHeads * (kChannels + kValues) * 4);
  });
}

TEST(DistributedAttention, takes_the_engine_with_less_work) {
  std::vector<std::pair<int, int>> star;
  for (int i = 1; i < 400; ++i) star.emplace_back(0, i);
  const Graph hub = testing::from_pairs(400, star, false), grid = grid_graph({20, 20});
  Ranks::run_threads(2, [&](const RanksPtr& ranks) {
    const auto chosen = [&](const Graph& graph) {
      const DistributedGraph part = DistributedGraph::from_graph(graph, testing::parts_of(graph, 2), ranks);
      const DistributedGrfMask mask(part, feature_options(Ensembles::shared), at::tensor({1.0, 0.5}));
      return choose_engine(mask, {}, 16, 4);
    };
    EXPECT_EQ(chosen(grid), Engine::mask);
    EXPECT_EQ(chosen(hub), Engine::feature);
  });
}

TEST(DistributedGrfMask, multiplies_as_in_one_process) {
  for (const testing::GraphCase& one : testing::graph_cases()) {
    for (const auto& ensembles : words<Ensembles>()) {
      const at::Tensor f = at::tensor({1.0, 0.5, 0.25, 0.1}, at::kDouble);
      const auto whole = std::make_shared<GrfMask>(one.graph, feature_options(ensembles.value), f);
      const at::Tensor x = Operands(one.graph.num_nodes(), at::kDouble).v[0];
      Ranks::run_threads(3, [&](const RanksPtr& ranks) {
        const DistributedGraph part =
            DistributedGraph::from_graph(one.graph, testing::parts_of(one.graph, 3), ranks);
        const DistributedGrfMask mask(part, feature_options(ensembles.value), f);
        for (const bool transposed : {false, true}) {
          SCOPED_TRACE(one.name + " " + std::string(ensembles.word) + (transposed ? " transposed" : ""));
          const at::Tensor expected = whole->multiply(x, transposed).index_select(1, part.nodes());
          EXPECT_TRUE(at::allclose(mask.multiply(x.index_select(1, part.nodes()), transposed), expected,
                                   1e-12, 1e-12));
        }
      });
    }
  }
}

TEST(DistributedAttention, keeps_the_feature_engine_within_max_workspace) {
  const Graph graph = grid_graph({4, 4});
  Ranks::run_threads(2, [&](const RanksPtr& ranks) {
    const DistributedGraph part = DistributedGraph::from_graph(graph, testing::parts_of(graph, 2), ranks);
    const Operands own = Operands(16, at::kDouble).rows(part.nodes());
    const DistributedGrfMask mask(part, feature_options(Ensembles::shared), own.f);
    AttentionOptions options;
    options.engine = Engine::feature;
    const at::Tensor usual = attention(own.q, own.k, own.v, mask, options);
    options.max_workspace = 6 * 8 * kBatch * kHeads * part.largest_part() * (kValues + 1);
    EXPECT_TRUE(at::allclose(attention(own.q, own.k, own.v, mask, options), usual));  // feature by feature
    --options.max_workspace;
    expect_error([&] { attention(own.q, own.k, own.v, mask, options); },
                 "bytes of workspace for one feature of the largest part, max_workspace is");
    for (const Engine engine : {Engine::feature, Engine::mask}) {
      options.engine = engine;
      options.max_workspace = -1;
      expect_error([&] { attention(own.q, own.k, own.v, mask, options); },
                   "max_workspace: expected at least 0 bytes, got -1");
    }
    expect_error([&] { attention(own.q, own.k, own.v, ranks, options); }, "max_workspace: expected");
  });
  expect_error([] { Ranks::run_threads(0, [](const RanksPtr&) {}); }, "ranks: expected 1 or more, got 0");
}

TEST(DistributedAttention, says_what_it_cannot_do) {
  const Graph graph = grid_graph({3, 3});
  Ranks::run_threads(2, [&](const RanksPtr& ranks) {
    const DistributedGraph part = DistributedGraph::from_graph(graph, testing::parts_of(graph, 2), ranks);
    const Operands own = Operands(9, at::kDouble).rows(part.nodes());
    const DistributedGrfMask mask(part, feature_options(Ensembles::shared), own.f);
    AttentionOptions options;
    options.engine = Engine::dense;
    expect_error([&] { attention(own.q, own.k, own.v, mask, options); },
                 "engines mask and feature, not dense");
    options.engine = Engine::feature;
    options.kind = AttentionKind::softmax;
    expect_error([&] { attention(own.q, own.k, own.v, mask, options); }, "linear attention, not softmax");
    expect_error([&] { attention(own.q, own.k, own.v, ranks, options); }, "linear attention, not softmax");
    const Operands all(9, at::kDouble);
    expect_error([&] { attention(all.q, all.k, all.v, mask); }, "q has 9");
    expect_error([&] { mask.with_f(at::Tensor()); }, "f must be a non-empty float32 or float64 tensor");
    expect_error([&] { mask.multiply(own.q); }, "x must be float32 or float64");
  });
}

}  // namespace
}  // namespace topomask
