// Models whose masks are sparse, with a class token in front of the nodes: against attention that is written
// out in float64, and against finite differences.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "minute_vit.h"
#include "nn/rules.h"
#include "topomask/grf_mask.h"

namespace topomask {
namespace {

using oracle::fill_all;
using oracle::max_difference;
using oracle::minute_images;
using oracle::test_values;

// 14 x 14 patches and few short walks: the mask has so few entries that it is never written out.
VitOptions sparse_options(AttentionVariant variant) {
  VitOptions options = minute_images(variant, Pooling::cls);
  options.height = options.width = 28;
  options.mask = {.num_walks = 1, .p_halt = 0.2, .max_hops = 2, .seed = 5};
  return options;
}

const std::vector<std::int64_t> kGrid = {14, 14};

// |Phi Psi^T| of every head from features as matrices, and 1 for the class token.
at::Tensor written_out_mask(AttentionVariant variant, const MaskOptions& options, const at::Tensor& f) {
  const auto walks = GrfMask::per_head(patch_graph(kGrid), layer_walks(variant, options, 0), f.detach());
  std::vector<at::Tensor> heads;
  for (std::int64_t head = 0; head < f.size(0); ++head) {
    const GraphFeatures& features = walks->features(head);
    const bool one_hot = features.ensembles == Ensembles::asymmetric;
    const at::Tensor query = features.query.to_dense(f[head]),
                     key = one_hot ? at::eye(query.size(0), query.options()) : features.key.to_dense(f[head]);
    heads.push_back(at::constant_pad_nd(query.matmul(key.t()).abs(), {1, 0, 1, 0}, 1));
  }
  return at::stack(heads);
}

// x: [B, N, C], as SelfAttention computes it.
at::Tensor written_out_attention(const torch::OrderedDict<std::string, at::Tensor>& parameters,
                                 const at::Tensor& x, const at::Tensor& mask, bool softmax) {
  const std::int64_t heads = mask.size(0), channels = x.size(2) / heads;
  const at::Tensor qkv = at::linear(x, parameters["qkv.weight"], parameters["qkv.bias"])
                             .view({x.size(0), x.size(1), 3, heads, channels})
                             .permute({2, 0, 3, 1, 4});  // [3, B, H, N, d]
  const double root = std::sqrt(static_cast<double>(channels));
  const at::Tensor phi_q = qkv[0].relu() + feature_epsilon(channels),
                   phi_k = qkv[1].relu() + feature_epsilon(channels);
  const at::Tensor scores = softmax ? at::matmul(qkv[0], qkv[1].transpose(-2, -1)).div(root).exp()
                                    : at::matmul(phi_q, phi_k.transpose(-2, -1));
  const at::Tensor weights = scores * mask;
  const at::Tensor mixed = at::matmul(weights / weights.sum(-1, true), qkv[2]);  // [B, H, N, d]
  return at::linear(mixed.transpose(1, 2).reshape(x.sizes()), parameters["projection.weight"],
                    parameters["projection.bias"]);
}

TEST(SparseVit, AttentionAndItsGradientsAreThoseWrittenOut) {
  for (const AttentionVariant variant : {AttentionVariant::grf, AttentionVariant::softmax_grf,
                                         AttentionVariant::grf_asymmetric, AttentionVariant::ad_hoc}) {
    SCOPED_TRACE(attention_variant_name(variant));
    const MaskOptions options = sparse_options(variant).mask;
    const auto mask = make_mask_module(variant, options, {.grid = kGrid, .heads = 2});
    ASSERT_TRUE(mask->mask()->profile().sparse());
    SelfAttention attention(8, 2, variant, mask, 1);
    attention->to(at::kDouble);
    {
      const at::NoGradGuard no_grad;
      int salt = 0;
      for (const auto& item : attention->named_parameters())
        item.value().copy_(test_values(item.value().sizes(), ++salt));  // f has both signs
    }
    const auto parameters = attention->named_parameters();
    std::vector<at::Tensor> leaves = parameters.values();
    leaves.push_back(test_values({2, 1 + 14 * 14, 8}, 20).requires_grad_());
    const auto differentiate = [&](const at::Tensor& out) {
      std::vector<at::Tensor> result =
          torch::autograd::grad({(out * test_values(out.sizes(), 21)).sum()}, leaves);
      result.insert(result.begin(), out.detach());
      return result;
    };
    const auto got = differentiate(attention->forward(leaves.back()));
    const at::Tensor matrix = written_out_mask(variant, options, parameters["mask.f"]);
    const auto expected = differentiate(
        written_out_attention(parameters, leaves.back(), matrix, variant == AttentionVariant::softmax_grf));
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_LE(max_difference(got[i], expected[i]), 1e-10 * (1 + expected[i].abs().max().item<double>()))
          << (i == 0                ? "the result"
              : i == got.size() - 1 ? "x"
                                    : parameters.keys()[i - 1]);
  }
}

// Of every parameter but the positions, which are as many as the patches. Without ReLU features: among so
// many tokens some are too near to its kink.
TEST(SparseVit, HasTheGradientsOfFiniteDifferences) {
  for (const AttentionVariant variant : {AttentionVariant::softmax_grf, AttentionVariant::performer_grf}) {
    SCOPED_TRACE(attention_variant_name(variant));
    VisionTransformer model(sparse_options(variant));
    model->to(at::kDouble);
    fill_all(model);
    ASSERT_TRUE(model->mask(0)->mask()->profile().sparse());
    std::vector<at::Tensor> parameters;
    for (const auto& item : model->named_parameters())
      if (item.key() != "position_embedding") parameters.push_back(item.value());
    const at::Tensor images = test_values({1, 1, 28, 28}, 40);
    oracle::expect_gradients(parameters, [&] {
      const at::Tensor logits = model->forward(images);
      return (logits * test_values(logits.sizes(), 41)).sum();
    });
  }
}

}  // namespace
}  // namespace topomask
