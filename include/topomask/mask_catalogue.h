// The catalogue of masks: every mask by its name, with its settings, its parameters and their defaults.
//
// A mask is a function of a graph, some settings and some parameters. Settings (how many walks, which
// transform) are fixed at construction; parameters (f, a, b, ...) are tensors that an optimiser may change.
// The command line, the models and the Python package make their masks here, so every name, default and
// description is in one place.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topomask/features.h"
#include "topomask/graph.h"
#include "topomask/mask.h"

namespace topomask {

enum class SettingType { integer, real, flag, word, text };

struct MaskSetting {
  std::string_view name;  // "num_walks"; the command line has --num-walks
  SettingType type = SettingType::text;
  std::string_view fallback;  // what it is where it is not given, as text; "" where that depends on the graph
  std::string_view description;
};

struct MaskParameter {
  std::string_view name;              // "f"
  std::string_view shape;             // "[heads, max_hops + 1]"
  std::string_view start;             // what it is where it is not given
  std::string_view former_name = {};  // in files of versions before 0.1; "" where it was the same
};

struct MaskInfo {
  std::string_view name;         // "grf"
  std::string_view python_name;  // "GRFMask"
  std::string_view description;
  std::string_view product;    // cost of a product with one column: "O(N)"
  std::string_view structure;  // "sparse", "low rank", "dense", "structured"
  bool on_graph = true;        // false: it needs to know the number of nodes alone
  bool by_name = true;         // false: it is made of tensors or of other masks, not by make_mask
  std::vector<MaskSetting> settings;
  std::vector<MaskParameter> parameters;
};

const std::vector<MaskInfo>& mask_catalogue();
// Throws where there is no mask of that name, and suggests the nearest.
const MaskInfo& mask_info(std::string_view name);
// A parameter's name with what stands before it and a dot, as files have it; a former name becomes today's.
std::string current_parameter_name(std::string_view path);

struct MaskRequest {
  std::string mask;            // a name of the catalogue
  std::optional<Graph> graph;  // before it is normalised; the setting `normalise` says how
  std::int64_t num_nodes = 0;  // where there is no graph
  std::int64_t heads = 1;
  std::map<std::string, std::string> settings;   // as text: {"num_walks", "16"}
  std::map<std::string, at::Tensor> parameters;  // those that do not start as the catalogue says
  at::ScalarType dtype = at::kFloat;             // of the parameters
  c10::Device device = c10::kCPU;                // where there is no graph
  std::vector<std::int64_t> blocks = {};         // where the graphs of a batch begin, see Mask::blocks
};
MaskPtr make_mask(const MaskRequest& request);

// What make_mask would sample for a mask of walks, without a graph: for masks over ranks (distributed.h).
struct WalkMaskPlan {
  FeatureOptions features;
  Normalisation normalisation = Normalisation::symmetric;
  at::Tensor f;           // [heads, terms], or [heads, 2, terms] where the keys have their own
  bool per_head = false;  // each head has walks of its own, see GrfMask::per_head
};
WalkMaskPlan plan_walk_mask(MaskRequest request);

// One sentence where the mask would be large and another one would not (mask_size.h), before memory is spent
// on it; else empty.
std::string mask_advice(const MaskRequest& request);

}  // namespace topomask
