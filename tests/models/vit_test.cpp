// Vision transformers: sizes counted by hand, gradients of every variant, and what masks are made of.
#include "topomask/models.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"
#include "minute_vit.h"
#include "nn/mask_bank.h"
#include "nn/rules.h"
#include "topomask/grf_mask.h"
#include "topomask/image_training.h"

namespace topomask {
namespace {

using oracle::fill_all;
using oracle::max_difference;
using oracle::minute_images;
using oracle::test_values;

VitOptions small_images(VitOptions options) {
  options.channels = 3;
  options.height = options.width = 32;
  options.num_classes = 10;
  options.patch = 2;
  return options;
}

TEST(Vit, StartsAsAskedFor) {
  const auto start = [](InitialWeights initial) {
    VitOptions options = minute_images(AttentionVariant::linear);
    options.embedding = 64;
    options.mlp = 128;
    options.initial_weights = initial;
    options.initial_positions = 0.5;
    return VisionTransformer(options)->named_parameters();
  };
  const auto largest = [](const at::Tensor& x) { return x.abs().max().item<double>(); };
  const auto stddev = [](const at::Tensor& x) { return x.std().item<double>(); };
  const char* const matrix = "blocks.0.mlp.fc1.weight";
  const char* const bias = "blocks.0.mlp.fc1.bias";

  const auto xavier = start(InitialWeights::xavier);
  const double inputs = static_cast<double>(xavier[matrix].size(1)),
               outputs = static_cast<double>(xavier[matrix].size(0));
  EXPECT_NEAR(largest(xavier[matrix]), std::sqrt(6 / (inputs + outputs)),
              0.05 * std::sqrt(6 / (inputs + outputs)));
  EXPECT_LT(largest(xavier[bias]), 1e-5);
  EXPECT_EQ(largest(xavier["head.weight"]), 0);

  const auto fan_in = start(InitialWeights::fan_in);
  for (const char* name : {matrix, bias, "head.weight"}) {
    EXPECT_LE(largest(fan_in[name]), 1 / std::sqrt(inputs)) << name;
    EXPECT_GT(largest(fan_in[name]), 0.8 / std::sqrt(inputs)) << name;
  }

  const auto normal = start(InitialWeights::normal);
  EXPECT_NEAR(stddev(normal[matrix]), 0.02, 0.001);
  EXPECT_EQ(largest(normal[bias]), 0);
  EXPECT_GT(largest(normal["head.weight"]), 0);
  EXPECT_NEAR(stddev(normal["position_embedding"]), 0.5, 0.1);
}

TEST(Vit, HasThePublishedNumberOfParameters) {
  // ViT-B/16 at 224 x 224 with 1000 classes is known to have 86,567,656.
  VitOptions options = vit_preset("b16");
  options.height = options.width = 224;
  options.num_classes = 1000;
  options.attention = AttentionVariant::softmax;
  EXPECT_EQ(VisionTransformer(options)->num_parameters(), 86567656);
}

TEST(Vit, HasTheNumberOfParametersCountedByHand) {
  // patches 12 x 256 + 256, positions 256 x 256, six blocks of
  //   norms 4 x 256, qkv 256 x 768 + 768, projection 256 x 256 + 256, MLP 2 x 256 x 1024 + 1024 + 256,
  // norm 512, head 256 x 10 + 10
  VitOptions options = small_images(vit_preset("small"));
  options.patch = 2;
  options.attention = AttentionVariant::linear;
  EXPECT_EQ(VisionTransformer(options)->num_parameters(), 4810506);
  // f: 11 numbers for each of 4 heads in 6 layers
  options.attention = AttentionVariant::grf;
  EXPECT_EQ(VisionTransformer(options)->num_parameters(), 4810506 + 6 * 4 * 11);
  // 31 x 31 offsets
  options.attention = AttentionVariant::toeplitz;
  EXPECT_EQ(VisionTransformer(options)->num_parameters(), 4810506 + 6 * 4 * 961);

  VitOptions tiny = vit_preset("tiny");
  tiny.attention = AttentionVariant::softmax;
  // 48 x 64 + 64, 64 x 64, three blocks of 256 + 12480 + 4160 + 16576, 128, 650
  EXPECT_EQ(VisionTransformer(tiny)->num_parameters(),
            3136 + 4096 + 3 * (256 + 12480 + 4160 + 16576) + 128 + 650);
}

TEST(Vit, NamesItsParametersNaturally) {
  std::vector<std::string> names;
  const VisionTransformer model(minute_images(AttentionVariant::grf, Pooling::cls));
  for (const auto& item : model->named_parameters()) names.push_back(item.key());
  EXPECT_THAT(names, ::testing::UnorderedElementsAre(
                         "position_embedding", "cls_token", "patch_embedding.projection.weight",
                         "patch_embedding.projection.bias", "blocks.0.norm1.weight", "blocks.0.norm1.bias",
                         "blocks.0.attention.qkv.weight", "blocks.0.attention.qkv.bias",
                         "blocks.0.attention.projection.weight", "blocks.0.attention.projection.bias",
                         "blocks.0.attention.mask.f", "blocks.0.norm2.weight", "blocks.0.norm2.bias",
                         "blocks.0.mlp.fc1.weight", "blocks.0.mlp.fc1.bias", "blocks.0.mlp.fc2.weight",
                         "blocks.0.mlp.fc2.bias", "norm.weight", "norm.bias", "head.weight", "head.bias"));
}

TEST(Vit, OnlyMatricesDecay) {
  const VisionTransformer model(minute_images(AttentionVariant::grf, Pooling::cls));
  for (const auto& item : model->named_parameters()) {
    const std::string& name = item.key();
    const bool matrix = name.ends_with(".weight") && name.find("norm") == std::string::npos;
    const ParameterKind expected = name.find("mask") != std::string::npos ? ParameterKind::mask
                                   : matrix                               ? ParameterKind::weight
                                                                          : ParameterKind::plain;
    EXPECT_EQ(parameter_kind(name, item.value()), expected) << name;
  }
}

class EveryVariant : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Vit, EveryVariant, ::testing::ValuesIn(attention_variant_names()),
                         [](const auto& variant) {
                           std::string name = variant.param;
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
                         });

TEST_P(EveryVariant, HasTheGradientsOfFiniteDifferences) {
  for (const Pooling pooling : {Pooling::mean, Pooling::cls}) {
    VisionTransformer model(minute_images(parse_attention_variant(GetParam()), pooling));
    model->to(at::kDouble);
    fill_all(model);
    const at::Tensor images = test_values({2, 1, 6, 6}, 40);
    std::vector<at::Tensor> parameters = model->parameters();
    oracle::expect_gradients(parameters, [&] {
      const at::Tensor logits = model->forward(images);
      return (logits * test_values(logits.sizes(), 41)).sum();
    });
  }
}

TEST_P(EveryVariant, StartsFromTheSameWeights) {
  const VisionTransformer model(minute_images(parse_attention_variant(GetParam()))),
      reference(minute_images(AttentionVariant::softmax));
  for (const auto& item : reference->named_parameters())
    EXPECT_TRUE(model->named_parameters()[item.key()].equal(item.value())) << item.key();
}

TEST_P(EveryVariant, IsReproducible) {
  const VitOptions options = minute_images(parse_attention_variant(GetParam()));
  VisionTransformer first(options), second(options);
  fill_all(first);
  fill_all(second);
  const at::Tensor images = test_values({2, 1, 6, 6}).to(at::kFloat);
  EXPECT_TRUE(first->forward(images).equal(second->forward(images)));
}

TEST(Vit, WithoutAMaskIsPlainLinearAttention) {
  // A Toeplitz mask starts at 1: no mask at all.
  VisionTransformer linear(minute_images(AttentionVariant::linear)),
      toeplitz(minute_images(AttentionVariant::toeplitz));
  const at::NoGradGuard no_grad;
  for (VisionTransformer* model : {&linear, &toeplitz}) {
    (*model)->to(at::kDouble);
    int salt = 0;
    for (const auto& item : (*model)->named_parameters()) {
      if (parameter_kind(item.key(), item.value()) != ParameterKind::mask)
        item.value().copy_(test_values(item.value().sizes(), ++salt));
    }
  }
  const at::Tensor images = test_values({3, 1, 6, 6}, 9);
  EXPECT_LE(max_difference(linear->forward(images), toeplitz->forward(images)), 1e-12);
}

// phi(x) = ReLU(x d^-1/4) + 1e-3 and |M|, written out for one head.
TEST(Vit, MasksAttentionAsThePaperWritesIt) {
  SelfAttention attention(4, 1, AttentionVariant::toeplitz,
                          make_mask_module(AttentionVariant::toeplitz, {}, {.grid = {2, 2}, .heads = 1}), 1);
  attention->to(at::kDouble);
  const at::NoGradGuard no_grad;
  int salt = 0;
  for (const auto& item : attention->named_parameters())
    item.value().copy_(test_values(item.value().sizes(), ++salt));
  const at::Tensor x = test_values({1, 5, 4}, 20);
  const auto parameters = attention->named_parameters();
  const at::Tensor qkv = at::linear(x[0], parameters["qkv.weight"], parameters["qkv.bias"]);
  const double scale = std::pow(4.0, -0.25);
  const at::Tensor q = (qkv.slice(1, 0, 4) * scale).relu() + 1e-3,
                   k = (qkv.slice(1, 4, 8) * scale).relu() + 1e-3;
  at::Tensor scores = at::matmul(q, k.t());
  const at::Tensor offsets = parameters["mask.offsets"][0].view({3, 3});
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j)
      scores[i + 1][j + 1] *= offsets[j / 2 - i / 2 + 1][j % 2 - i % 2 + 1].abs();  // token 0 is global
  }
  const at::Tensor mixed = at::matmul(scores / scores.sum(1, true), qkv.slice(1, 8, 12));
  const at::Tensor expected =
      at::linear(mixed, parameters["projection.weight"], parameters["projection.bias"]);
  EXPECT_LE(max_difference(attention->forward(x)[0], expected), 1e-12);
}

