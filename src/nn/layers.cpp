#include "core/check.h"
#include "nn/batch_dropout.h"
#include "nn/few_tokens.h"
#include "nn/fused_layers.h"
#include "nn/mask_bank.h"
#include "nn/rules.h"
#include "topomask/mask_combinators.h"
#include "topomask/masks.h"
#include "topomask/nn.h"

namespace topomask {

namespace {

// Two products and no N x N matrix: phi(Q) (phi(K)^T V) over phi(Q) (phi(K)^T 1).
at::Tensor linear_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const double epsilon = feature_epsilon(q.size(-1));
  const at::Tensor query = q.relu() + epsilon, key = k.relu() + epsilon;
  const at::Tensor sums = at::matmul(key.transpose(-2, -1), v);          // [B, H, d, d_v]
  const at::Tensor total = key.sum(-2).unsqueeze(-1).to(query.dtype());  // [B, H, d, 1]
  return at::matmul(query, sums) / at::matmul(query, total);
}

// softmax(q k^T / sqrt(d) + M) v. Logits of global tokens stay as they are.
at::Tensor biased_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                            std::int64_t num_global) {
  const at::ScalarType dtype = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor bias = mask.dense(dtype);  // [H, N, N]
  if (num_global > 0) bias = at::constant_pad_nd(bias, {num_global, 0, num_global, 0}, 0);
  // The same weights; what counts is near 0, where bfloat16 has its digits.
  bias = bias - bias.detach().amax(-1, /*keepdim=*/true);
  return at::scaled_dot_product_attention(q, k, v, bias.to(q.scalar_type()).unsqueeze(0));
}

// Whether the kernels that keep phi(K)^T V on chip take these heads (attention/cuda/column_attention.h);
// other types are for cuBLAS.
bool sums_on_tensor_cores(const at::Tensor& q) {
  constexpr std::int64_t kWidestHead = 64;
  return q.is_cuda() && q.scalar_type() == at::kBFloat16 && q.size(-1) % 8 == 0 && q.size(-1) <= kWidestHead;
}

// Whether all scores of a few tokens cost less than the passes over features that avoid them.
bool few_on_tensor_cores(const at::Tensor& q) {
  return q.is_cuda() && (q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf) &&
         q.size(2) <= (sums_on_tensor_cores(q) ? kDenseUnmaskedNodes : kDenseNodes);
}

Branch last_layer(torch::nn::Linear& layer, const at::Tensor& x) {
  if (adds_biases_late(x)) return {at::linear(x, layer->weight), layer->bias};
  return {layer(x), {}};
}

}  // namespace

at::Tensor Branch::total() const {
  return bias.defined() ? values + bias.to(values.dtype()) : values;
}

at::Tensor ResidualStream::normalise(torch::nn::LayerNorm& norm) {
  auto [sum, normed] =
      add_and_normalise(x, pending.values, pending.bias, norm->weight, norm->bias, norm->options.eps());
  x = sum;
  pending = {};
  return normed;
}

at::Tensor ResidualStream::total() const {
  return pending.values.defined() ? x + pending.total() : x;
}

SelfAttentionImpl::SelfAttentionImpl(std::int64_t embedding, std::int64_t heads, AttentionVariant variant,
                                     std::shared_ptr<MaskModule> mask, std::int64_t num_global,
                                     const FeatureMap& random_features)
    : heads_(heads), num_global_(num_global), variant_(variant), random_features_(random_features) {
  check(heads >= 1 && embedding % heads == 0,
        "SelfAttention: the embedding must be a multiple of the heads, got {} and {}", embedding, heads);
  qkv_ = register_module("qkv", torch::nn::Linear(embedding, 3 * embedding));
  projection_ = register_module("projection", torch::nn::Linear(embedding, embedding));
  if (mask) mask_ = register_module("mask", std::move(mask));
}

at::Tensor SelfAttentionImpl::attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     MaskPtr mask) {
  if (variant_ == AttentionVariant::softmax) return at::scaled_dot_product_attention(q, k, v);
  if (variant_ == AttentionVariant::softmax_grf_bias) return biased_attention(q, k, v, *mask, num_global_);
  AttentionOptions options;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  if (mask != nullptr && num_global_ > 0) {
    const auto with_global =
        std::make_shared<const GlobalTokensMask>(std::move(mask), num_global_, global_patterns_);
    global_patterns_ = with_global->shared_patterns();
    mask = with_global;
  }
  if (has_random_features(variant_)) {
    if (mask == nullptr) mask = std::make_shared<NoMask>(q.size(2), q.device());
    options.feature_map = random_features_;
    return attention(q, k, v, mask, options);
  }
  if (mask == nullptr) {
    if (few_on_tensor_cores(q)) {
      mask = std::make_shared<DenseMask>(at::ones({q.size(2), q.size(2)}, q.options().dtype(at::kFloat)));
      options.engine = Engine::dense;
    } else if (sums_on_tensor_cores(q)) {
      mask = std::make_shared<NoMask>(q.size(2), q.device());
      options.engine = Engine::feature;
    } else {
      return linear_attention(q, k, v);
    }
  }
  if (variant_ == AttentionVariant::softmax_grf) options.kind = AttentionKind::softmax;
  options.feature_map.epsilon = feature_epsilon(q.size(-1));
  return attention(q, k, v, mask, options);
}

