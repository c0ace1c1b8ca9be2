// The stacks of blocks that make up a model, each over its own tokens: an image or a joint encoder has one, a
// factorised encoder one over patches and one over moments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topomask/model_options.h"

namespace topomask {

struct TokenStack {
  std::string prefix;  // of its parameters' names
  AttentionVariant attention = AttentionVariant::softmax;
  std::vector<std::int64_t> grid;  // of its tokens
  std::int64_t layers = 0;
  std::int64_t first_layer = 0;  // in the whole model, where every layer has walks of its own

  std::int64_t num_tokens() const {
    std::int64_t count = 1;
    for (const std::int64_t extent : grid) count *= extent;
    return count;
  }
};

inline std::vector<TokenStack> token_stacks(const VitOptions& o) {
  std::vector<std::int64_t> grid = {o.grid_height(), o.grid_width()};
  if (o.encoder == Encoder::joint) grid.insert(grid.begin(), o.moments());
  std::vector<TokenStack> stacks = {{"", o.attention, grid, o.layers, 0}};
  if (o.encoder == Encoder::factorised)
    stacks.push_back({"temporal.", o.temporal_attention, {o.moments()}, o.temporal_layers, o.layers});
  return stacks;
}

}  // namespace topomask
