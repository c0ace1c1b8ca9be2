// --mask NAME and what each mask needs to know.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "options/options.h"
#include "topomask/mask.h"

namespace topomask::cli {

enum class MaskName {
  grf,
  grf_asymmetric,
  ad_hoc,
  power_series,
  none,
  causal,
  neighbours,
  degree,
  toeplitz,
  forest,
  hypercube_heat,
  shortest_path,
  learned_features,
  spe_sine,
  spe_convolutional,
};

// The learnable parameters of a mask have plain defaults here: a decay with distance, or a kernel's series.
struct MaskFlags {
  MaskName name = MaskName::grf;
  GraphOptions graph;
  WalkFlags walks;
  std::int64_t num_walks = 16;
  std::string kernel, modulation, coefficients, extent, logits;
  std::string parameters, out_parameters;  // files; what they hold comes before the defaults
  int hops = 1;
  double decay = 0.5, a = -1, b = 0, beta = 0.5;
  std::int64_t realisations = 64;
  std::int64_t global_tokens = 0;

  MaskPtr make(std::uint64_t seed, c10::Device device = c10::kCPU) const;
};
void add_mask_options(CLI::App& command, MaskFlags& flags);

}  // namespace topomask::cli
