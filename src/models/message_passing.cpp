#include "nn/row_copies.h"
#include "topomask/interlacer.h"

namespace topomask {
namespace {

constexpr std::int64_t kOffsetChannels = 4;

// layer([a, b, c]) as the sum of its three parts: a and b are multiplied before their rows are copied.
struct SplitLinear {
  SplitLinear(const torch::nn::Linear& layer, std::int64_t width)
      : first(layer->weight.narrow(1, 0, width)),
        second(layer->weight.narrow(1, width, width)),
        third(layer->weight.narrow(1, 2 * width, layer->weight.size(1) - 2 * width)) {}
  at::Tensor first, second, third;
};

}  // namespace

MessagePassingImpl::MessagePassingImpl(std::int64_t width) {
  const auto linear = [this](const char* name, std::int64_t inputs, std::int64_t outputs) {
    return register_module(name, torch::nn::Linear(inputs, outputs));
  };
  edge1_ = linear("edge1", 2 * width + kOffsetChannels, width);
  edge2_ = linear("edge2", width, width);
  node1_ = linear("node1", 2 * width, width);
  node2_ = linear("node2", width, width);
  back1_ = linear("back1", 2 * width + kOffsetChannels, width);
  back2_ = linear("back2", width, width);
}

at::Tensor MessagePassingImpl::forward(const at::Tensor& x, const CloudGeometry& geometry) {
  const std::int64_t width = x.size(-1), heard = geometry.heard.size(1);
  const at::Tensor tokens = x.reshape({-1, width});                     // [B M, C]
  const at::Tensor anchors = tokens.index_select(0, geometry.anchors);  // [B A, C]
  const SplitLinear edge(edge1_, width), back(back1_, width);
  const at::Tensor near = geometry.heard_copies->of(at::linear(tokens, edge.second));
  const at::Tensor hidden = at::linear(anchors, edge.first, edge1_->bias).unsqueeze(1) +
                            near.view({-1, heard, width}) +
                            at::linear(geometry.offsets.to(x.scalar_type()), edge.third);  // [B A, k, C]
  // The mean of an affine map is the map of the mean.
  const at::Tensor message = edge2_(at::gelu(hidden).mean(1));
  const at::Tensor told = anchors + node2_(at::gelu(node1_(at::cat({anchors, message}, -1))));
  const at::Tensor answer = at::linear(tokens, back.first, back1_->bias) +
                            geometry.nearest_copies->of(at::linear(told, back.second)) +
                            at::linear(geometry.back.to(x.scalar_type()), back.third);  // [B M, C]
  return back2_(at::gelu(answer)).view_as(x);
}

MessagePassingBlockImpl::MessagePassingBlockImpl(std::int64_t width, std::int64_t mlp) {
  const torch::nn::LayerNormOptions norm({width});
  norm1_ = register_module("norm1", torch::nn::LayerNorm(norm));
  messages_ = register_module("messages", MessagePassing(width));
  norm2_ = register_module("norm2", torch::nn::LayerNorm(norm));
  mlp_ = register_module("mlp", Mlp(width, mlp, 0.0));
}

void MessagePassingBlockImpl::pass(ResidualStream& stream, const CloudGeometry& geometry) {
  stream.pending = {messages_(stream.normalise(norm1_), geometry), {}};
  stream.pending = mlp_->branch(stream.normalise(norm2_));
}

}  // namespace topomask
