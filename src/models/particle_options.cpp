#include "topomask/particle_options.h"

#include <cmath>

#include "core/check.h"

namespace topomask {

template <>
std::span<const Word<LocalLayer>> words<LocalLayer>() {
  static constexpr Word<LocalLayer> kWords[] = {
      {LocalLayer::grf, "grf", "linear attention under a GRF mask on nearest neighbours"},
      {LocalLayer::message_passing, "mp", "message passing through anchors"},
      {LocalLayer::none, "none", "a second global block: unmasked linear attention"},
      {LocalLayer::softmax, "softmax", "softmax attention over nearest neighbours"},
  };
  return kWords;
}

void check_interlacer_options(const InterlacerOptions& o) {
  constexpr double kMostWalks = 4096;  // of a token: beyond that a mask is no longer local
  check(o.features >= 1, "interlacer: features must be 1 or more, got {}", o.features);
  check(o.width >= 1 && o.layers >= 1 && o.mlp >= 1,
        "interlacer: width, layers and mlp must be 1 or more, got {}, {} and {}", o.width, o.layers, o.mlp);
  check(o.heads >= 1 && o.width % o.heads == 0, "interlacer: heads must divide the width {}, got {}", o.width,
        o.heads);
  check(o.neighbours >= 1 && o.hops >= 0 && std::pow(static_cast<double>(o.neighbours), o.hops) <= kMostWalks,
        "interlacer: expected at least 1 neighbour and neighbours^hops of at most {}, got {} neighbours and "
        "{} hops",
        kMostWalks, o.neighbours, o.hops);
  check(o.anchor_every >= 1 && o.anchor_neighbours >= 1,
        "interlacer: anchor-every and anchor-neighbours must be 1 or more, got {} and {}", o.anchor_every,
        o.anchor_neighbours);
  check(o.bands >= 0 && o.bands <= 16, "interlacer: bands must be 0 to 16, got {}", o.bands);
}

void check_hdvpd_options(const HdVpdOptions& o) {
  constexpr std::int64_t kMostParticles = std::int64_t{1} << 22;
  check_interlacer_options(o.interlacer);
  check(o.encoder_width >= 8 && o.encoder_width % 8 == 0,
        "hd-vpd: encoder-width must be a multiple of 8, got {}", o.encoder_width);
  check(o.particles >= 16 && o.particles <= kMostParticles, "hd-vpd: expected 16 to {} particles, got {}",
        kMostParticles, o.particles);
  check(o.past_share >= 1 && o.past_share <= o.particles,
        "hd-vpd: past-share must be 1 to the {} particles, got {}", o.particles, o.past_share);
  check(o.robot_points >= 1 && o.robot_points <= kMostParticles,
        "hd-vpd: robot-points must be 1 to {}, got {}", kMostParticles, o.robot_points);
  check(o.render_samples >= 1 && o.render_hidden >= 1,
        "hd-vpd: render-samples and render-hidden must be 1 or more, got {} and {}", o.render_samples,
        o.render_hidden);
}

}  // namespace topomask
