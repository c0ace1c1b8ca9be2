// Layers of transformers with topological masks, as torch::nn modules.
//
// The initial value of a parameter depends only on a seed and on its name, not on the device or on the rest
// of the model. So all variants of attention start from the same weights.
#pragma once

#include <torch/nn.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "topomask/attention.h"
#include "topomask/graph.h"
#include "topomask/model_options.h"
#include "topomask/parameters.h"

namespace topomask {

// Fills a tensor in place, whatever its device, with numbers that depend on (seed, name) alone.
void fill_normal(at::Tensor tensor, double mean, double stddev, std::uint64_t seed, const std::string& name);
void fill_uniform(at::Tensor tensor, double bound, std::uint64_t seed, const std::string& name);
// Torch's own start, for all parameters of a module: matrices and kernels, and their biases, uniform within
// 1 / sqrt(inputs); embeddings N(0, 0.02). Norms and masks know their own beginnings.
void initialise_fan_in(const torch::nn::Module& module, std::uint64_t seed);

// By the names that the modules below give: what lies under a `mask` is a mask's.
ParameterKind parameter_kind(const std::string& name, const at::Tensor& tensor);

// Parameters by their names within a module.
using ParameterTensors = std::map<std::string, at::Tensor>;

// A module with parameters of its own, beside those of torch's layers in it.
class TakesParameters {
 public:
  virtual ~TakesParameters() = default;
  // `prefix`: before the names of its own.
  virtual void take_parameters(const ParameterTensors& tensors, const std::string& prefix) = 0;
};
// Lets a module of Linear, Conv2d, LayerNorm, GroupNorm and such modules compute with other tensors, to which
// gradients then flow, in place of its parameters. Every name must be there.
void take_parameters(torch::nn::Module& module, const ParameterTensors& tensors);

// A mask with parameters that an optimiser moves. What belongs to the graph (walks, powers of W) is made
// once; mask() computes values from the parameters as they are now, differentiably.
class MaskModule : public torch::nn::Module, public TakesParameters {
 public:
  virtual MaskPtr mask() const = 0;
  // 16-bit numbers are taken as float32: a mask is a sum of many terms.
  void take_parameters(const ParameterTensors& tensors, const std::string& prefix) override;

 protected:
  // Registers a parameter and keeps it in `field`, a member.
  void learn(const std::string& name, at::Tensor& field, at::Tensor start);

 private:
  std::map<std::string, at::Tensor*> learned_;
};

// What a mask is made for: tokens on a grid, and the place of its layer.
struct MaskSite {
  std::vector<std::int64_t> grid = {1, 1};  // extents: rows and columns, or moments alone or before them
  std::int64_t heads = 1;
  std::int64_t layer = 0;
};
// The mask of a variant on a grid of tokens, or null where attention has none. f_k = e^(-0.01 k), Toeplitz
// parameters 1, learned features N(1, 1) / sqrt(N) at the start: every mask begins near to no mask, or to a
// kernel that hardly decays. Learned masks are used as |M| (AbsoluteMask) unless the options say otherwise.
// With MaskOptions::key_f, `f` is [heads, 2, max_hops + 1]: of the queries, then of the keys.
//
// `earlier`: that of another layer with the same variant, options, grid and heads, or null. What does not
// depend on the layer (powers of W, neighbours) is then shared with it.
std::shared_ptr<MaskModule> make_mask_module(AttentionVariant variant, const MaskOptions& options,
                                             const MaskSite& site, const MaskModule* earlier = nullptr);

// The graph of the paper's images: a grid with 4 neighbours, W = D^-1/2 A D^-1/2. Likewise a path of moments,
// with 2, and a grid of moments, rows and columns, with 6. Other graphs of the same tokens:
// MaskOptions::patch_graph.
Graph patch_graph(const std::vector<std::int64_t>& grid, const std::string& description = "grid");

// What a layer adds to the residual stream: values + bias, apart so that whoever adds them needs one pass.
struct Branch {
  at::Tensor values;  // [B, N, C]
  at::Tensor bias;    // [C], or undefined: the values have it already
  at::Tensor total() const;
};

// Tokens on their way through the blocks. A branch is added where its sum is normalised next.
struct ResidualStream {
  at::Tensor x;  // [B, N, C]
  Branch pending = {};
  at::Tensor normalise(torch::nn::LayerNorm& norm);  // of x with what was pending, which x then has
  at::Tensor total() const;
};

struct GlobalTokenPatterns;  // mask_combinators.h

// Self-attention of several heads. x: [B, N, C] -> [B, N, C]; the first `num_global` tokens stand outside of
// the mask's graph.
class SelfAttentionImpl : public torch::nn::Module {
 public:
  SelfAttentionImpl(std::int64_t embedding, std::int64_t heads, AttentionVariant variant,
                    std::shared_ptr<MaskModule> mask, std::int64_t num_global,
                    const FeatureMap& random_features = {.kind = FeatureMapKind::favor});
  at::Tensor forward(const at::Tensor& x);
  // The same before it is added up, with mask()->mask() or null.
  Branch branch(const at::Tensor& x, const MaskPtr& mask);
  const std::shared_ptr<MaskModule>& mask() const { return mask_; }

 private:
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, MaskPtr mask);

  std::int64_t heads_, num_global_;
  AttentionVariant variant_;
  FeatureMap random_features_;  // of performers
  torch::nn::Linear qkv_ = nullptr, projection_ = nullptr;
  std::shared_ptr<MaskModule> mask_;
  std::shared_ptr<GlobalTokenPatterns> global_patterns_;  // of the last call
};
TORCH_MODULE(SelfAttention);

class MlpImpl : public torch::nn::Module {
 public:
  MlpImpl(std::int64_t embedding, std::int64_t hidden, double dropout);
  at::Tensor forward(const at::Tensor& x);
  Branch branch(const at::Tensor& x);

 private:
  torch::nn::Linear fc1_ = nullptr, fc2_ = nullptr;
  double dropout_;
};
TORCH_MODULE(Mlp);

// x + attention(norm(x)), then x + mlp(norm(x)).
class TransformerBlockImpl : public torch::nn::Module {
 public:
  TransformerBlockImpl(std::int64_t embedding, std::int64_t hidden, double dropout, SelfAttention attention);
  at::Tensor forward(const at::Tensor& x);
  // The same with attention's mask as it is now or null, the last branch left pending.
  void pass(ResidualStream& stream, const MaskPtr& mask);
  const SelfAttention& attention() const { return attention_; }

 private:
  Branch dropped(Branch branch) const;

  torch::nn::LayerNorm norm1_ = nullptr, norm2_ = nullptr;
  SelfAttention attention_ = nullptr;
  Mlp mlp_ = nullptr;
  double dropout_;
};
TORCH_MODULE(TransformerBlock);

// Images [B, C, H, W] to tokens [B, (H / patch) (W / patch), embedding], row by row; clips [B, T, C, H, W] to
// [B, (T / tubelet) (H / patch) (W / patch), embedding], moment by moment.
class PatchEmbeddingImpl : public torch::nn::Module {
 public:
  PatchEmbeddingImpl(std::int64_t channels, std::int64_t patch, std::int64_t embedding,
                     std::int64_t tubelet = 1);
  at::Tensor forward(const at::Tensor& images);

 private:
  std::int64_t patch_, tubelet_;
  torch::nn::Linear projection_ = nullptr;
};
TORCH_MODULE(PatchEmbedding);

}  // namespace topomask
