// A warp that looks for the few nearest neighbours of a few points of a cloud, which follow each other on the
// curve within one leaf.
//
// Floats find the candidates: a sorted list of 32 a query, in shared memory, of which the first k bound what
// may still be near. Doubles are computed at the end, and decide only where floats cannot tell who is among
// the k or, where that matters, in which order.
#pragma once

#include <cfloat>

#include "graph/cuda/knn_search.cuh"

namespace topomask::cuda {

struct BoxLevels {
  int top = 0;                          // the first level of at most 32 boxes
  std::int32_t count[kMaxLevels] = {};  // boxes a level; level 0 holds the leaves
  float4* box[kMaxLevels] = {};         // [count, 2] lower and upper corner
};

__device__ inline float gap_along(float low, float high, float x) {
  return fmaxf(fmaxf(low - x, x - high), 0.0f);
}

struct Candidate {
  float distance;  // squared, at most 2^-17 of it too small
  std::int32_t position;
};

// What a warp keeps in shared memory.
template <int kQueries>
struct FewLists {
  float4 query[kQueries];
  Candidate list[kQueries][kLeaf];  // ascending, one entry a lane
};

template <int kQueries, int kLeastToMerge>
struct FewSearch {
  static_assert(kLeaf % kQueries == 0);
  static constexpr float kSlack = 1 + 0x1p-16f;

  const float4* points;
  const BoxLevels& levels;
  FewLists<kQueries>& lists;
  int k;
  std::int32_t first;  // position of the first query
  bool skip_own;
  float reach;           // of query lane % kQueries: nothing farther matters; negative: there is no query
  unsigned open_of = 0;  // boxes of level `lane` that are still to be visited

  // Whoever is among the k nearest has at most this float distance if k candidates have at most `distance`.
  // A float's squared distance is off by less than 2^-20 of itself, or by less than FLT_MIN where squares
  // underflow, and a list keeps all but the last five bits of it.
  static __device__ float reach_of(float distance) { return distance * kSlack + 4 * FLT_MIN; }

  static __device__ float gap(const float4& low, const float4& high, const float4& here) {
    const float x = gap_along(low.x, high.x, here.x), y = gap_along(low.y, high.y, here.y),
                z = gap_along(low.z, high.z, here.z);
    return __fmaf_rn(z, z, __fmaf_rn(y, y, x * x));
  }

  // Which of up to 32 boxes of a level any query may need, one box a lane.
  __device__ unsigned near_boxes(int level, std::int32_t base) const {
    const std::int32_t box = min(base + lane_id(), levels.count[level] - 1);
    const float4 low = levels.box[level][2 * box], high = levels.box[level][2 * box + 1];
    bool is_near = false;
#pragma unroll
    for (int q = 0; q < kQueries; ++q)
      is_near = gap(low, high, lists.query[q]) <= __shfl_sync(~0u, reach, q) || is_near;
    return __ballot_sync(~0u, is_near && box == base + lane_id());
  }

  // Takes in all lanes' candidates, infinity where there is none. Their keys are sorted downwards, so that
  // the first of each lane's two makes a bitonic sequence of the first 32.
  static __device__ void merge(Candidate& own, float distance, std::int32_t leaf) {
    const int lane = lane_id();
    unsigned key = (__float_as_uint(distance) & ~31u) | static_cast<unsigned>(lane);
#pragma unroll
    for (int run = 2; run <= kLeaf; run *= 2) {
#pragma unroll
      for (int step = run / 2; step > 0; step /= 2) {
        const unsigned other = __shfl_xor_sync(~0u, key, step);
        key = ((lane & step) == 0) == ((lane & run) == 0) ? max(key, other) : min(key, other);
      }
    }
    const float nearest = __uint_as_float(key & ~31u);
    if (nearest < own.distance) own = {nearest, leaf * kLeaf + static_cast<std::int32_t>(key & 31u)};
#pragma unroll
    for (int step = kLeaf / 2; step > 0; step /= 2) {
      const Candidate other = {__shfl_xor_sync(~0u, own.distance, step),
                               __shfl_xor_sync(~0u, own.position, step)};
      // Of equal ones both stay.
      if ((lane & step) == 0 ? other.distance < own.distance : other.distance > own.distance) own = other;
    }
  }

  static __device__ void insert(Candidate& own, float distance, std::int32_t position) {
    const Candidate before = {__shfl_up_sync(~0u, own.distance, 1), __shfl_up_sync(~0u, own.position, 1)};
    if (own.distance <= distance) return;
    own = lane_id() == 0 || before.distance <= distance ? Candidate{distance, position} : before;
  }

