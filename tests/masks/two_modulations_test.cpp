// GRF masks whose keys have an f of their own (App. D): M_hat = Phi Psi^T estimates sum_k (f1 * f2)_k W^k.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "masks/gradcheck.h"
#include "topomask/attention.h"
#include "topomask/graph_builders.h"
#include "topomask/grf_mask.h"
#include "topomask/kernels.h"
#include "topomask/mask_catalogue.h"

namespace topomask {
namespace {

using oracle::expect_error;
using oracle::test_values;

constexpr std::int64_t kTerms = 4;

FeatureOptions two_f_options(Ensembles ensembles, std::uint64_t seed = 3) {
  FeatureOptions options;
  options.walks.num_walks = 6;
  options.walks.max_hops = kTerms - 1;
  options.walks.p_halt = 0.3;
  options.walks.seed = seed;
  options.ensembles = ensembles;
  return options;
}

class TwoModulations : public ::testing::TestWithParam<Ensembles> {
 protected:
  static MaskPtr make(const Graph& graph, const at::Tensor& f, bool own_walks) {
    const FeatureOptions options = two_f_options(GetParam());
    return own_walks ? MaskPtr(GrfMask::per_head(graph, options, f))
                     : std::make_shared<GrfMask>(graph, options, f);
  }
};

TEST_P(TwoModulations, AreTheProductOfBothFeatures) {
  const Graph directed = Graph::from_csr(
      {{0, 2, 3, 5, 5, 6}, {1, 2, 2, 0, 4, 4}, {0.5f, -0.25f, 0.75f, 1.5f, -1.0f, 0.3f}}, true);
  for (const Graph& graph : {normalise(grid_graph({4, 3}), Normalisation::symmetric), directed, path_graph(1),
                             normalise(barabasi_albert(20, 2, 1), Normalisation::random_walk)}) {
    for (const bool own_walks : {false, true}) {
      const at::Tensor f = test_values({2, 2, kTerms});
      const MaskPtr mask = make(graph, f, own_walks);
      const auto& grf = dynamic_cast<const GrfMask&>(*mask);
      std::vector<at::Tensor> heads;
      for (const std::int64_t h : {0, 1})
        heads.push_back(
            grf.features(h).query.to_dense(f[h][0]).mm(grf.features(h).key.to_dense(f[h][1]).t()));
      mask->entries();  // counted, as the oracle wants them
      oracle::expect_matches(*mask, at::stack(heads));
    }
  }
}

TEST_P(TwoModulations, PassGradientsToBoth) {
  const Graph graph = normalise(grid_graph({3, 3}), Normalisation::symmetric);
  for (const bool own_walks : {false, true}) {
    const MaskPtr mask = make(graph, oracle::parameter({2, 2, kTerms}), own_walks);
    oracle::check_gradients(*mask);
    // What the mask engine calls in place of autograd.
    std::vector<at::Tensor> of_values;
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (const SparseEntries& part : mask->entries()) {
      of_values.push_back(test_values(part.values.sizes(), 7));
      sum = sum + (part.values * of_values.back()).sum();
    }
    const at::Tensor expected = torch::autograd::grad({sum}, mask->parameters())[0];
    EXPECT_LE(oracle::max_difference(mask->entry_gradients(of_values).at(0), expected), 1e-12);
  }
}

TEST_P(TwoModulations, AreThePlainMaskWhereBothAreEqual) {
  const Graph graph = normalise(grid_graph({5, 4}), Normalisation::symmetric);
  const at::Tensor f = test_values({2, kTerms});
  const at::Tensor one = make(graph, f, false)->dense(at::kDouble);
  const at::Tensor both = make(graph, at::stack({f, f}, 1), false)->dense(at::kDouble);
  EXPECT_LE(oracle::max_difference(one, both), 1e-13);
}

TEST_P(TwoModulations, AgreeInAllEngines) {
  const Graph graph = normalise(barabasi_albert(60, 2, 4), Normalisation::symmetric);
  const MaskPtr base = make(graph, at::ones({2, 2, kTerms}, at::kDouble), true);
  const auto run = [&](Engine engine, at::ScalarType dtype) {
    std::vector<at::Tensor> leaves = {test_values({2, 2, 60, 5}, 1), test_values({2, 2, 60, 5}, 2),
                                      test_values({2, 2, 60, 3}, 3),
                                      test_values({2, 2, kTerms}, 4).abs() + 0.1};
    for (at::Tensor& leaf : leaves) leaf = leaf.to(dtype).detach().requires_grad_();
    AttentionOptions options;
    options.engine = engine;
    const at::Tensor out =
        attention(leaves[0], leaves[1], leaves[2], base->with_parameters({leaves[3]}), options);
    std::vector<at::Tensor> results =
        torch::autograd::grad({(out * test_values(out.sizes(), 5)).sum()}, leaves);
    results.push_back(out);
    return results;
  };
  const std::vector<at::Tensor> expected = run(Engine::dense, at::kDouble);
  for (const Engine engine : {Engine::mask, Engine::feature, Engine::dense}) {
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      const std::vector<at::Tensor> actual = run(engine, dtype);
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_LE(oracle::max_difference(actual[i], expected[i]),
                  (dtype == at::kDouble ? 1e-11 : 2e-5) * expected[i].abs().max().item<double>())
            << word_of(engine) << ", tensor " << i;
    }
  }
}

// Every entry of the mean over many draws lies within its standard error of sum_k (f1 * f2)_k W^k. Shared
// walks have a diagonal that is biased, so there it is left out.
TEST_P(TwoModulations, EstimateTheSeriesOfTheirConvolution) {
  constexpr int kTrials = 400;
  const oracle::OneThread one_thread;
  const std::vector<double> f1 = {1.0, -0.6, 0.4, 0.2}, f2 = {0.7, 0.5, -0.3, 0.6};
  const at::Tensor f =
      at::tensor({f1[0], f1[1], f1[2], f1[3], f2[0], f2[1], f2[2], f2[3]}, at::kDouble).view({1, 2, kTerms});
  for (const Graph& graph : {normalise(grid_graph({3, 2}), Normalisation::symmetric),
                             normalise(barabasi_albert(7, 2, 3), Normalisation::random_walk)}) {
    const std::int64_t n = graph.num_nodes();
    at::Tensor sum = at::zeros({n, n}, at::kDouble), squares = at::zeros({n, n}, at::kDouble);
    const at::Tensor exact = dense_power_series(graph, convolve(f1, f2));
    for (int trial = 0; trial < kTrials; ++trial) {
      const at::Tensor off =
          GrfMask(graph, two_f_options(GetParam(), 100 + trial), f).dense(at::kDouble)[0] - exact;
      sum += off;
      squares += off.square();
    }
    const at::Tensor mean = sum / kTrials;
    const at::Tensor error = ((squares / kTrials - mean.square()) / (kTrials - 1)).sqrt();
    at::Tensor z = mean.abs() / error.clamp_min(1e-9);
    // Where the keys' walks are the queries' own, a node's two features share their noise.
    if (GetParam() == Ensembles::shared) z.fill_diagonal_(0);
    EXPECT_LE(z.max().item<double>(), 4);
    EXPECT_GE(z.max().item<double>(), 0.5);  // it is noise that is measured
  }
}

INSTANTIATE_TEST_SUITE_P(Both, TwoModulations, ::testing::Values(Ensembles::shared, Ensembles::independent));

MaskRequest two_f_request() {
  MaskRequest request;
  request.mask = "grf";
  request.graph = grid_graph({4, 4});
  request.heads = 3;
  request.dtype = at::kDouble;
  request.settings = {{"max_hops", "3"}, {"init", "1,2"}, {"key_init", "3,4,5"}};
  return request;
}

TEST(TwoModulationsByName, StartAsTheirSettingsSay) {
  const at::Tensor f = make_mask(two_f_request())->parameters().at(0);
  ASSERT_EQ(f.sizes(), (std::vector<std::int64_t>{3, 2, 4}));
  EXPECT_TRUE(at::equal(f[2][0], at::tensor({1.0, 2.0, 0.0, 0.0}, at::kDouble)));
  EXPECT_TRUE(at::equal(f[0][1], at::tensor({3.0, 4.0, 5.0, 0.0}, at::kDouble)));
  MaskRequest tensor = two_f_request();
  tensor.settings = {};
  tensor.parameters["f"] = test_values({3, 2, 6});
  const MaskPtr mask = make_mask(tensor);
  EXPECT_TRUE(at::equal(mask->parameters().at(0), tensor.parameters["f"]));
  EXPECT_EQ(dynamic_cast<const GrfMask&>(*mask).features().query.max_hops, 5);
}

TEST(TwoModulationsByName, SayWhatDoesNotFit) {
  MaskRequest request = two_f_request();
  request.settings["ensembles"] = "asymmetric";
  expect_error([&] { make_mask(request); }, "GRFMask: key_init: asymmetric ensembles have one-hot keys");
  request = two_f_request();
  request.parameters["f"] = test_values({3, 4});
  expect_error([&] { make_mask(request); },
               "f must be [heads, 2, max_hops + 1] where the keys have their own");
  request = two_f_request();
  request.parameters["f"] = test_values({3, 3, 4});
  expect_error([&] { make_mask(request); }, "[heads, 2, max_hops + 1] = [3, 2, 4], got Double [3, 3, 4]");
  request = two_f_request();
  request.settings["key_init"] = "1,2,3,4,5";
  expect_error([&] { make_mask(request); }, "GRFMask: key_init: expected at most 4 numbers");
  const Graph graph = path_graph(4);
  expect_error([&] { GrfMask(graph, {}, at::ones({1, 3, 2})); }, "[heads, 2, terms] (of queries and keys)");
  const GrfMask one_hot(graph, two_f_options(Ensembles::asymmetric), at::ones({1, 4}));
  expect_error([&] { one_hot.with_f(at::ones({1, 2, 4})); }, "one-hot keys have no f");
}

}  // namespace
}  // namespace topomask
