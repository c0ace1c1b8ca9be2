#include "walks/cpu/coalesce.h"

#include <algorithm>
#include <bit>

namespace topomask {

void Coalescer::begin_row(std::int64_t max_visits) {
  const auto wanted = std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(2 * max_visits, 16)));
  if (table_.size() < wanted) {
    table_.assign(wanted, -1);
    mask_ = static_cast<std::uint32_t>(wanted - 1);
    shift_ = 32 - std::countr_zero(wanted);
  }
}

void Coalescer::finish_row(float scale, FeatureRows& rows) {
  order_.clear();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    order_.push_back(static_cast<std::uint64_t>(entries_[i].node) << 32 | i);
  }
  std::sort(order_.begin(), order_.end());
  for (const std::uint64_t key : order_) {
    const Entry& entry = entries_[key & 0xFFFFFFFFu];
    rows.col.push_back(entry.node);
    rows.deposits_in_entry.push_back(entry.count);
    for (std::int32_t i = entry.first; i >= 0; i = deposits_[i].next) {
      rows.hop.push_back(deposits_[i].hop);
      rows.load.push_back(deposits_[i].load * scale);
    }
  }
  rows.entries_in_row.push_back(static_cast<std::int32_t>(entries_.size()));
  for (const std::uint32_t slot : used_slots_) table_[slot] = -1;
  used_slots_.clear();
  entries_.clear();
  deposits_.clear();
}

}  // namespace topomask