  __device__ void visit_leaf(std::int32_t leaf) {
    const int lane = lane_id();
    const std::int32_t position = leaf * kLeaf + lane;
    const float4 p = points[position];
    const float4 low = levels.box[0][2 * leaf], high = levels.box[0][2 * leaf + 1];
    unsigned wanted =
        __ballot_sync(~0u, lane < kQueries && gap(low, high, lists.query[lane % kQueries]) <= reach);
    while (wanted != 0) {
      const int q = __ffs(static_cast<int>(wanted)) - 1;
      wanted &= wanted - 1;
      const float4 here = lists.query[q];
      const float x = here.x - p.x, y = here.y - p.y, z = here.z - p.z;
      const float distance = __fmaf_rn(z, z, __fmaf_rn(y, y, x * x));
      const bool other = !(skip_own && position == first + q);
      float own_reach = __shfl_sync(~0u, reach, q);
      const bool is_near = other && distance <= own_reach;  // a comparison that NaN does not pass
      unsigned near = __ballot_sync(~0u, is_near);
      if (near == 0) continue;
      Candidate own = lists.list[q][lane];
      if (__popc(near) >= kLeastToMerge) {
        merge(own, is_near ? distance : infinity_float(), leaf);
        own_reach = reach_of(__shfl_sync(~0u, own.distance, k - 1));
      } else {
        do {
          const int source = 31 - __clz(static_cast<int>(near));
          insert(own, __shfl_sync(~0u, distance, source), leaf * kLeaf + source);
          own_reach = reach_of(__shfl_sync(~0u, own.distance, k - 1));
          near &= ~(1u << source);
          near &= __ballot_sync(~0u, distance <= own_reach);  // it shrinks with every find
        } while (near != 0);
      }
      lists.list[q][lane] = own;
      if (lane % kQueries == q) reach = own_reach;
    }
  }

  // Leaves that are near along the curve come first, so that most others are too far when their turn comes:
  // the own one, then those beside it in turns.
  __device__ void run() {
    const std::int32_t seed = first / kLeaf, around = 1 + k / 16;
    std::int32_t step = 0, base = 0;
    int level = levels.top + 1;  // of one box
    unsigned open = 1;
    while (true) {
      std::int32_t leaf;
      if (step <= 2 * around) {
        leaf = (step & 1) != 0 ? seed - (step + 1) / 2 : seed + step / 2;
        ++step;
        if (leaf < 0 || leaf >= levels.count[0]) continue;
      } else {
        while (open == 0) {
          if (level >= levels.top) return;
          ++level;
          base = base / kLeaf & ~(kLeaf - 1);
          open = __shfl_sync(~0u, open_of, level);
        }
        leaf = base + __ffs(static_cast<int>(open)) - 1;
        open &= open - 1;
        if (level > 0) {
          if (lane_id() == level) open_of = open;
          --level;
          base = leaf * kLeaf;
          open = near_boxes(level, base);
          continue;
        }
        if (leaf >= seed - around && leaf <= seed + around) continue;
      }
      visit_leaf(leaf);
    }
  }

  // Whether the list of query q tells all k neighbours; else the search must be done in double.
  __device__ bool is_decided(const Candidate& own, float& within) const {
    const float last = __shfl_sync(~0u, own.distance, k - 1);
    within = reach_of(last);
    return last < 1e37f && __shfl_sync(~0u, own.distance, kLeaf - 1) > within;
  }

  // Writes the row of query q, where the list decides it.
  __device__ bool write(int q, const NeighbourListsOut& out, std::int64_t num_rows) const {
    const int lane = lane_id();
    const Candidate own = lists.list[q][lane];
    float within;
    if (!is_decided(own, within)) return false;
    const float next = __shfl_down_sync(~0u, own.distance, 1);
    const bool unclear =
        __any_sync(~0u, (lane == k - 1 || (lane < k && !out.ascending)) && next <= reach_of(own.distance));
    const bool may_be = unclear ? own.distance <= within : lane < k;
    std::int32_t index = INT_MAX;
    double exact = infinity_double();
    const float4 here = points[first + q];
    if (may_be) {
      const float4 p = points[own.position];
      index = __float_as_int(p.w);
      const double x = static_cast<double>(here.x) - p.x, y = static_cast<double>(here.y) - p.y,
                   z = static_cast<double>(here.z) - p.z;
      exact = x * x + y * y + z * z;
    }
    int rank = lane;
    if (unclear) {
      rank = 0;
#pragma unroll 1
      for (int j = 0; j < kLeaf; ++j) {
        const Entry other = {__shfl_sync(~0u, exact, j), __shfl_sync(~0u, index, j)};
        rank += other.precedes({exact, index});
      }
      if (rank >= k) index = INT_MAX;
    }
    const bool chosen = rank < k && index != INT_MAX;
    if (out.ascending) {
      rank = 0;
      const int lanes = unclear ? kLeaf : k;
#pragma unroll 4
      for (int j = 0; j < lanes; ++j) rank += __shfl_sync(~0u, index, j) < index;
    }
    const std::int64_t row = __float_as_int(here.w);
    if (chosen) {
      out.index[row * k + rank] = index;
      if (out.distance2 != nullptr) store_real(out.distance2, row * k + rank, exact, /*is_double=*/false);
      if (out.weight != nullptr) out.weight[row * k + rank] = 1.0f;
    }
    if (lane == 0) {
      if (out.num_found != nullptr) out.num_found[row] = k;
      if (out.row_ptr != nullptr) {
        out.row_ptr[row] = row * k;
        if (row == num_rows - 1) out.row_ptr[num_rows] = num_rows * k;
      }
    }
    return true;
  }
};

}  // namespace topomask::cuda
