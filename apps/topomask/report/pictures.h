// The parts of a report that come from tensors: masks and example images.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace topomask::cli {

// Masks of a run's folder, at most `max_bytes` of them before compression: of all layers, or of some that are
// spread evenly. Null where the folder has none or not one layer fits.
nlohmann::ordered_json collect_masks(const std::string& run_folder, std::size_t max_bytes);

// The examples of a run as a page holds them. Long clips and large pictures are made smaller: as they are, a
// few would fill the page.
struct Examples {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();  // [{"index", "label", "image"}]
  std::int64_t frames = 1;                                        // in each image, side by side
  std::string cut;  // what was taken away, as a sentence; empty: nothing
};
// Without any where the run has left none.
Examples collect_examples(const std::string& run_folder);

// [{"top": [[class, probability], ...]}] for those examples; null where the run has others or none.
nlohmann::ordered_json collect_predictions(const std::string& run_folder,
                                           const nlohmann::ordered_json& examples);

}  // namespace topomask::cli
