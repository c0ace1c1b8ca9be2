// A count of the arithmetic really done: every kernel adds what it did, where it did it.
#pragma once

#include <atomic>
#include <cstdint>

namespace topomask {

struct FlopCounters {
  std::atomic<std::uint64_t> multiply_adds{0};
  std::atomic<std::uint64_t> other{0};  // additions, products, divisions, exponentials
};

inline FlopCounters& flop_counters() {
  static FlopCounters counters;
  return counters;
}

inline void count_multiply_adds(std::int64_t number) {
  flop_counters().multiply_adds.fetch_add(static_cast<std::uint64_t>(number), std::memory_order_relaxed);
}

inline void count_other_flops(std::int64_t number) {
  flop_counters().other.fetch_add(static_cast<std::uint64_t>(number), std::memory_order_relaxed);
}

}  // namespace topomask