at::Tensor mask_of(AttentionVariant variant, const MaskOptions& options, std::int64_t layer = 0) {
  const MaskSite site = {.grid = {4, 4}, .heads = 2, .layer = layer};
  return make_mask_module(variant, options, site)->mask()->dense(at::kFloat).detach();
}

TEST(MaskModule, HeadsAndLayersHaveWalksOfTheirOwn) {
  MaskOptions options;
  const at::Tensor first = mask_of(AttentionVariant::grf, options),
                   second = mask_of(AttentionVariant::grf, options, 1);
  EXPECT_FALSE(first[0].equal(first[1]));
  EXPECT_FALSE(first.equal(second));
  EXPECT_TRUE(first.equal(mask_of(AttentionVariant::grf, options)));
  options.share_walks = true;
  const at::Tensor shared = mask_of(AttentionVariant::grf, options);
  EXPECT_TRUE(shared[0].equal(shared[1]));
  EXPECT_TRUE(shared.equal(mask_of(AttentionVariant::grf, options, 1)));
}

// Long walks on a small grid are written out; short ones on a large grid, and few on a smaller one, stay
// sparse: the same numbers.
TEST(MaskModule, IsTheMagnitudeOfTheLibrarysMask) {
  struct Case {
    std::vector<std::int64_t> grid;
    std::int64_t num_walks;
    int max_hops;
    bool sparse;
  };
  for (const Case& c : {Case{{4, 4}, 5, 6, false}, Case{{20, 20}, 5, 6, false}, Case{{20, 20}, 2, 2, true},
                        Case{{40, 40}, 5, 2, true}}) {
    const MaskOptions options = {.num_walks = c.num_walks, .p_halt = 0.2, .max_hops = c.max_hops, .seed = 11};
    const MaskSite site = {.grid = c.grid, .heads = 2, .layer = 3};
    const auto module = make_mask_module(AttentionVariant::grf, options, site);
    const at::NoGradGuard no_grad;
    at::Tensor f = module->named_parameters()["f"];
    EXPECT_NEAR(f[1][2].item<double>(), std::exp(-0.02), 1e-7);
    f.copy_(test_values(f.sizes()));  // of both signs
    const MaskPtr mask = module->mask();
    EXPECT_EQ(mask->profile().sparse(), c.sparse);
    FeatureOptions features;
    features.walks.num_walks = c.num_walks;
    features.walks.p_halt = 0.2;
    features.walks.max_hops = c.max_hops;
    features.walks.seed = derive_seed(11, 3);
    const at::Tensor expected = GrfMask::per_head(patch_graph(c.grid), features, f)->dense(at::kFloat).abs();
    EXPECT_LE(max_difference(mask->dense(at::kFloat), expected), 1e-5);
  }
}

