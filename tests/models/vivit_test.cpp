// Video vision transformers: sizes counted by hand, tubelets, the two halves of a factorised encoder, masks
// in space and time.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "minute_vit.h"
#include "models/parameter_shapes.h"
#include "topomask/graph_builders.h"
#include "topomask/masks.h"
#include "topomask/models.h"

namespace topomask {
namespace {

using oracle::minute_clips;

TEST(Vivit, HasThePublishedNumberOfParameters) {
  // ViViT-B/16x2 with a factorised encoder, 32 frames at 224 x 224 and 400 classes: 115.1 million (Arnab
  // 2021, Table 1). tubelets 1536 x 768 + 768; positions 197 + 17 and two class tokens of 768; 16 blocks of
  // 7087872; two norms of 1536; head 768 x 400 + 400.
  VitOptions options;
  options.encoder = Encoder::factorised;
  options = vit_preset("b16x2", options);
  options.height = options.width = 224;
  options.frames = 32;
  options.num_classes = 400;
  options.attention = AttentionVariant::softmax;
  std::int64_t count = 0;
  for (const auto& [name, sizes] : vit_parameter_shapes(options)) {
    std::int64_t size = 1;
    for (const std::int64_t extent : sizes) size *= extent;
    count += size;
  }
  EXPECT_EQ(count, 1536 * 768 + 768 + (197 + 17 + 2) * 768 + 16 * 7087872 + 2 * 1536 + 768 * 400 + 400);
  EXPECT_EQ(count, 115062928);
  EXPECT_EQ(options.moments() * options.num_patches(), 16 * 196);
}

TEST(Vivit, HasTheParametersThatAreListed) {
  for (const Encoder encoder : {Encoder::factorised, Encoder::joint}) {
    for (const AttentionVariant variant :
         {AttentionVariant::softmax, AttentionVariant::grf, AttentionVariant::toeplitz,
          AttentionVariant::learned_features, AttentionVariant::softmax_grf_bias}) {
      for (const Pooling pooling : {Pooling::mean, Pooling::cls}) {
        const VitOptions options = minute_clips(encoder, variant, pooling);
        std::map<std::string, std::vector<std::int64_t>> listed, actual;
        for (const auto& [name, sizes] : vit_parameter_shapes(options)) listed[name] = sizes;
        for (const auto& item : VisionTransformer(options)->named_parameters())
          actual[item.key()] = item.value().sizes().vec();
        EXPECT_EQ(listed, actual);
      }
    }
  }
}

TEST(Vivit, HasTheGradientsOfFiniteDifferences) {
  for (const Encoder encoder : {Encoder::factorised, Encoder::joint}) {
    for (const AttentionVariant variant : {AttentionVariant::softmax_grf, AttentionVariant::softmax_grf_bias,
                                           AttentionVariant::grf, AttentionVariant::toeplitz}) {
      SCOPED_TRACE(attention_variant_name(variant));
      VisionTransformer model(minute_clips(encoder, variant));
      model->to(at::kDouble);
      oracle::fill_all(model);
      const at::Tensor clips = oracle::test_values({2, 4, 1, 4, 6}, 40);
      std::vector<at::Tensor> parameters = model->parameters();
      oracle::expect_gradients(parameters, [&] {
        const at::Tensor logits = model->forward(clips);
        return (logits * oracle::test_values(logits.sizes(), 41)).sum();
      });
    }
  }
}

// A convolution over time and space, written out as one.
TEST(Vivit, TubeletsAreAConvolution) {
  const std::int64_t tubelet = 2, channels = 3, patch = 2, embedding = 5;
  PatchEmbedding embed(channels, patch, embedding, tubelet);
  embed->to(at::kDouble);
  const at::NoGradGuard no_grad;
  int salt = 0;
  for (const auto& item : embed->named_parameters())
    item.value().copy_(oracle::test_values(item.value().sizes(), ++salt));
  const at::Tensor clips = oracle::test_values({2, 6, channels, 4, 6}, 9);  // [B, T, C, H, W]
  const at::Tensor weight = embed->named_parameters()["projection.weight"]
                                .view({embedding, tubelet, channels, patch, patch})
                                .transpose(1, 2);  // [E, C, t, p, p]
  const at::Tensor expected =
      at::conv3d(clips.transpose(1, 2), weight, embed->named_parameters()["projection.bias"],
                 {tubelet, patch, patch}, at::IntArrayRef{0, 0, 0});  // [B, E, T', H', W']
  EXPECT_LE(oracle::max_difference(embed->forward(clips), expected.flatten(2).transpose(1, 2)), 1e-12);
}

// Before training, a tubelet is the patch of its central frame.
TEST(Vivit, StartsFromTheCentralFrames) {
  for (const std::int64_t tubelet : {2, 3}) {
    VitOptions options = minute_clips(Encoder::factorised, AttentionVariant::softmax);
    options.tubelet = tubelet;
    options.frames = 2 * tubelet;
    VitOptions images = options;
    images.encoder = Encoder::image;
    images.frames = images.tubelet = 1;
    const auto clip_weight =
        VisionTransformer(options)->named_parameters()["patch_embedding.projection.weight"];
    const auto image_weight =
        VisionTransformer(images)->named_parameters()["patch_embedding.projection.weight"];
    const std::int64_t one = image_weight.size(1);
    for (std::int64_t frame = 0; frame < tubelet; ++frame) {
      const at::Tensor part = clip_weight.narrow(1, frame * one, one);
      EXPECT_TRUE(part.equal(frame == tubelet / 2 ? image_weight : at::zeros_like(image_weight)));
    }
  }
}

// Every moment passes through the first half on its own, and the second half sees one vector of each.
TEST(Vivit, IsAnImageModelOfEveryMoment) {
  VitOptions options = minute_clips(Encoder::factorised, AttentionVariant::softmax_grf);
  options.tubelet = 1;
  options.layers = 2;
  VitOptions images = options;
  images.encoder = Encoder::image;
  images.frames = 1;
  images.num_classes = options.embedding;
  VisionTransformer clips_model(options), image_model(images);
  const at::NoGradGuard no_grad;
  for (VisionTransformer* model : {&clips_model, &image_model}) {
    (*model)->to(at::kDouble);
    for (const auto& item : (*model)->named_parameters())
      item.value().copy_(oracle::test_values(item.value().sizes(),
                                             static_cast<int>(std::hash<std::string>{}(item.key()) % 1000)));
  }
  // A head that hands over what the encoder gives it.
  image_model->named_parameters()["head.weight"].copy_(at::eye(options.embedding, at::kDouble));
  image_model->named_parameters()["head.bias"].zero_();
  const at::Tensor clips = oracle::test_values({3, 4, 1, 4, 6}, 11);
  const at::Tensor moments = image_model->forward(clips.flatten(0, 1)).view({3, 4, -1});  // [B, T, C]
  const auto p = clips_model->named_parameters();
  TransformerBlock block(options.embedding, options.mlp, 0.0,
                         SelfAttention(options.embedding, options.heads, options.temporal_attention,
                                       clips_model->mask(options.layers), 1));
  block->to(at::kDouble);
  for (const auto& item : block->named_parameters()) item.value().copy_(p["temporal.blocks.0." + item.key()]);
  at::Tensor x = at::cat({p["temporal.cls_token"].expand({3, -1, -1}), moments}, 1);
  x = block->forward(x + p["temporal.position_embedding"]);
  x = at::layer_norm(x, {options.embedding}, p["temporal.norm.weight"], p["temporal.norm.bias"]).select(1, 0);
  const at::Tensor expected = at::linear(x, p["head.weight"], p["head.bias"]);
  EXPECT_LE(oracle::max_difference(clips_model->forward(clips), expected), 1e-12);
}

TEST(Vivit, MasksAreOnPatchesMomentsAndTubelets) {
  const auto size = [](const VisionTransformer& model, std::int64_t layer) {
    return model->mask(layer)->mask()->num_nodes();
  };
  const VisionTransformer factorised(minute_clips(Encoder::factorised, AttentionVariant::grf)),
      joint(minute_clips(Encoder::joint, AttentionVariant::grf));
  EXPECT_EQ(size(factorised, 0), 6);
  EXPECT_EQ(size(factorised, 1), 2);
  EXPECT_EQ(size(joint, 0), 12);
  VitOptions plain = minute_clips(Encoder::factorised, AttentionVariant::grf);
  plain.temporal_attention = AttentionVariant::softmax;
  EXPECT_EQ(VisionTransformer(plain)->mask(1), nullptr);
  // Inside a clip a tubelet has six neighbours, inside a path a moment has two.
  EXPECT_EQ(patch_graph({3, 3, 3}).num_nodes(), 27);
  const Graph grid = grid_graph({3, 3, 3});
  EXPECT_EQ(grid.row_ptr[14].item<std::int64_t>() - grid.row_ptr[13].item<std::int64_t>(), 6);
}

// A Toeplitz mask on the three-dimensional grid: gathered entries are those of the library's own mask.
TEST(Vivit, GathersOffsetsInThreeDimensions) {
  const std::vector<std::int64_t> grid = {2, 3, 4};
  const auto module = make_mask_module(AttentionVariant::toeplitz, {}, {.grid = grid, .heads = 2});
  const at::NoGradGuard no_grad;
  at::Tensor offsets = module->named_parameters()["offsets"];
  ASSERT_EQ(offsets.size(1), 3 * 5 * 7);
  offsets.copy_(oracle::test_values(offsets.sizes(), 3));
  const at::Tensor expected = ToeplitzMask(grid, offsets, OffsetTransform::absolute).dense(at::kFloat);
  EXPECT_LE(oracle::max_difference(module->mask()->dense(at::kFloat), expected), 1e-5);
}

// The two readings of softmax with a mask M: weights times M, which is log M added to the logits, and M
// added.
TEST(Vivit, ReadsSoftmaxMasksInBothWays) {
  for (const AttentionVariant variant : {AttentionVariant::softmax_grf, AttentionVariant::softmax_grf_bias}) {
    for (const std::int64_t num_global : {0, 1}) {
      const auto mask = make_mask_module(variant, {.num_walks = 50, .p_halt = 0.3, .max_hops = 6},
                                         {.grid = {2, 3}, .heads = 2});
      SelfAttention attention(4, 2, variant, mask, num_global);
      attention->to(at::kDouble);
      const at::NoGradGuard no_grad;
      int salt = 0;
      for (const auto& item : attention->named_parameters())
        item.value().copy_(oracle::test_values(item.value().sizes(), ++salt));
      const auto p = attention->named_parameters();
      const std::int64_t tokens = 6 + num_global;
      const at::Tensor x = oracle::test_values({1, tokens, 4}, 20);
      const std::vector<at::Tensor> qkv = at::linear(x[0], p["qkv.weight"], p["qkv.bias"])
                                              .view({tokens, 3, 2, 2})
                                              .permute({1, 2, 0, 3})
                                              .unbind();  // [H, N, d] each
      const at::Tensor m = mask->mask()->dense(at::kDouble);
      const bool bias = variant == AttentionVariant::softmax_grf_bias;
      at::Tensor added = at::zeros({2, tokens, tokens}, at::kDouble);
      added.slice(1, num_global).slice(2, num_global).copy_(bias ? m : m.log());
      const at::Tensor logits = at::matmul(qkv[0], qkv[1].transpose(1, 2)) / std::sqrt(2.0) + added;
      const at::Tensor mixed =
          at::matmul(at::softmax(logits, -1), qkv[2]).transpose(0, 1).reshape({tokens, 4});
      const at::Tensor expected = at::linear(mixed, p["projection.weight"], p["projection.bias"]);
      EXPECT_LE(oracle::max_difference(attention->forward(x)[0], expected), 1e-10)
          << attention_variant_name(variant) << ", " << num_global;
    }
  }
}

TEST(Vivit, RefusesSizesThatDoNotFit) {
  VitOptions options = minute_clips(Encoder::factorised, AttentionVariant::softmax);
  options.tubelet = 3;
  oracle::expect_error([&] { check_vit_options(options); }, {"tubelets of 3", "clips of 4"});
  options.tubelet = 2;
  options.temporal_layers = 0;
  oracle::expect_error([&] { check_vit_options(options); }, {"temporal-layers must be 1 or more"});
  options.encoder = Encoder::image;
  oracle::expect_error([&] { check_vit_options(options); }, {"a clip of 4 frames"});
  options.encoder = Encoder::joint;
  oracle::expect_error([&] { vit_preset("b16", options); }, {"did you mean 'b16x2'"});
  VisionTransformer model(minute_clips(Encoder::joint, AttentionVariant::softmax));
  oracle::expect_error([&] { model->forward(at::zeros({1, 1, 4, 6})); }, {"clips must be [B, 4, 1, 4, 6]"});
}

}  // namespace
}  // namespace topomask
