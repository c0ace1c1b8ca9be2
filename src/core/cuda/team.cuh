// A team of threads that works on one row together: a warp, or a whole block where the row is large.
//
// Kernels are written once against this interface. All threads of a team must call its functions together.
#pragma once

#include "core/cuda/lanes.cuh"

namespace topomask {

struct WarpTeam {
  static constexpr bool kIsWarp = true;
  __device__ int rank() const { return static_cast<int>(threadIdx.x) % kWarpSize; }
  __device__ int size() const { return kWarpSize; }
  __device__ void sync() const { __syncwarp(); }
  // How many lower ranks have the flag set; `total` counts the whole team.
  __device__ int exclusive_count(bool flag, int& total) const {
    const unsigned votes = __ballot_sync(~0u, flag);
    total = __popc(votes);
    return __popc(votes & ((1u << rank()) - 1));
  }
};

struct BlockTeam {
  static constexpr bool kIsWarp = false;
  int* partial;  // [kWarpSize] shared

  __device__ int rank() const { return static_cast<int>(threadIdx.x); }
  __device__ int size() const { return static_cast<int>(blockDim.x); }
  __device__ void sync() const { __syncthreads(); }
  __device__ int exclusive_count(bool flag, int& total) const {
    const unsigned votes = __ballot_sync(~0u, flag);
    const unsigned lower = (1u << (rank() % kWarpSize)) - 1;
    return below_warp(__popc(votes), total) + __popc(votes & lower);
  }
  // The sum of `value` over lower ranks; `total` sums the whole team.
  __device__ int exclusive_sum(int value, int& total) const {
    const int sum = running_sum_of_lanes(value);
    return below_warp(__shfl_sync(~0u, sum, kWarpSize - 1), total) + sum - value;
  }

 private:
  // From a number a warp: the sum over lower warps.
  __device__ int below_warp(int of_warp, int& total) const {
    const int lane = rank() % kWarpSize, warp = rank() / kWarpSize, warps = size() / kWarpSize;
    if (lane == 0) partial[warp] = of_warp;
    __syncthreads();
    int below = 0;
    total = 0;
    for (int w = 0; w < warps; ++w) {
      if (w < warp) below += partial[w];
      total += partial[w];
    }
    __syncthreads();  // before `partial` is used again
    return below;
  }
};

__host__ __device__ constexpr int next_power_of_two(int x) {
  int power = 1;
  while (power < x) power *= 2;
  return power;
}

// Sorts up to 64 keys, two a lane: everyone counts the keys before its own. Fewer steps than exchanging them.
template <bool kDistinct, class Key, class Value>
__device__ void rank_sort(const WarpTeam& team, Key* keys, Value* values, int count) {
  const int a = team.rank(), b = a + kWarpSize;
  const Key key_a = a < count ? keys[a] : Key{0}, key_b = b < count ? keys[b] : Key{0};
  int rank_a = 0, rank_b = 0;
  const bool two_a_lane = count > kWarpSize;
#pragma unroll 4
  for (int i = 0; i < count; ++i) {
    const Key key = keys[i];
    rank_a += key < key_a || (!kDistinct && key == key_a && i < a);
    if (two_a_lane) rank_b += key < key_b || (!kDistinct && key == key_b && i < b);
  }
  Value value_a{}, value_b{};
  if (values != nullptr) {
    if (a < count) value_a = values[a];
    if (b < count) value_b = values[b];
  }
  team.sync();
  if (a < count) keys[rank_a] = key_a;
  if (b < count) keys[rank_b] = key_b;
  if (values != nullptr) {
    if (a < count) values[rank_a] = value_a;
    if (b < count) values[rank_b] = value_b;
  }
  team.sync();
}

// Sorts keys[0, count) ascending, together with their values where there are any; kDistinct: no two are
// equal. There must be room for next_power_of_two(count) keys, and the caller must have synchronised the
// team; so has this function at its end.
template <bool kDistinct = false, class Team, class Key, class Value>
__device__ void team_sort(const Team& team, Key* keys, Value* values, int count) {
  if constexpr (Team::kIsWarp) {
    if (count <= 2 * kWarpSize) {
      rank_sort<kDistinct>(team, keys, values, count);
      return;
    }
  }
  const int padded = next_power_of_two(count);
  for (int i = count + team.rank(); i < padded; i += team.size()) keys[i] = ~Key{0};
  team.sync();
  for (int run = 2; run <= padded; run *= 2) {
    for (int reach = run / 2; reach > 0; reach /= 2) {
      for (int i = team.rank(); i < padded / 2; i += team.size()) {
        const int a = 2 * i - (i & (reach - 1)), b = a + reach;
        const Key key_a = keys[a], key_b = keys[b];
        if ((key_a > key_b) == ((a & run) == 0)) {
          keys[a] = key_b;
          keys[b] = key_a;
          if (values != nullptr) {
            const Value value = values[a];
            values[a] = values[b];
            values[b] = value;
          }
        }
      }
      team.sync();
    }
  }
}

// The first position in sorted keys[0, count) whose key is not below `wanted`.
template <class Key, class Wanted>
__device__ int lower_bound(const Key* keys, int count, Wanted wanted) {
  int low = 0, high = count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (keys[middle] < wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace topomask
