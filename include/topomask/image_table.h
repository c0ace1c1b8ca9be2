// The image and the video experiment: variants of attention in a vision transformer over several seeds
// (paper, Table 1 and both ablations of App. C; the video model of App. C).
//
// Each run has a folder FOLDER/VARIANT/seed-S. What is finished is never run again and what was interrupted
// is resumed, so the work can be cut into slices of any length and spread over processes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

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

// One run of the table.
struct ImageTableRun {
  std::string variant;
  std::uint64_t seed = 0;
  std::int64_t number = 0, total = 0;  // number: from 1
};

struct ImageTableCallbacks {
  std::function<void()> started;                                 // the data are there
  std::function<bool()> should_stop;                             // asked before each run and after each step
  std::function<TrainCallbacks(const ImageTableRun&)> training;  // for a run that begins
  std::function<void(const ImageTableRun&, const TrainResult&)> finished;
  std::function<void(const ImageTableRun&)> in_use;  // left out: another process trains it
};

struct ImageTableResult {
  std::string json;  // FOLDER/results.json: all finished runs, and mean and standard error per variant
  std::int64_t finished = 0, in_use = 0, total = 0;  // runs that were asked for
};

// Runs what is missing, all variants of one seed before the next seed, and merges what is finished.
ImageTableResult run_image_table(const ImageTable& table, const ImageTableCallbacks& callbacks = {});

}  // namespace topomask
