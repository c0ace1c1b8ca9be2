// The image and the video experiment: variants of attention in a vision transformer over several seeds
// (paper, Table 1 and both ablations of App. C; the video model of App. C).
// Folders, slices and callbacks are those of run_table.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topomask/run_table.h"
#include "topomask/runs.h"

namespace topomask {

// Table 1 with softmax+grf, the ablation of the features, the ablation of the number of walks.
const std::vector<std::string>& image_table_variants();
// Both readings of softmax+grf, linear attention, masks over time, unfactorised encoders, and the two
// controls.
const std::vector<std::string>& video_table_variants();
// Throws, with a suggestion, where a name is neither a variant of attention nor one of the forms below.
void check_image_table_variant(const std::string& variant, bool video = false);
// The settings of one run. grf-walks-N is grf with N walks at p_halt = 1/2. Of clips, A+time has the
// attention A between moments too, joint-A has A in an unfactorised encoder, and shuffled-frames and
// single-frame are softmax+grf without the order of the frames. NAME@key=value@... is the variant NAME with
// other settings: grf@coupling=both, ad-hoc@p-halt=0.5@walks=100.
VitSettings image_table_settings(VitSettings settings, const std::string& variant, std::uint64_t seed);

struct ImageTable {
  VitSettings settings;               // of all runs, but for attention and seed
  std::string folder;                 // all slices of an experiment share settings and data
  std::vector<std::string> variants;  // empty: image_table_variants(), or of clips video_table_variants()
  std::vector<std::uint64_t> seeds = {0, 1, 2};
};

// Runs what is missing, all variants of one seed before the next seed, and merges what is finished.
TableResult run_image_table(const ImageTable& table, const TableCallbacks& callbacks = {});

}  // namespace topomask
