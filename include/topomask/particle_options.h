// Options of a particle model of robot scenes (HD-VPD), as plain data: its local layer, sizes, numbers of
// particles (paper, Sec. 4 "point clouds" and App. C.3; Whitney et al. 2024).
#pragma once

#include <cstdint>
#include <span>

#include "topomask/features.h"
#include "topomask/words.h"

namespace topomask {

// What alternates with unmasked linear attention in an Interlacer.
enum class LocalLayer {
  grf,              // linear attention of one head under a GRF mask on the graph of nearest neighbours
  message_passing,  // anchors gather from their neighbours, every token from its nearest anchor
  none,             // unmasked linear attention again: the vanilla transformer
  softmax,          // softmax attention over a token and its nearest neighbours
};
template <>
std::span<const Word<LocalLayer>> words<LocalLayer>();

struct InterlacerOptions {
  std::int64_t features = 16;                                  // of a particle
  std::int64_t width = 128, layers = 4, heads = 4, mlp = 256;  // a layer: a global block and a local one
  LocalLayer local = LocalLayer::grf;
  // grf, softmax: every token's nearest ones, and how far the mask of grf reaches on their graph.
  std::int64_t neighbours = 3;
  int hops = 3;
  // Asymmetric: on the directed graph with W = A / k, all k^hops walks. Otherwise as many walks on the
  // undirected graph with W = D^-1/2 A D^-1/2.
  Ensembles ensembles = Ensembles::asymmetric;
  // message_passing: every anchor_every-th token is an anchor, with messages from anchor_neighbours tokens.
  std::int64_t anchor_every = 8, anchor_neighbours = 16;
  std::int64_t bands = 8;  // octaves of sin and cos of a position; the longest wavelength is 2 m
  std::uint64_t seed = 0;  // of the initial weights and of sampled walks
};
void check_interlacer_options(const InterlacerOptions& options);

inline constexpr double kLargestStep = 0.25;       // metres that a particle may move in a step, along an axis
inline constexpr std::int64_t kRobotChannels = 7;  // of a kinematic particle: two displacements and the grip
inline constexpr std::int64_t kRobotMoments = 3;   // kinematic particles stand at t-2, t-1 and t
inline constexpr std::int64_t kObservedFrames = 2;  // t-2 and t-1

struct HdVpdOptions {
  InterlacerOptions interlacer;
  std::int64_t encoder_width = 32;   // of the U-Net's first level; the next have 2, 4 and 8 times as many
  std::int64_t particles = 32768;    // of t-1
  std::int64_t past_share = 4;       // t-2 has particles / past_share of them
  std::int64_t robot_points = 128;   // on the surface of each arm
  std::int64_t render_samples = 32;  // along a ray
  std::int64_t render_hidden = 64;   // width of the renderer's MLP

  std::int64_t past_particles() const { return particles / past_share; }
};
void check_hdvpd_options(const HdVpdOptions& options);

}  // namespace topomask