// The exact mask is what infinitely many walks would give.
TEST(MaskModule, ManyWalksComeNearThePowerSeries) {
  MaskOptions options;
  options.max_hops = 4;
  const at::Tensor exact = mask_of(AttentionVariant::power_series, options);
  double last = 1e30;
  for (const std::int64_t walks : {10, 1000, 100000}) {
    options.num_walks = walks;
    const double error =
        ((mask_of(AttentionVariant::grf, options) - exact).norm() / exact.norm()).item<double>();
    EXPECT_LT(error, last / 5);
    last = error;
  }
  EXPECT_LT(last, 0.01);
}

// Powers of W and neighbours are the same in all layers: they are computed and kept once.
TEST(MaskModule, LayersShareWhatBelongsToTheGraph) {
  for (const AttentionVariant variant : {AttentionVariant::power_series, AttentionVariant::neighbours}) {
    for (const bool key_f : {false, true}) {
      SCOPED_TRACE(attention_variant_name(variant) + (key_f ? ", key f" : ""));
      VitOptions options = minute_images(variant);
      options.layers = 3;
      options.mask.key_f = key_f;
      VisionTransformer model(options);
      fill_all(model);
      for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
        model->to(dtype);
        for (std::int64_t layer = 0; layer < options.layers; ++layer) {
          const at::Tensor shared = model->mask(layer)->buffers()[0];
          EXPECT_TRUE(shared.is_alias_of(model->mask(0)->buffers()[0]));
          EXPECT_EQ(shared.scalar_type(), dtype);
          const MaskSite site = {.grid = {3, 3}, .heads = options.heads, .layer = layer};
          const auto alone = make_mask_module(variant, options.mask, site);
          const at::NoGradGuard no_grad;
          alone->to(dtype);
          if (has_f(variant)) alone->parameters()[0].copy_(model->mask(layer)->parameters()[0]);
          EXPECT_TRUE(at::equal(alone->mask()->dense(dtype), model->mask(layer)->mask()->dense(dtype)));
        }
      }
    }
  }
}

