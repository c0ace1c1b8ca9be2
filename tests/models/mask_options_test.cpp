// What the options of a mask make of it in a vision transformer: ensembles, an f of the keys, signs, and
// graphs of patches that are not the grid.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "core/random.h"
#include "minute_vit.h"
#include "nn/mask_bank.h"
#include "topomask/grf_mask.h"
#include "topomask/models.h"

namespace topomask {
namespace {

using oracle::expect_error;
using oracle::max_difference;
using oracle::test_values;

struct OptionCase {
  std::vector<std::int64_t> grid;
  int max_hops;
  Ensembles ensembles;
  bool key_f, absolute, share_walks;
  const char* graph;
};

// A small grid is written out, a large one stays sparse: both are the library's mask.
TEST(MaskOptions, AreThoseOfTheLibrarysMask) {
  std::vector<OptionCase> cases;
  for (const auto& grid : {std::vector<std::int64_t>{4, 4}, {36, 36}})
    for (const Ensembles ensembles : {Ensembles::shared, Ensembles::independent, Ensembles::asymmetric})
      for (const bool key_f : {false, true})
        for (const bool absolute : {false, true})
          if (!key_f || ensembles != Ensembles::asymmetric)
            cases.push_back({grid, grid[0] == 4 ? 5 : 2, ensembles, key_f, absolute, key_f == absolute,
                             absolute ? "diagonals" : "knn:5,jitter=0.4"});
  for (const OptionCase& c : cases) {
    SCOPED_TRACE(::testing::Message() << c.grid[0] << ", " << word_of(c.ensembles) << ", key_f " << c.key_f
                                      << ", absolute " << c.absolute);
    MaskOptions options = {.num_walks = 5, .p_halt = 0.2, .max_hops = c.max_hops, .seed = 11};
    options.share_walks = c.share_walks;
    options.ensembles = c.ensembles;
    options.key_f = c.key_f;
    options.absolute = c.absolute;
    options.patch_graph = c.graph;
    const auto module =
        make_mask_module(AttentionVariant::grf, options, {.grid = c.grid, .heads = 2, .layer = 3});
    const at::NoGradGuard no_grad;
    at::Tensor f = module->named_parameters()["f"];
    ASSERT_EQ(f.dim(), c.key_f ? 3 : 2);
    EXPECT_NEAR(f.flatten()[2].item<double>(), std::exp(-0.02), 1e-7);
    f.copy_(test_values(f.sizes()));
    FeatureOptions features;
    features.walks.num_walks = 5;
    features.walks.max_hops = c.max_hops;
    features.walks.p_halt = 0.2;
    features.walks.seed = c.share_walks ? 11 : derive_seed(11, 3);
    features.ensembles = c.ensembles;
    const Graph graph = patch_graph(c.grid, c.graph);
    const MaskPtr expected =
        c.share_walks ? std::make_shared<GrfMask>(graph, features, f) : GrfMask::per_head(graph, features, f);
    const at::Tensor matrix = expected->dense(at::kFloat), used = c.absolute ? matrix.abs() : matrix;
    EXPECT_LE(max_difference(module->mask()->dense(at::kFloat), used), 1e-5);
    EXPECT_LT(matrix.min().item<double>(), -1e-3);  // so that a magnitude means something
  }
}

VitOptions two_layers(AttentionVariant variant) {
  VitOptions options = oracle::minute_images(variant);
  options.layers = 2;
  return options;
}

TEST(MaskOptions, ModelsWithAnFOfTheKeysHaveTheGradientsOfFiniteDifferences) {
  for (const AttentionVariant variant : {AttentionVariant::grf, AttentionVariant::power_series}) {
    VitOptions options = two_layers(variant);
    options.mask.key_f = true;
    options.mask.ensembles = Ensembles::independent;
    VisionTransformer model(options);
    model->to(at::kDouble);
    oracle::fill_all(model);
    std::vector<at::Tensor> learned;
    for (const auto& item : model->named_parameters()) {
      if (parameter_kind(item.key(), item.value()) != ParameterKind::mask) continue;
      EXPECT_EQ(item.value().sizes(), (std::vector<std::int64_t>{2, 2, 4}));
      learned.push_back(item.value());
    }
    ASSERT_EQ(learned.size(), 2u);
    const at::Tensor images = test_values({2, 1, 6, 6}, 40);
    oracle::expect_gradients(learned, [&] {
      const at::Tensor logits = model->forward(images);
      return (logits * test_values(logits.sizes(), 41)).sum();
    });
  }
}

// A Toeplitz mask of ones is no mask, so a model with masks in all blocks can act as one with fewer.
TEST(MaskOptions, EveryOtherBlockHasTheMask) {
  const at::NoGradGuard no_grad;
  for (const auto& [variant, without] :
       {std::pair{AttentionVariant::toeplitz, AttentionVariant::linear},
        std::pair{AttentionVariant::softmax_grf_bias, AttentionVariant::softmax}}) {
    VitOptions options = oracle::minute_clips(Encoder::factorised, variant);
    options.layers = 5;
    options.temporal_layers = 2;
    options.mask.every = 2;
    VisionTransformer some(options);
    some->to(at::kDouble);
    oracle::fill_all(some);
    std::vector<std::string> masked;
    for (const auto& item : some->named_parameters())
      if (parameter_kind(item.key(), item.value()) == ParameterKind::mask) masked.push_back(item.key());
    ASSERT_EQ(masked.size(), 4u);
    for (const char* block : {"blocks.0.", "blocks.2.", "blocks.4.", "temporal.blocks.0."})
      EXPECT_TRUE(std::any_of(masked.begin(), masked.end(), [&](const auto& name) {
        return name.starts_with(std::string(block) + "attention.mask.");
      })) << block;
    for (const int layer : {1, 3, 6}) EXPECT_EQ(options.attention_of(layer), without) << layer;
    for (const int layer : {0, 2, 4, 5}) EXPECT_EQ(options.attention_of(layer), variant) << layer;

    options.mask.every = 1;
    VisionTransformer all(options);
    all->to(at::kDouble);
    const auto known = some->named_parameters();
    for (const auto& item : all->named_parameters()) {
      const at::Tensor* same = known.find(item.key());
      // Blocks without a mask: all weights are multiplied by 1, or 0 is added to all logits.
      if (same != nullptr)
        item.value().copy_(*same);
      else
        item.value().fill_(variant == AttentionVariant::toeplitz ? 1 : 0);
    }
    const at::Tensor clips = test_values({3, 4, 1, 4, 6}, 40);
    EXPECT_LE(max_difference(some->forward(clips), all->forward(clips)), 1e-12);
    for (const auto& item : all->named_parameters())
      if (known.find(item.key()) == nullptr) item.value().copy_(test_values(item.value().sizes(), 41).mul(4));
    EXPECT_GT(max_difference(some->forward(clips), all->forward(clips)), 1e-6);
  }
}

// FAVOR+ estimates softmax attention: with many features a performer comes near it.
TEST(Performer, ComesNearSoftmaxWithManyFeatures) {
  const at::NoGradGuard no_grad;
  const auto logits_of = [](AttentionVariant variant, std::int64_t features) {
    VitOptions options = two_layers(variant);
    options.random_features = features;
    VisionTransformer model(options);
    model->to(at::kDouble);
    int salt = 0;
    for (const auto& item : model->named_parameters()) {
      const bool mask = parameter_kind(item.key(), item.value()) == ParameterKind::mask;
      const at::Tensor decay = at::arange(4, at::kDouble).mul(-1).exp();
      item.value().detach().copy_(mask ? decay.expand_as(item.value())
                                       : 0.5 * test_values(item.value().sizes(), ++salt));
    }
    return model->forward(test_values({3, 1, 6, 6}, 40));
  };
  const at::Tensor softmax = logits_of(AttentionVariant::softmax, 1);
  const double few = max_difference(logits_of(AttentionVariant::performer, 20), softmax);
  EXPECT_LT(max_difference(logits_of(AttentionVariant::performer, 20000), softmax), few / 10);
  EXPECT_GT(few, 1e-4);
  // With a mask it is softmax times that mask.
  const at::Tensor masked = logits_of(AttentionVariant::softmax_grf, 1);
  EXPECT_LT(max_difference(logits_of(AttentionVariant::performer_grf, 20000), masked),
            max_difference(softmax, masked) / 10);
}

// How much of Phi's hops is left when those of ad-hoc walks, the same walks, are scaled as well as one number
// per hop can: what importance weights do beyond what a learnable f does.
double beyond_a_learned_f(const Graph& graph) {
  FeatureOptions options;
  options.walks.num_walks = 200;
  options.walks.max_hops = 4;
  options.walks.p_halt = 0.2;
  options.walks.seed = 3;
  const WalkFeatures weighted = sample_features(graph, options).query;
  options.importance_weights = false;
  const WalkFeatures counted = sample_features(graph, options).query;
  double left = 0, all = 0;
  for (int hop = 1; hop <= 4; ++hop) {
    at::Tensor only = at::zeros({5}, at::kDouble);
    only[hop] = 1;
    const at::Tensor grf = weighted.to_dense(only), ad_hoc = counted.to_dense(only);
    const double scale = ((grf * ad_hoc).sum() / ad_hoc.square().sum()).item<double>();
    left += (grf - scale * ad_hoc).square().sum().item<double>();
    all += grf.square().sum().item<double>();
  }
  return std::sqrt(left / all);
}

TEST(PatchGraph, ImportanceWeightsMatterOffTheGrid) {
  const double grid = beyond_a_learned_f(patch_graph({12, 12}));
  const double neighbours = beyond_a_learned_f(patch_graph({12, 12}, "knn:8"));
  EXPECT_LT(grid, 0.1);
  EXPECT_GT(neighbours, 0.4);
}

TEST(PatchGraph, HasTheNeighboursOfMovedCells) {
  EXPECT_EQ(patch_graph({5, 5}, "diagonals").row_ptr.diff().max().item<std::int64_t>(), 8);
  const Graph still = patch_graph({6, 6}, "knn:4,jitter=0");
  // Inside, the four nearest cells are the grid's; at the border others step in.
  EXPECT_TRUE(still.is_symmetric());
  EXPECT_NEAR(still.weight.sum().item<double>() / 36, 1, 0.1);  // W is normalised
  const Graph moved = patch_graph({6, 6}, "knn:4,jitter=0.5");
  EXPECT_TRUE(moved.is_symmetric());
  EXPECT_FALSE(at::equal(moved.row_ptr, still.row_ptr));
  EXPECT_TRUE(at::equal(moved.weight, patch_graph({6, 6}, "knn:4").weight));
  EXPECT_FALSE(at::equal(moved.row_ptr, patch_graph({6, 6}, "knn:4,seed=1").row_ptr));
  EXPECT_EQ(patch_graph({3, 4, 5}, "knn:6").num_nodes(), 60);  // tubelets
  EXPECT_EQ(patch_graph({1, 1}, "knn:6").num_nodes(), 1);
}

TEST(PatchGraph, SaysWhatDoesNotFit) {
  const auto check_with = [](const char* graph, AttentionVariant variant = AttentionVariant::grf) {
    return [=] {
      VitOptions options = two_layers(variant);
      options.mask.patch_graph = graph;
      check_vit_options(options);
    };
  };
  expect_error(check_with("ring"), "--patch-graph: expected grid, diagonals or knn:K[,jitter=0.5][,seed=0]");
  expect_error(check_with("knn:0"), "--patch-graph knn:0: expected a size from 1 to 1024, got '0'");
  expect_error(check_with("knn:4,jiter=1"), "there is no option 'jiter', did you mean 'jitter'?");
  expect_error(check_with("knn:4,jitter=nan"), "expected jitter from 0");
  expect_error(check_with("knn:4", AttentionVariant::toeplitz), "toeplitz needs --patch-graph grid");
  check_with("knn:4", AttentionVariant::neighbours)();
  expect_error(
      [] {
        VitOptions options = two_layers(AttentionVariant::grf);
        options.mask.every = 0;
        check_vit_options(options);
      },
      "mask: mask-every must be 1 or more, got 0");
  VitOptions options = two_layers(AttentionVariant::grf_asymmetric);
  options.mask.key_f = true;
  expect_error([&] { check_vit_options(options); }, "key-f: asymmetric ensembles have one-hot keys");
  options.attention = AttentionVariant::linear;  // has no f at all
  check_vit_options(options);
}

}  // namespace
}  // namespace topomask
