// --mask NAME, and the settings and parameters that the catalogue of masks lists for it.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "options/options.h"
#include "topomask/mask.h"

namespace topomask::cli {

struct MaskFlags {
  std::string name = "grf";
  GraphOptions graph;
  std::map<std::string, std::string> settings;    // by their names in the catalogue; those that were given
  std::map<std::string, std::string> parameters;  // the same: numbers for every head
  std::string init_flag;                          // which of --kernel, --f, ... gave the setting `init`
  std::string in_parameters, out_parameters;      // files; what the first holds comes before all else
  std::int64_t global_tokens = 0;

  MaskPtr make(std::uint64_t seed, c10::Device device = c10::kCPU) const;
};
void add_mask_options(CLI::App& command, MaskFlags& flags);

}  // namespace topomask::cli
