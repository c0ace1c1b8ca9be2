// The parts of a report that come from tensors: masks and example images.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace topomask::cli {

// Masks of a run's folder, at most `max_bytes` of them before compression: of all layers, or of some that are
// spread evenly. Null where the folder has none or not one layer fits.
nlohmann::ordered_json collect_masks(const std::string& run_folder, std::size_t max_bytes);

// [{"index", "label", "image"}] of a run's example predictions; empty where it has none.
nlohmann::ordered_json collect_examples(const std::string& run_folder);

// [{"top": [[class, probability], ...]}] for those examples; null where the run has others or none.
nlohmann::ordered_json collect_predictions(const std::string& run_folder,
                                           const nlohmann::ordered_json& examples);

}  // namespace topomask::cli
