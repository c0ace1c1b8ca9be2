// The Interlacer: a transformer for point clouds that alternates unmasked linear attention with a local layer
// (Whitney et al. 2024), here with a GRF mask on the graph of nearest neighbours (paper, Sec. 4 "point
// clouds", App. C.3). The graph is rebuilt for every forward pass, where the points are, and shared by all
// layers.
#pragma once

#include "topomask/grf_mask.h"
#include "topomask/nn.h"
#include "topomask/particle_options.h"

namespace topomask {

class RowCopies;

// B clouds of equally many particles. Positions are metres. All but the first two may be undefined.
struct ParticleScene {
  at::Tensor positions, features;            // [B, N, 3], [B, N, F]: at t-1
  at::Tensor past_positions, past_features;  // [B, P, 3], [B, P, F]: at t-2
  at::Tensor robot_positions;                // [B, 3, K, 3]: kinematic particles at t-2, t-1 and t
  at::Tensor robot_features;                 // [B, 3, K, 7]: see robot_features()
};

struct ParticleUpdate {
  at::Tensor positions, features;  // what is added to [B, N, 3] and [B, N, F]
};

// [B, 3, K, 7] from points [B, 3, K, 3] and grips [B, 3, K]: ten times the displacement from the time before
// and to the time after (at the ends the one there is), and ten times the grip.
at::Tensor robot_features(const at::Tensor& points, const at::Tensor& grips);

// The graph of `grf` (without its weights) and of `softmax`: every token's nearest ones in its cloud.
// positions: [B, M, 3] -> B M nodes, one cloud after the other.
Graph token_graph(const at::Tensor& positions, const InterlacerOptions& options);

// What the local layers of one pass share: a function of the positions alone. Gradients reach these through
// the offsets.
struct CloudGeometry {
  // positions: [B, M, 3]
  CloudGeometry(const at::Tensor& positions, const InterlacerOptions& options);

  std::int64_t clouds = 0, tokens = 0;
  std::shared_ptr<const GrfMask> grf;  // on all B M tokens, one cloud after the other; of `grf`
  MaskPtr neighbours;                  // of `softmax`
  // Of message_passing, with numbers of tokens (or anchors) among those of all clouds:
  at::Tensor anchors;  // [B A] int64: tokens
  at::Tensor heard;    // [B A, k] int64: tokens near an anchor
  at::Tensor nearest;  // [B M] int64: the anchor (of B A) nearest to a token
  std::shared_ptr<const RowCopies> heard_copies, nearest_copies;  // the same, to copy rows with
  at::Tensor offsets;  // [B A, k, 4]: from an anchor to what it hears, and the distance; times 20
  at::Tensor back;     // [B M, 4]: the same from a token to its anchor
};

// Anchors from their nearest tokens, then every token from its nearest anchor (Whitney et al. 2024).
class MessagePassingImpl : public torch::nn::Module {
 public:
  explicit MessagePassingImpl(std::int64_t width);
  at::Tensor forward(const at::Tensor& x, const CloudGeometry& geometry);  // [B, M, C] -> [B, M, C]

 private:
  torch::nn::Linear edge1_ = nullptr, edge2_ = nullptr, node1_ = nullptr, node2_ = nullptr, back1_ = nullptr,
                    back2_ = nullptr;
};
TORCH_MODULE(MessagePassing);

// x + messages(norm(x)), then x + mlp(norm(x)).
class MessagePassingBlockImpl : public torch::nn::Module {
 public:
  MessagePassingBlockImpl(std::int64_t width, std::int64_t mlp);
  void pass(ResidualStream& stream, const CloudGeometry& geometry);

 private:
  torch::nn::LayerNorm norm1_ = nullptr, norm2_ = nullptr;
  MessagePassing messages_ = nullptr;
  Mlp mlp_ = nullptr;
};
TORCH_MODULE(MessagePassingBlock);

// Tokens are all particles of t-1, t-2 and the robot: an MLP of features and position (with octaves of its
// sin and cos) plus an embedding of kind and time. The output, 0 at the start, moves the particles of t-1 by
// 0.25 tanh(.) metres and adds to their features.
class InterlacerImpl : public torch::nn::Module, public TakesParameters {
 public:
  explicit InterlacerImpl(const InterlacerOptions& options);
  ParticleUpdate forward(const ParticleScene& scene);
  // One of the local blocks, as a pass has it.
  void pass_locally(std::int64_t layer, ResidualStream& stream, const CloudGeometry& geometry);
  const InterlacerOptions& options() const { return options_; }
  void take_parameters(const ParameterTensors& tensors, const std::string& prefix) override;

 private:
  at::Tensor embed(const ParticleScene& scene);  // [B, M, width]

  InterlacerOptions options_;
  torch::nn::Linear visual1_ = nullptr, visual2_ = nullptr, robot1_ = nullptr, robot2_ = nullptr;
  at::Tensor kind_embedding_;  // [5, width]: particles of t-1 and t-2, the robot at t-2, t-1, t
  torch::nn::ModuleList global_ = nullptr, local_ = nullptr;
  torch::nn::LayerNorm norm_ = nullptr;
  torch::nn::Linear head_ = nullptr;
};
TORCH_MODULE(Interlacer);

}  // namespace topomask
