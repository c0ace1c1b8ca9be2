#include "graph/cpu/partitions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace topomask {

namespace {

// The part that the middle of a node's work falls into, `done` being the work before it. In double precision:
// total * parts may not fit.
std::int32_t part_at(std::int64_t done, std::int64_t work, std::int64_t total, std::int64_t parts) {
  const double middle =
      (static_cast<double>(done) + 0.5 * static_cast<double>(work)) / static_cast<double>(total);
  const auto slot = static_cast<std::int64_t>(middle * static_cast<double>(parts));
  return static_cast<std::int32_t>(std::min(slot, parts - 1));
}

}  // namespace

std::vector<std::int32_t> partition_by_order(const CsrView& graph, const std::vector<std::int32_t>& order,
                                             std::int64_t parts) {
  std::vector<std::int32_t> part(order.size());
  const std::int64_t total = graph.num_nodes + graph.num_entries();
  std::int64_t done = 0;
  for (const std::int32_t node : order) {
    const std::int64_t work = 1 + graph.degree(node);
    part[node] = part_at(done, work, total, parts);
    done += work;
  }
  return part;
}

FennelPartition::FennelPartition(std::vector<std::int64_t> work, std::int64_t num_neighbours,
                                 std::int64_t parts, double imbalance)
    : work_(std::move(work)),
      part_(work_.size()),
      load_(static_cast<std::size_t>(parts), 0),
      near_(static_cast<std::size_t>(parts), 0) {
  const std::int64_t total = std::accumulate(work_.begin(), work_.end(), std::int64_t{0});
  std::int64_t done = 0;
  for (std::size_t i = 0; i < work_.size(); ++i) {
    part_[i] = part_at(done, work_[i], total, parts);
    load_[part_[i]] += work_[i];
    done += work_[i];
  }
  if (work_.empty()) return;
  // The paper's alpha = m sqrt(k) / n^1.5 and gamma = 1.5 with n nodes, m edges, k parts: a part of x nodes
  // costs alpha * gamma * sqrt(x) for one more. Here x is its work in units of the mean.
  const auto n = static_cast<double>(work_.size()), m = 0.5 * static_cast<double>(num_neighbours),
             k = static_cast<double>(parts), w = static_cast<double>(total);
  price_ = 1.5 * m * std::sqrt(k) / n / std::sqrt(w);
  capacity_ = (1 + imbalance) * w / k;
}

void FennelPartition::place(std::int32_t node, std::span<const std::int32_t> neighbours) {
  candidate_.clear();
  for (const std::int32_t other : neighbours) {
    if (near_[part_[other]]++ == 0) candidate_.push_back(part_[other]);
  }
  const std::int64_t work = work_[node];
  std::int32_t best = part_[node];
  load_[best] -= work;
  const auto score = [&](std::int32_t part) {
    return static_cast<double>(near_[part]) - price_ * std::sqrt(static_cast<double>(load_[part]));
  };
  // It stays where it is unless another part is better, so that equal scores move nothing. A part that is too
  // full is left for any that is not.
  const auto fits = [&](std::int32_t part) { return static_cast<double>(load_[part] + work) <= capacity_; };
  double best_score = fits(best) ? score(best) : -std::numeric_limits<double>::infinity();
  for (const std::int32_t part : candidate_) {
    if (!fits(part)) continue;
    const double mine = score(part);
    if (mine > best_score || (mine == best_score && best != part_[node] && part < best)) {
      best = part;
      best_score = mine;
    }
  }
  for (const std::int32_t part : candidate_) near_[part] = 0;
  load_[best] += work;
  part_[node] = best;
}

}  // namespace topomask
