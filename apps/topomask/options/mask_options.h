// --mask NAME, and the settings and parameters that the catalogue of masks lists for it.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "options/options.h"
#include "topomask/distributed.h"
#include "topomask/mask.h"
#include "topomask/mask_catalogue.h"

namespace topomask::cli {

struct MaskFlags {
  std::string name = "grf";
  GraphOptions graph;
  std::map<std::string, std::string> settings;    // by their names in the catalogue; those that were given
  std::map<std::string, std::string> parameters;  // the same: numbers for every head
  std::string init_flag;                          // which of --kernel, --f, ... gave the setting `init`
  std::string in_parameters, out_parameters;      // files; the first overrides all other sources
  std::int64_t global_tokens = 0;

  MaskPtr make(std::uint64_t seed, c10::Device device = c10::kCPU) const;
  // The same over ranks, of a graph that is not normalised yet. Collective.
  std::shared_ptr<const DistributedGrfMask> make(std::uint64_t seed, const DistributedGraph& of,
                                                 WalkRoute route, c10::Device device = c10::kCPU) const;

 private:
  // For a graph that was loaded, or for none.
  MaskRequest request(std::uint64_t seed, const std::optional<Graph>& loaded, c10::Device device) const;
};
void add_mask_options(CLI::App& command, MaskFlags& flags);

}  // namespace topomask::cli