Branch SelfAttentionImpl::branch(const at::Tensor& x, const MaskPtr& mask) {
  const std::int64_t batch = x.size(0), tokens = x.size(1), embedding = x.size(2);
  // [B, N, 3, H, d], cut so that the gradients of q, k and v are written side by side in one pass.
  const std::vector<at::Tensor> qkv = linear_layer(x, qkv_->weight, qkv_->bias)
                                          .view({batch, tokens, 3, heads_, embedding / heads_})
                                          .unbind(2);
  const at::Tensor mixed =
      attend(qkv[0].transpose(1, 2), qkv[1].transpose(1, 2), qkv[2].transpose(1, 2), mask);  // [B, H, N, d]
  return last_layer(projection_, mixed.transpose(1, 2).reshape({batch, tokens, embedding}));
}

at::Tensor SelfAttentionImpl::forward(const at::Tensor& x) {
  return branch(x, MaskBank({mask_}).masks()[0]).total();
}

MlpImpl::MlpImpl(std::int64_t embedding, std::int64_t hidden, double dropout) : dropout_(dropout) {
  fc1_ = register_module("fc1", torch::nn::Linear(embedding, hidden));
  fc2_ = register_module("fc2", torch::nn::Linear(hidden, embedding));
}

Branch MlpImpl::branch(const at::Tensor& x) {
  const at::Tensor hidden =
      adds_biases_late(x) ? add_bias_and_gelu(at::linear(x, fc1_->weight), fc1_->bias) : at::gelu(fc1_(x));
  return last_layer(fc2_, batch_dropout(hidden, dropout_, is_training()));
}

at::Tensor MlpImpl::forward(const at::Tensor& x) {
  return branch(x).total();
}

TransformerBlockImpl::TransformerBlockImpl(std::int64_t embedding, std::int64_t hidden, double dropout,
                                           SelfAttention attention)
    : dropout_(dropout) {
  const torch::nn::LayerNormOptions norm({embedding});
  norm1_ = register_module("norm1", torch::nn::LayerNorm(norm));
  attention_ = register_module("attention", std::move(attention));
  norm2_ = register_module("norm2", torch::nn::LayerNorm(norm));
  mlp_ = register_module("mlp", Mlp(embedding, hidden, dropout));
}

Branch TransformerBlockImpl::dropped(Branch branch) const {
  if (dropout_ == 0 || !is_training()) return branch;
  return {batch_dropout(branch.total(), dropout_, true), {}};
}

void TransformerBlockImpl::pass(ResidualStream& stream, const MaskPtr& mask) {
  stream.pending = dropped(attention_->branch(stream.normalise(norm1_), mask));
  stream.pending = dropped(mlp_->branch(stream.normalise(norm2_)));
}

at::Tensor TransformerBlockImpl::forward(const at::Tensor& x) {
  ResidualStream stream{x};
  pass(stream, MaskBank({attention_->mask()}).masks()[0]);
  return stream.total();
}

PatchEmbeddingImpl::PatchEmbeddingImpl(std::int64_t channels, std::int64_t patch, std::int64_t embedding,
                                       std::int64_t tubelet)
    : patch_(patch), tubelet_(tubelet) {
  projection_ =
      register_module("projection", torch::nn::Linear(tubelet * channels * patch * patch, embedding));
}

at::Tensor PatchEmbeddingImpl::forward(const at::Tensor& images) {
  const std::int64_t batch = images.size(0), channels = images.size(-3);
  const std::int64_t rows = images.size(-2) / patch_, columns = images.size(-1) / patch_;
  const std::int64_t moments = images.dim() == 5 ? images.size(1) / tubelet_ : 1;
  // A convolution whose stride is its kernel's size is a product with cut-up images. The channels of a
  // tubelet's frames follow each other.
  const at::Tensor patches =
      images.reshape({batch, moments, tubelet_ * channels, rows, patch_, columns, patch_})
          .permute({0, 1, 3, 5, 2, 4, 6})
          .reshape({batch, moments * rows * columns, tubelet_ * channels * patch_ * patch_});
  return projection_(patches);
}

}  // namespace topomask
