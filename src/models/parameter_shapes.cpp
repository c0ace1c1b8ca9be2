#include "models/parameter_shapes.h"

#include <fmt/format.h>

#include "models/token_stacks.h"
#include "nn/rules.h"

namespace topomask {

std::vector<std::pair<std::string, std::vector<std::int64_t>>> vit_parameter_shapes(const VitOptions& o) {
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> shapes;
  const auto linear = [&](const std::string& name, std::int64_t inputs, std::int64_t outputs) {
    shapes.push_back({name + ".weight", {outputs, inputs}});
    shapes.push_back({name + ".bias", {outputs}});
  };
  const auto norm = [&](const std::string& name) {
    shapes.push_back({name + ".weight", {o.embedding}});
    shapes.push_back({name + ".bias", {o.embedding}});
  };
  const std::int64_t num_global = o.pooling == Pooling::cls ? 1 : 0;
  linear("patch_embedding.projection", o.tubelet * o.channels * o.patch * o.patch, o.embedding);
  for (const TokenStack& stack : token_stacks(o)) {
    shapes.push_back(
        {stack.prefix + "position_embedding", {1, num_global + stack.num_tokens(), o.embedding}});
    if (num_global > 0) shapes.push_back({stack.prefix + "cls_token", {1, 1, o.embedding}});
    for (std::int64_t layer = 0; layer < stack.layers; ++layer) {
      const std::string block = fmt::format("{}blocks.{}.", stack.prefix, layer);
      norm(block + "norm1");
      linear(block + "attention.qkv", o.embedding, 3 * o.embedding);
      linear(block + "attention.projection", o.embedding, o.embedding);
      const AttentionVariant attention = o.attention_of(stack.first_layer + layer);
      if (const auto mask = mask_parameter(attention, o.mask, o.heads, stack.grid))
        shapes.push_back({block + "attention.mask." + mask->name, mask->sizes});
      norm(block + "norm2");
      linear(block + "mlp.fc1", o.embedding, o.mlp);
      linear(block + "mlp.fc2", o.mlp, o.embedding);
    }
    norm(stack.prefix + "norm");
  }
  linear("head", o.embedding, o.num_classes);
  return shapes;
}

}  // namespace topomask
