// One stack of a transformer: position embeddings, blocks with their masks, a norm and pooling.
#pragma once

#include "models/token_stacks.h"
#include "nn/mask_bank.h"
#include "topomask/nn.h"

namespace topomask {

class TokenEncoder {
 public:
  // Registers its parameters with `owner`, under the names that they have there.
  TokenEncoder(torch::nn::Module& owner, const VitOptions& options, const TokenStack& stack);
  // tokens: [B, N, C] -> [B, C], the class token or the mean of all
  at::Tensor forward(const at::Tensor& tokens, bool training);
  std::shared_ptr<MaskModule> mask(std::int64_t layer) const;  // of this stack's layers; may be null
  void take_parameters(const ParameterTensors& tensors, const std::string& prefix);

 private:
  double dropout_;
  at::Tensor position_embedding_, cls_token_;  // [1, N (+ 1), C], [1, 1, C]
  torch::nn::ModuleList blocks_ = nullptr;
  MaskBank mask_bank_;  // the masks of all blocks
  torch::nn::LayerNorm norm_ = nullptr;
};

}  // namespace topomask
