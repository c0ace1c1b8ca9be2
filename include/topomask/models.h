// Models as torch::nn modules.
#pragma once

#include "topomask/model_options.h"
#include "topomask/nn.h"

namespace topomask {

// The vision transformer (Dosovitskiy 2021) with a variant of attention in every block: patches, learned
// position embeddings, pre-norm blocks, a norm, pooling and a linear head.
//
// Unless the options say otherwise, initial weights are those of scenic's ViT: Xavier-uniform matrices, zero
// biases (MLP: N(0, 1e-6)), a zero head, position embeddings N(0, 0.02).
class VitImpl : public torch::nn::Module {
 public:
  explicit VitImpl(const VitOptions& options);
  // images: [B, C, H, W] normalised -> logits [B, num_classes]
  at::Tensor forward(const at::Tensor& images);

  const VitOptions& options() const { return options_; }
  // Of a layer; null where attention has none.
  std::shared_ptr<MaskModule> mask(std::int64_t layer) const;
  std::int64_t num_parameters() const;

 private:
  void initialise();
  void initialise_bias(at::Tensor& bias, const std::string& name);
  void initialise_matrix(at::Tensor& matrix, const std::string& name);

  VitOptions options_;
  PatchEmbedding patch_embedding_ = nullptr;
  at::Tensor position_embedding_, cls_token_;  // [1, N, C], [1, 1, C]
  torch::nn::ModuleList blocks_ = nullptr;
  MaskBank mask_bank_;  // of the blocks
  torch::nn::LayerNorm norm_ = nullptr;
  torch::nn::Linear head_ = nullptr;
};
TORCH_MODULE(Vit);

}  // namespace topomask