// Layers whose masks are alike are computed together; others, and layers without one, each for itself.
TEST(MaskBank, HasEveryLayersMaskAndGradient) {
  MaskOptions shared_walks = {.num_walks = 6, .p_halt = 0.3, .max_hops = 3, .seed = 5};
  const MaskOptions own_walks = shared_walks;
  shared_walks.share_walks = true;
  struct Case {
    AttentionVariant variant;
    MaskOptions options;
    std::vector<std::int64_t> grid = {4, 3};
  };
  for (const Case& c :
       {Case{AttentionVariant::grf, own_walks}, Case{AttentionVariant::grf, shared_walks},
        Case{AttentionVariant::grf_asymmetric, own_walks}, Case{AttentionVariant::ad_hoc, own_walks},
        Case{AttentionVariant::power_series, own_walks}, Case{AttentionVariant::toeplitz, own_walks},
        Case{AttentionVariant::learned_features, own_walks}, Case{AttentionVariant::neighbours, own_walks},
        Case{AttentionVariant::grf, own_walks, {40, 40}}}) {
    SCOPED_TRACE(attention_variant_name(c.variant));
    std::vector<std::shared_ptr<MaskModule>> modules;
    for (std::int64_t layer = 0; layer < 3; ++layer) {
      const MaskSite site = {.grid = c.grid, .heads = 2, .layer = layer};
      modules.push_back(make_mask_module(c.variant, c.options, site));
      for (const at::Tensor& parameter : modules.back()->parameters())
        parameter.detach().copy_(test_values(parameter.sizes(), static_cast<int>(layer)));
    }
    const at::Tensor slope = test_values({2, c.grid[0] * c.grid[1], c.grid[0] * c.grid[1]});
    MaskBank bank(modules);
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {  // other constants than before
      if (c.grid[0] > 4 && dtype == at::kDouble) continue;          // walks stay in float32
      for (const auto& module : modules) module->to(dtype);
      const std::vector<MaskPtr> masks = bank.masks();
      ASSERT_EQ(masks.size(), 3);
      if (c.variant == AttentionVariant::grf && c.grid[0] == 4 && !c.options.share_walks) {
        // Computed from one tensor: all layers see parts of it.
        EXPECT_TRUE(modules[0]->buffers()[0].is_alias_of(modules[2]->buffers()[0]));
      }
      for (std::size_t layer = 0; layer < 3; ++layer) {
        const auto run = [&](const MaskPtr& mask) {
          const at::Tensor matrix = mask->dense(dtype);
          std::vector<at::Tensor> result = {matrix.detach()};
          const std::vector<at::Tensor> parameters = modules[layer]->parameters();
          if (parameters.empty()) return result;
          const at::Tensor loss = (matrix * slope.to(dtype)).sum();
          result.push_back(torch::autograd::grad({loss}, parameters, {}, true)[0]);
          return result;
        };
        const auto together = run(masks[layer]), alone = run(modules[layer]->mask());
        ASSERT_EQ(together.size(), alone.size());
        for (std::size_t i = 0; i < alone.size(); ++i) {
          EXPECT_LE(max_difference(together[i], alone[i]),
                    (dtype == at::kDouble ? 1e-12 : 1e-4) * (1 + alone[i].abs().max().item<double>()));
        }
      }
    }
  }
  EXPECT_EQ(MaskBank({nullptr, nullptr}).masks(), std::vector<MaskPtr>(2));
}

