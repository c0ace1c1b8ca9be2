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

void Coalescer::sort_entries() {
  constexpr std::size_t kShort = 32;
  order_.resize(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    order_[i] = static_cast<std::uint64_t>(entries_[i].node) << 32 | i;
  }
  if (order_.size() > kShort) {
    std::sort(order_.begin(), order_.end());
    return;
  }
  for (std::size_t i = 1; i < order_.size(); ++i) {
    const std::uint64_t key = order_[i];
    std::size_t hole = i;
    for (; hole > 0 && order_[hole - 1] > key; --hole) order_[hole] = order_[hole - 1];
    order_[hole] = key;
  }
}

void Coalescer::finish_row(float scale, FeatureRows& rows) {
  sort_entries();
  const auto num_entries = static_cast<std::int64_t>(entries_.size());
  const auto num_deposits = static_cast<std::int64_t>(deposits_.size());
  *rows.entries_in_row.extend(1) = static_cast<std::int32_t>(num_entries);
  std::int32_t* col = rows.col.extend(num_entries);
  std::int32_t* count = rows.deposits_in_entry.extend(num_entries);
  std::int16_t* hop = rows.hop.extend(num_deposits);
  float* load = rows.load.extend(num_deposits);
  for (const std::uint64_t key : order_) {
    const Entry& entry = entries_[key & 0xFFFFFFFFu];
    *col++ = entry.node;
    *count++ = entry.count;
    for (std::int32_t i = entry.first; i >= 0; i = deposits_[i].next) {
      *hop++ = deposits_[i].hop;
      *load++ = deposits_[i].load * scale;
    }
  }
  for (const std::uint32_t slot : used_slots_) table_[slot] = -1;
  used_slots_.clear();
  entries_.clear();
  deposits_.clear();
}

}  // namespace topomask
