#include "graph/cpu/shard_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace topomask {

ShardNumbering::ShardNumbering(std::vector<std::int32_t> part, std::int64_t parts)
    : part_(std::move(part)),
      local_(part_.size()),
      order_(part_.size()),
      begin_(static_cast<std::size_t>(parts) + 1, 0),
      scratch_(part_.size(), -1) {
  for (const std::int32_t p : part_) ++begin_[p + 1];
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  std::vector<std::int64_t> next(begin_.begin(), begin_.end() - 1);
  for (std::size_t node = 0; node < part_.size(); ++node) {
    const std::int64_t place = next[part_[node]]++;
    order_[place] = static_cast<std::int32_t>(node);
    local_[node] = static_cast<std::int32_t>(place - begin_[part_[node]]);
  }
}

std::span<const std::int32_t> ShardNumbering::nodes(std::int64_t part) const {
  return std::span(order_).subspan(static_cast<std::size_t>(begin(part)),
                                   static_cast<std::size_t>(begin(part + 1) - begin(part)));
}

std::vector<std::int32_t> ShardNumbering::halo(std::int64_t part, std::span<const std::int32_t> columns) {
  std::vector<std::int32_t> found;
  for (const std::int32_t node : columns) {
    if (part_[node] == part || scratch_[node] >= 0) continue;
    scratch_[node] = 0;
    found.push_back(node);
  }
  for (const std::int32_t node : found) scratch_[node] = -1;
  std::sort(found.begin(), found.end(),
            [&](std::int32_t a, std::int32_t b) { return std::pair(part_[a], a) < std::pair(part_[b], b); });
  return found;
}

void ShardNumbering::localise(std::int64_t part, const std::vector<std::int32_t>& halo,
                              std::span<std::int32_t> columns) {
  const auto own = static_cast<std::int32_t>(begin(part + 1) - begin(part));
  for (std::size_t k = 0; k < halo.size(); ++k) scratch_[halo[k]] = own + static_cast<std::int32_t>(k);
  for (std::int32_t& column : columns) column = part_[column] == part ? local_[column] : scratch_[column];
  for (const std::int32_t node : halo) scratch_[node] = -1;
}

std::vector<std::int64_t> ShardNumbering::halo_begin(const std::vector<std::int32_t>& halo) const {
  std::vector<std::int64_t> first(begin_.size(), 0);
  for (const std::int32_t node : halo) ++first[part_[node] + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  return first;
}

void ShardNumbering::append_owned(std::int64_t part, const std::vector<std::int32_t>& halo,
                                  std::vector<std::int32_t>& local) const {
  auto node = std::lower_bound(halo.begin(), halo.end(), part,
                               [&](std::int32_t other, std::int64_t p) { return part_[other] < p; });
  for (; node != halo.end() && part_[*node] == part; ++node) local.push_back(local_[*node]);
}

}  // namespace topomask
