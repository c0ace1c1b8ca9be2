// `topomask plan --ranks R`: what attention over ranks needs of each rank.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "options/options.h"
#include "topomask/rank_plan.h"

namespace topomask::cli {

struct RankPlanFlags {
  std::int64_t num_walks = WalkOptions().num_walks;
  RankPlanOptions plan = without_ranks();

  bool wanted() const { return plan.ranks != 0; }

 private:
  static RankPlanOptions without_ranks();
};
// --ranks, --device, --dtype, --walks, --heads, --partition, --link-bandwidth; all but the first need
// --ranks. The command has its options of an accuracy already: they exclude --ranks.
void add_rank_plan_options(CLI::App& command, RankPlanFlags& flags);
// `plan` includes what the other options of the command set.
void run_rank_plan(const RunOptions& run, const std::string& graph, const RankPlanOptions& plan);

}  // namespace topomask::cli
