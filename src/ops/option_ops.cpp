// The options of the library for another language: defaults and words.
#include <torch/library.h>

#include <nlohmann/json.hpp>

#include "core/suggest.h"
#include "ops/arguments.h"
#include "topomask/distributed.h"
#include "topomask/graph_builders.h"
#include "topomask/partition.h"
#include "topomask/rank_plan.h"

namespace topomask::ops {
namespace {

using Json = nlohmann::ordered_json;

template <class Value>
Json described(Value usual) {
  Json known = Json::object();
  for (const Word<Value>& entry : words<Value>()) known[std::string(entry.word)] = entry.description;
  return {{"default", word_of(usual)}, {"words", known}};
}

Json value(const Json& usual) {
  return Json::object({{"default", usual}});
}

// {"kind": {"default": "linear", "words": {"linear": "...", ...}}, "epsilon": {"default": 0.001}, ...}
std::string option_catalogue() {
  const AttentionOptions attention;
  const GraphPolicy policy;
  const GridOptions grid;
  const KnnOptions knn;
  const PartitionOptions partition;
  const RankPlanOptions plan;
  const WalkOptions walks;
  const Json all = {{"kind", described(attention.kind)},
                    {"feature_map", described(attention.feature_map.kind)},
                    {"engine", described(attention.engine)},
                    {"epsilon", value(attention.feature_map.epsilon)},
                    {"num_features", value(attention.feature_map.num_features)},
                    {"feature_seed", value(attention.feature_map.seed)},
                    {"normaliser_guard", value(attention.normaliser_guard)},
                    {"check_finite", value(attention.check_finite)},
                    {"duplicates", described(policy.duplicates)},
                    {"self_loops", described(policy.self_loops)},
                    {"normalise", described(WalkMaskPlan().normalisation)},
                    {"coupling", described(walks.coupling)},
                    {"seed", value(walks.seed)},
                    {"diagonals", value(grid.diagonals)},
                    {"wrap", value(grid.wrap)},
                    {"k", value(knn.k)},
                    {"symmetric", value(knn.symmetric)},
                    {"partition_method", described(partition.method)},
                    {"partition_seed", value(partition.seed)},
                    {"device_profile", value(plan.device)},
                    {"route", described(WalkRoute::automatic)}};
  return all.dump();
}

std::string nearest_or_all_op(std::string_view name, const c10::List<std::string>& known) {
  return nearest_or_all(name, known.vec());
}

}  // namespace

TORCH_LIBRARY_IMPL(topomask, CompositeExplicitAutograd, m) {
  m.impl("option_catalogue", option_catalogue);
  m.impl("nearest_or_all", nearest_or_all_op);
}

}  // namespace topomask::ops
