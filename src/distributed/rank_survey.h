// Counts of ranks for a described graph: of the graph itself, or scaled from smaller ones.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "topomask/rank_plan.h"

namespace topomask {

struct RankSurvey {
  std::int64_t nodes = 0;
  RankCounts mean, largest;
  std::string source;
  bool scaled = false;
};
RankSurvey survey_ranks(const std::string& graph, const RankPlanOptions& options,
                        const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace topomask
