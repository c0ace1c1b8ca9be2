// What a report shows, as one JSON value: collected from the folders of finished runs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace topomask::cli {

// `folder` is an experiment (FOLDER/VARIANT/seed-S) or a single run. Throws where nothing is finished in it.
//
//   {"data", "classes", "grid", ..., "config", "version", "command", "machine",
//    "examples": [{"index", "label", "image": data URI}],
//    "variants": [{"variant", "attention", "seeds", "accuracy_mean", ... as in results.json,
//                  "curves": {"accuracy": {"epoch": [], "mean": [], "se": [] or null}, ...},
//                  "modulation": [{"seed", "layers": [layer][head][k], "numbers": of these layers, or null}],
//                  "masks": {"walks", "layers": [{"layer", "attention", "grid",
//                                                 "heads": [{"used", "exact", "error"}]}]} or null,
//                  "predictions": [{"top": [[class, probability], ...]}] or null}]}
//
// Of clips there are also "frames" and "tubelet", and an image holds "example_frames" of the frames side by
// side. "examples_cut" says what examples have lost to keep the page small.
//
// Curves are means over seeds; masks and predictions are those of a variant's first seed. A mask is
// {"max", "signed", "bytes"}: N x N bytes b for max (b / 255)^2 or, where some entries are negative, max s
// |s| with s = (b - 128) / 127, deflated, in base 64. Masks of many patches are kept for some of the layers,
// or not at all.
nlohmann::ordered_json collect_report(const std::string& folder);

}  // namespace topomask::cli
