#include "graph/cpu/partitions.h"

#include <algorithm>
#include <cmath>

namespace topomask {

std::vector<std::int32_t> partition_by_order(const CsrView& graph, const std::vector<std::int32_t>& order,
                                             std::int64_t parts) {
  std::vector<std::int32_t> part(order.size());
  const std::int64_t total = graph.num_nodes + graph.num_entries();
  std::int64_t done = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::int64_t work = 1 + graph.degree(order[i]);
    // The part that the middle of the node's work falls into. In double precision: total * parts may not fit.
    const double middle =
        (static_cast<double>(done) + 0.5 * static_cast<double>(work)) / static_cast<double>(total);
    const auto slot = static_cast<std::int64_t>(middle * static_cast<double>(parts));
    part[order[i]] = static_cast<std::int32_t>(std::min(slot, parts - 1));
    done += work;
  }
  return part;
}

FennelPartition::FennelPartition(std::int64_t num_nodes, std::int64_t num_neighbours, std::int64_t total_work,
                                 std::int64_t parts, double imbalance)
    : part_(static_cast<std::size_t>(num_nodes), -1),
      load_(static_cast<std::size_t>(parts), 0),
      near_(static_cast<std::size_t>(parts), 0) {
  for (std::int64_t p = 0; p < parts; ++p) by_load_.emplace(0, static_cast<std::int32_t>(p));
  if (num_nodes == 0) return;
  // The paper's alpha = m sqrt(k) / n^1.5 and gamma = 1.5 with n nodes, m edges, k parts: a part of x nodes
  // costs alpha * gamma * sqrt(x) for one more. Here x is its work in units of the mean.
  const auto n = static_cast<double>(num_nodes), m = 0.5 * static_cast<double>(num_neighbours),
             k = static_cast<double>(parts), w = static_cast<double>(total_work);
  price_ = 1.5 * m * std::sqrt(k) / n / std::sqrt(w);
  capacity_ = (1 + imbalance) * w / k;
}

void FennelPartition::place(std::int32_t node, std::span<const std::int32_t> neighbours, std::int64_t work) {
  candidate_.clear();
  for (const std::int32_t other : neighbours) {
    const std::int32_t part = part_[other];
    if (part >= 0 && near_[part]++ == 0) candidate_.push_back(part);
  }
  // Of the parts without neighbours the lightest is best. Equal scores: the lighter part, then the first.
  std::int32_t best = by_load_.begin()->second;
  const auto score = [&](std::int32_t part) {
    return static_cast<double>(near_[part]) - price_ * std::sqrt(static_cast<double>(load_[part]));
  };
  for (const std::int32_t part : candidate_) {
    if (static_cast<double>(load_[part] + work) > capacity_) continue;
    const double mine = score(part), its = score(best);
    if (mine > its || (mine == its && std::pair(load_[part], part) < std::pair(load_[best], best)))
      best = part;
  }
  for (const std::int32_t part : candidate_) near_[part] = 0;
  part_[node] = best;
  by_load_.erase({load_[best], best});
  load_[best] += work;
  by_load_.emplace(load_[best], best);
}

}  // namespace topomask