TEST(MaskBank, KeepsApartWhatIsNotAlike) {
  const MaskOptions options = {.num_walks = 6, .p_halt = 0.3, .max_hops = 3, .seed = 5};
  const MaskSite site = {.grid = {4, 3}, .heads = 2};
  for (const AttentionVariant other : {AttentionVariant::grf_asymmetric, AttentionVariant::power_series}) {
    const std::vector<std::shared_ptr<MaskModule>> modules = {
        make_mask_module(AttentionVariant::grf, options, site), make_mask_module(other, options, site)};
    const std::vector<MaskPtr> masks = MaskBank(modules).masks();
    for (std::size_t layer = 0; layer < modules.size(); ++layer)
      EXPECT_TRUE(at::equal(masks[layer]->dense(at::kFloat), modules[layer]->mask()->dense(at::kFloat)))
          << attention_variant_name(other) << ", layer " << layer;
  }
}

TEST(Vit, RefusesSizesThatDoNotFit) {
  VitOptions options;
  options.patch = 5;
  oracle::expect_error([&] { check_vit_options(options); }, {"patch 5", "32x32"});
  options = {};
  options.heads = 3;
  oracle::expect_error([&] { check_vit_options(options); }, {"heads 3", "256"});
  options = {};
  for (const std::size_t names : {1u, 11u}) {
    const ImageFormat images{.mean = {}, .stddev = {}, .class_names = std::vector<std::string>(names, "a")};
    const std::string told = "expected class_names for 10 classes, or none, got " + std::to_string(names);
    oracle::expect_error([&] { VisionTransformer(options, images); }, {told.c_str()});
  }
  oracle::expect_error([] { vit_preset("smal"); }, {"did you mean 'small'"});
  oracle::expect_error([] { parse_attention_variant("toplitz"); }, {"did you mean 'toeplitz'"});
  VisionTransformer model(minute_images(AttentionVariant::softmax));
  oracle::expect_error([&] { model->forward(at::zeros({1, 3, 6, 6})); }, {"[B, 1, 6, 6]", "[1, 3, 6, 6]"});
}

}  // namespace
}  // namespace topomask
