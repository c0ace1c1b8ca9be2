// The vision transformer as a torch::nn module, and loading it from a checkpoint (paper, Sec. 4).
#pragma once

#include "topomask/model_options.h"
#include "topomask/nn.h"

namespace topomask {

class TokenEncoder;

// The vision transformer (Dosovitskiy 2021) with a variant of attention in every block: patches, learned
// position embeddings, pre-norm blocks, a norm, pooling and a linear head. For clips it is a video vision
// transformer (Arnab 2021): tubelets in place of patches, and either two such stacks, one over the patches of
// each moment and one over the moments, or one over all tubelets (Encoder).
//
//   VisionTransformer model = load_vit("runs/grf/best.safetensors");
//   at::Tensor logits = model->forward(model->normalise(images));  // images: uint8 [B, C, H, W]
//
// Unless the options say otherwise, initial weights are those of scenic's ViT: Xavier-uniform matrices, zero
// biases (MLP: N(0, 1e-6)), a zero head, position embeddings N(0, 0.02). A tubelet starts as the patch of its
// central frame: the weights of its other frames are zero.
class VisionTransformerImpl : public torch::nn::Module, public TakesParameters {
 public:
  explicit VisionTransformerImpl(const VitOptions& options, ImageFormat images = {});
  // images: [B, C, H, W] float, normalised; clips: [B, T, C, H, W] -> logits [B, num_classes]
  at::Tensor forward(const at::Tensor& images);
  // images: [B, (T,) C, H, W] uint8 -> the same in float32 as the model was trained on them, on its device
  at::Tensor normalise(const at::Tensor& images) const;

  const VitOptions& options() const { return options_; }
  const std::vector<std::string>& class_names() const { return images_.class_names; }  // may be empty
  // Of a layer, where those over moments come after those over patches; null where attention has none.
  std::shared_ptr<MaskModule> mask(std::int64_t layer) const;
  std::int64_t num_parameters() const;
  void take_parameters(const ParameterTensors& tensors, const std::string& prefix) override;

 private:
  VitOptions options_;
  ImageFormat images_;
  PatchEmbedding patch_embedding_ = nullptr;
  std::shared_ptr<TokenEncoder> encoder_, temporal_;  // temporal_: null unless the encoder is factorised
  torch::nn::Linear head_ = nullptr;
};
TORCH_MODULE(VisionTransformer);

// The model of last.safetensors or best.safetensors of a run (topomask/runs.h), ready to evaluate. Averaged
// weights are taken where training kept them. Throws one sentence where the file is not such a checkpoint.
VisionTransformer load_vit(const std::string& path, c10::Device device = c10::kCPU);

}  // namespace topomask
