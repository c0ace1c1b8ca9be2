// Lists of plain values for every rank, sent and received.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "topomask/distributed.h"

namespace topomask {

template <class T>
using PerRank = std::vector<std::vector<T>>;  // one list for (or from) each rank

template <class T>
PerRank<T> lists_for(const Ranks& ranks) {
  return PerRank<T>(static_cast<std::size_t>(ranks.size()));
}

// What the others sent here. Collective.
template <class T>
PerRank<T> exchange_lists(const Ranks& ranks, const PerRank<T>& to, const std::string& what) {
  static_assert(std::is_trivially_copyable_v<T>);
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(T));
  std::vector<std::int64_t> send_counts;
  std::int64_t total = 0;
  for (const std::vector<T>& list : to) {
    send_counts.push_back(static_cast<std::int64_t>(list.size()));
    total += send_counts.back();
  }
  const std::vector<std::int64_t> counts = ranks.exchange_counts(send_counts, what);
  at::Tensor rows = at::empty({total, kBytes}, at::kByte);
  std::uint8_t* out = rows.data_ptr<std::uint8_t>();
  for (const std::vector<T>& list : to) {
    if (!list.empty()) std::memcpy(out, list.data(), list.size() * sizeof(T));
    out += list.size() * sizeof(T);
  }
  const at::Tensor received = ranks.start_exchange(rows, send_counts, counts, what).wait();
  const std::uint8_t* in = received.const_data_ptr<std::uint8_t>();
  PerRank<T> from = lists_for<T>(ranks);
  for (std::size_t r = 0; r < from.size(); ++r) {
    from[r].resize(static_cast<std::size_t>(counts[r]));
    if (!from[r].empty()) std::memcpy(from[r].data(), in, from[r].size() * sizeof(T));
    in += from[r].size() * sizeof(T);
  }
  return from;
}

}  // namespace topomask
