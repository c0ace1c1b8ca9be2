// Models as torch::nn modules.
#pragma once

#include "topomask/model_options.h"
#include "topomask/nn.h"

namespace topomask {

class MaskBank;

// The vision transformer (Dosovitskiy 2021) with a variant of attention in every block: patches, learned
// position embeddings, pre-norm blocks, a norm, pooling and a linear head.
//
//   VisionTransformer model = load_vit("runs/grf/best.safetensors");
//   at::Tensor logits = model->forward(model->normalise(images));  // images: uint8 [B, C, H, W]
//
// Unless the options say otherwise, initial weights are those of scenic's ViT: Xavier-uniform matrices, zero
// biases (MLP: N(0, 1e-6)), a zero head, position embeddings N(0, 0.02).
class VisionTransformerImpl : public torch::nn::Module {
 public:
  explicit VisionTransformerImpl(const VitOptions& options, ImageFormat images = {});
  // images: [B, C, H, W] float, normalised -> logits [B, num_classes]
  at::Tensor forward(const at::Tensor& images);
  // images: [B, C, H, W] uint8 -> [B, C, H, W] float32 as the model was trained on them, on its device
  at::Tensor normalise(const at::Tensor& images) const;

  const VitOptions& options() const { return options_; }
  const std::vector<std::string>& class_names() const { return images_.class_names; }  // may be empty
  // Of a layer; null where attention has none.
  std::shared_ptr<MaskModule> mask(std::int64_t layer) const;
  std::int64_t num_parameters() const;

 private:
  VitOptions options_;
  ImageFormat images_;
  PatchEmbedding patch_embedding_ = nullptr;
  at::Tensor position_embedding_, cls_token_;  // [1, N, C], [1, 1, C]
  torch::nn::ModuleList blocks_ = nullptr;
  std::shared_ptr<MaskBank> mask_bank_;  // the masks of all blocks
  torch::nn::LayerNorm norm_ = nullptr;
  torch::nn::Linear head_ = nullptr;
};
TORCH_MODULE(VisionTransformer);

// The model of last.safetensors or best.safetensors of a run (topomask/runs.h), ready to evaluate. Averaged
// weights are taken where training kept them. Throws one sentence where the file is not such a checkpoint.
VisionTransformer load_vit(const std::string& path, c10::Device device = c10::kCPU);

}  // namespace topomask
