// Commands over several processes: those of torchrun, or as many as --ranks says on this machine.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "options/options.h"
#include "topomask/distributed.h"

namespace topomask::cli {

struct RankFlags {
  int ranks = 0;  // 0: those of torchrun, or none
  RankOptions limits;
  WalkRoute route = WalkRoute::automatic;
  PartitionMethod method = PartitionOptions().method;

  // --ranks, or more than one process of torchrun
  bool wanted() const;
  // Calls `work` on every rank. With --ranks this process starts them, waits, and ends with the status of the
  // first that failed.
  void run(const RunOptions& options, const std::function<void(const RanksPtr&)>& work) const;
  // Before it is normalised. shards:FOLDER is read by parts; any other graph is built by every rank and cut.
  DistributedGraph load(const GraphOptions& graph, const RanksPtr& ranks) const;
};
void add_rank_options(CLI::App& command, RankFlags& flags);
// For ranks that share batches rather than a graph. Training has its own --time-limit, so that of the ranks
// is --rank-time-limit.
void add_training_rank_options(CLI::App& command, RankFlags& flags);

// The rows of all nodes in their order on rank 0, [N, ...] from [n, ...]; nothing on the others. Collective.
at::Tensor gather_rows(const DistributedGraph& graph, const at::Tensor& own);

}  // namespace topomask::cli
