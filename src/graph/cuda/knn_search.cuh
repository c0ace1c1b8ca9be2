// A warp that looks for the neighbours of a few queries in a hierarchy of boxes.
//
// A Space holds the points in leaves of 32, the boxes above them and the queries of this warp:
//
//   Real                  what distances are filtered by: float or double
//
//   kQueries              queries of a warp
//
//   num_boxes(level)      boxes of a level; level 0 holds the leaves
//
//   top()                 the first level of at most 32 boxes
//
//   box(level, i)         a box
//
//   gap(q, box)           the squared distance that nothing in it is nearer to query q than
//
//   point(position)       a point
//
//   distance(q, point)    its squared distance to query q; NaN where there is none
//
//   exact(q, point)       the same in double, as defined
//
//   reach_of(squared)     no point that is as near as this has a larger distance(q, point)
//
//   meets(q, first, end)  whether any of these positions belongs to the graph of query q
//
//   own(q)                the index that query q must not find
#pragma once

#include <climits>
#include <cstdint>

#include "core/cuda/lanes.cuh"
#include "graph/cuda/knn.h"

namespace topomask::cuda {

constexpr int kLeaf = 32;      // points per leaf and boxes per box: one per lane
constexpr int kMaxLevels = 7;  // 32^7 boxes exceed every index

__device__ inline int lane_id() {
  return static_cast<int>(threadIdx.x) % kLeaf;
}
__device__ inline double infinity_double() {
  return __longlong_as_double(0x7FF0000000000000);
}
__device__ inline float infinity_float() {
  return __int_as_float(0x7F800000);
}

__device__ inline void store_real(void* array, std::int64_t i, double value, bool is_double) {
  if (is_double) {
    static_cast<double*>(array)[i] = value;
  } else {
    static_cast<float*>(array)[i] = static_cast<float>(value);
  }
}

struct Entry {
  double distance;
  std::int32_t index;

  __device__ bool precedes(const Entry& other) const {
    return distance < other.distance || (distance == other.distance && index < other.index);
  }
};

// One step of a bitonic network: of two lanes that differ in bit `step` the lower one keeps what comes first,
// or last.
__device__ inline void exchange(Entry& own, int step, bool ascending) {
  const Entry other = {__shfl_xor_sync(~0u, own.distance, step), __shfl_xor_sync(~0u, own.index, step)};
  const bool keeps_first = ((lane_id() & step) == 0) == ascending;
  if (other.precedes(own) == keeps_first) own = other;
}

// The first 32 of a sorted list, one entry a lane, and of as many candidates, sorted: the candidates are
// sorted and laid against the list in reverse, and the first of each pair is kept, which leaves a bitonic
// sequence. One copy for all queries: it is long.
static __device__ __noinline__ Entry merge_sorted(Entry list, Entry candidate) {
#pragma unroll
  for (int run = 2; run <= kLeaf; run *= 2) {
#pragma unroll
    for (int step = run / 2; step > 0; step /= 2) exchange(candidate, step, (lane_id() & run) == 0);
  }
  const Entry reversed = {__shfl_xor_sync(~0u, candidate.distance, kLeaf - 1),
                          __shfl_xor_sync(~0u, candidate.index, kLeaf - 1)};
  if (reversed.precedes(list)) list = reversed;
#pragma unroll
  for (int step = kLeaf / 2; step > 0; step /= 2) exchange(list, step, true);
  return list;
}

// The nearest candidates of one query, ascending, spread over the lanes of a warp: slot s is in lane s % 32.
// An entry is taken in by all lanes at once, in the same few steps however many there are.
template <int kSlots>  // a lane
struct Nearest {
  double distance[kSlots];
  std::int32_t index[kSlots];

  __device__ void clear() {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      distance[s] = infinity_double();
      index[s] = INT_MAX;
    }
  }

  // `new_distance` and `new_index` are the same in all lanes. Returns the distance of the k-th.
  __device__ double add(double new_distance, std::int32_t new_index, int k) {
    const int lane = lane_id();
    int position = 0;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      position += __popc(__ballot_sync(
          ~0u, distance[s] < new_distance || (distance[s] == new_distance && index[s] < new_index)));
    }
#pragma unroll
    for (int s = kSlots - 1; s >= 0; --s) {
      double below_distance = __shfl_up_sync(~0u, distance[s], 1);
      std::int32_t below_index = __shfl_up_sync(~0u, index[s], 1);
      if (s > 0) {
        const double carried = __shfl_sync(~0u, distance[s - (s > 0)], kLeaf - 1);
        const std::int32_t carried_index = __shfl_sync(~0u, index[s - (s > 0)], kLeaf - 1);
        if (lane == 0) {
          below_distance = carried;
          below_index = carried_index;
        }
      }
      const int slot = s * kLeaf + lane;
      if (slot > position) {
        distance[s] = below_distance;
        index[s] = below_index;
      } else if (slot == position) {
        distance[s] = new_distance;
        index[s] = new_index;
      }
    }
    return last(k);
  }

  // The same with a candidate in every lane, infinity where there is none.
  __device__ double merge(double new_distance, std::int32_t new_index, int k) {
    static_assert(kSlots == 1);
    const Entry merged = merge_sorted({distance[0], index[0]}, {new_distance, new_index});
    distance[0] = merged.distance;
    index[0] = merged.index;
    return last(k);
  }

  __device__ double last(int k) const {
    double found = distance[0];
#pragma unroll
    for (int s = 1; s < kSlots; ++s) found = k > s * kLeaf ? distance[s] : found;
    return __shfl_sync(~0u, found, (k - 1) % kLeaf);
  }
};

// What all searches have in common: the way through the boxes.
template <class Space>
struct Walk {
  using Real = typename Space::Real;
  static constexpr int kQueries = Space::kQueries;

  const Space& space;
  Real reach[kQueries];  // nothing farther matters; negative: there is no query

  // Which of up to 32 boxes of a level any query may need, one box a lane.
  __device__ unsigned near_boxes(int level, std::int32_t first) const {
    const std::int32_t box = first + lane_id();
    bool is_near = false;
    if (box < space.num_boxes(level)) {
      const auto corners = space.box(level, box);
      const int shift = 5 * (level + 1);
      const std::int64_t begin = static_cast<std::int64_t>(box) << shift, end = begin + (1ll << shift);
#pragma unroll
      for (int q = 0; q < kQueries; ++q) {
        is_near = is_near || (space.meets(q, begin, end) && !(space.gap(q, corners) > reach[q]));
      }
    }
    return __ballot_sync(~0u, is_near);
  }

  // Which queries may need the leaf, one query per lane.
  __device__ unsigned queries_near(std::int32_t leaf) const {
    const int q = lane_id() % kQueries;
    Real own_reach = reach[0];
#pragma unroll
    for (int r = 1; r < kQueries; ++r) own_reach = q == r ? reach[r] : own_reach;
    const std::int64_t begin = static_cast<std::int64_t>(leaf) * kLeaf;
    return __ballot_sync(
        ~0u, space.meets(q, begin, begin + kLeaf) && !(space.gap(q, space.box(0, leaf)) > own_reach));
  }
};

// Where a walk stands.
struct WalkState {
  std::int32_t base[kMaxLevels];
  unsigned open[kMaxLevels];
  int level = -1;  // not begun
};

// The next leaf any query may need, or -1.
template <class Space>
__device__ std::int32_t next_leaf(const Walk<Space>& walk, WalkState& state) {
  const int top = walk.space.top();
  if (state.level < 0) {
    state.level = top;
    state.base[top] = 0;
    state.open[top] = walk.near_boxes(top, 0);
  }
  while (true) {
    while (state.open[state.level] == 0 && state.level < top) ++state.level;
    if (state.open[state.level] == 0) return -1;
    const std::int32_t box = state.base[state.level] + __ffs(static_cast<int>(state.open[state.level])) - 1;
    state.open[state.level] &= state.open[state.level] - 1;
    if (state.level == 0) return box;
    --state.level;
    state.base[state.level] = box * kLeaf;
    state.open[state.level] = walk.near_boxes(state.level, box * kLeaf);
  }
}

// The k nearest. kFew: taken in one by one, whatever k is, and no code for merges of many.
constexpr int kFewNeighbours = 8;

template <class Space, int kSlots, bool kFew>
struct Search {
  using Real = typename Space::Real;
  static constexpr int kQueries = Space::kQueries;

  Walk<Space> walk;
  int k;
  double limit;
  Nearest<kSlots> nearest[kQueries];

  // `active`: which queries there are.
  __device__ Search(const Space& space, int k_, double limit_, unsigned active)
      : walk{space, {}}, k(k_), limit(limit_) {
#pragma unroll
    for (int q = 0; q < kQueries; ++q) {
      nearest[q].clear();
      walk.reach[q] = (active >> q & 1) != 0 ? space.reach_of(limit) : Real{-1};
    }
  }

  // A first bound on the reach: the k-th smallest distance within a leaf, for small k. Equal ones count once,
  // which makes the bound larger if anything.
  __device__ Real first_reach(Real distance) const {
    unsigned bits = __float_as_uint(rounded_up(distance)), smallest = 0;
    for (int j = 0; j < k; ++j) {
      smallest = __reduce_min_sync(~0u, bits);
      if (bits == smallest) bits = 0x7F800000;
    }
    return walk.space.reach_of(static_cast<double>(__uint_as_float(smallest)));
  }
  static __device__ float rounded_up(float x) {
    return x;
  }
  static __device__ float rounded_up(double x) {
    return __double2float_ru(x);
  }

  __device__ void visit_leaf(std::int32_t leaf, bool is_seed) {
    constexpr int kLeastToMerge = 8;  // fewer candidates are added one by one
    const bool few = kFew || k <= kFewNeighbours;
    const Space& space = walk.space;
    const unsigned wanted = walk.queries_near(leaf);
    if (wanted == 0) return;
    const std::int64_t position = static_cast<std::int64_t>(leaf) * kLeaf + lane_id();
    const auto p = space.point(position);
    const std::int32_t index = space.index(p);
#pragma unroll
    for (int q = 0; q < kQueries; ++q) {
      if ((wanted >> q & 1) == 0) continue;
      const Real distance = space.distance(q, p);
      // A comparison that NaN does not pass.
      const bool other = index != space.own(q) && space.meets(q, position, position + 1) && distance >= 0;
      if (is_seed && few) {
        walk.reach[q] =
            min(walk.reach[q], first_reach(other ? distance : static_cast<Real>(infinity_float())));
      }
      unsigned near = __ballot_sync(~0u, other && distance <= walk.reach[q]);
      if (near == 0) continue;
      const double exact = space.exact(q, p, distance);
      near &= __ballot_sync(~0u, exact <= limit);
      if constexpr (kSlots == 1 && !kFew) {
        if (!few && __popc(near) >= kLeastToMerge) {
          const bool mine = (near >> lane_id() & 1) != 0;
          shrink(q, nearest[q].merge(mine ? exact : infinity_double(), mine ? index : INT_MAX, k));
          continue;
        }
      }
      while (near != 0) {
        const int source = __ffs(static_cast<int>(near)) - 1;
        shrink(q, nearest[q].add(__shfl_sync(~0u, exact, source), __shfl_sync(~0u, index, source), k));
        // The reach shrinks with every find.
        near &= near - 1;
        near &= __ballot_sync(~0u, distance <= walk.reach[q]);
      }
    }
  }

  // The k-th is this far by now, or there is none yet.
  __device__ void shrink(int q, double last) {
    walk.reach[q] = min(walk.reach[q], walk.space.reach_of(last));
  }

  // Leaves that are near along the curve come first, so that most others are too far when their turn comes.
  // `seed`: where query lane % kQueries is on the curve, ascending.
  __device__ void run(std::int32_t seed) {
    const std::int32_t around = 1 + k / 16, last_leaf = walk.space.num_boxes(0) - 1;
    std::int32_t first = 0, last = -1, centre = 0, step = 0;
    int next_query = 0;
    WalkState state;
    while (true) {
      while (first + step > last && next_query < kQueries) {
        const std::int32_t here = __shfl_sync(~0u, seed, next_query);
        ++next_query;
        first = max(here - around, last + 1);
        last = max(last, min(here + around, last_leaf));
        centre = max(here, first);
        step = 0;
      }
      std::int32_t leaf;
      bool is_seed = false;
      if (first + step <= last) {
        is_seed = step == 0;
        leaf = is_seed ? centre : first + step <= centre ? first + step - 1 : first + step;
        ++step;
      } else {
        leaf = next_leaf(walk, state);
        if (leaf < 0) return;
        if (__any_sync(~0u, leaf >= seed - around && leaf <= seed + around)) continue;
      }
      visit_leaf(leaf, is_seed);
    }
  }

  // Rank of the neighbour in slot s of this lane by its index; those that are missing come last.
  __device__ int rank_by_index(const Nearest<kSlots>& found, int s) const {
    const int slot = s * kLeaf + lane_id();
    int rank = 0;
#pragma unroll
    for (int t = 0; t < kSlots; ++t) {
      for (int j = 0; j < kLeaf && t * kLeaf + j < k; ++j) {
        const std::int32_t other = __shfl_sync(~0u, found.index[t], j);
        rank += other < found.index[s] || (other == found.index[s] && t * kLeaf + j < slot);
      }
    }
    return rank;
  }

  // `row`: [kQueries] shared, -1 where there is no query.
  __device__ void write(const std::int32_t* row, const NeighbourListsOut& out, const NeighbourArguments& a,
                        bool is_double) {
#pragma unroll
    for (int q = 0; q < kQueries; ++q) {
      const std::int64_t to = row[q];
      if (to < 0) continue;
      Nearest<kSlots>& found = nearest[q];
      int have = 0;
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        const int slot = s * kLeaf + lane_id();
        const bool missing = found.index[s] == INT_MAX;
        have += __popc(__ballot_sync(~0u, !missing && slot < k));
        if (missing && out.complete) found.index[s] = static_cast<std::int32_t>((to + 1 + slot) % a.count);
      }
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        const int slot = s * kLeaf + lane_id();
        const int rank = out.ascending ? rank_by_index(found, s) : slot;
        if (slot >= k) continue;
        const std::int32_t index = found.index[s];
        out.index[to * k + rank] = index == INT_MAX ? -1 : index;
        if (out.distance2 != nullptr) store_real(out.distance2, to * k + rank, found.distance[s], is_double);
        if (out.weight != nullptr) out.weight[to * k + rank] = 1.0f;
      }
      if (lane_id() != 0) continue;
      if (out.num_found != nullptr) out.num_found[to] = have;
      if (out.row_ptr != nullptr) {
        out.row_ptr[to] = to * k;
        if (to == a.num_queries - 1) out.row_ptr[a.num_queries] = a.num_queries * k;
      }
    }
  }
};

// All within a radius: counted, or written from `row_ptr` on.
template <class Space>
struct RadiusSearch {
  using Real = typename Space::Real;
  static constexpr int kQueries = Space::kQueries;

  Walk<Space> walk;
  double limit;
  std::int32_t found[kQueries];

  __device__ RadiusSearch(const Space& space, double limit_, unsigned active)
      : walk{space, {}}, limit(limit_) {
#pragma unroll
    for (int q = 0; q < kQueries; ++q) {
      found[q] = 0;
      walk.reach[q] = (active >> q & 1) != 0 ? space.reach_of(limit) : Real{-1};
    }
  }

  // `row`: [kQueries] shared. `row_ptr` null: only count.
  __device__ void run(const std::int32_t* row, const std::int64_t* row_ptr, std::int32_t* col,
                      void* distance2, bool is_double) {
    const Space& space = walk.space;
    WalkState state;
    for (std::int32_t leaf; (leaf = next_leaf(walk, state)) >= 0;) {
      const unsigned wanted = walk.queries_near(leaf);
      if (wanted == 0) continue;
      const std::int64_t position = static_cast<std::int64_t>(leaf) * kLeaf + lane_id();
      const auto p = space.point(position);
      const std::int32_t index = space.index(p);
#pragma unroll
      for (int q = 0; q < kQueries; ++q) {
        if ((wanted >> q & 1) == 0) continue;
        const Real distance = space.distance(q, p);
        const bool other = index != space.own(q) && space.meets(q, position, position + 1) && distance >= 0;
        if (__ballot_sync(~0u, other && distance <= walk.reach[q]) == 0) continue;
        const double exact = space.exact(q, p, distance);
        const bool mine = other && exact <= limit;
        const unsigned within = __ballot_sync(~0u, mine);
        if (row_ptr != nullptr && mine) {
          const std::int64_t to = row_ptr[row[q]] + found[q] + __popc(within & ((1u << lane_id()) - 1));
          col[to] = index;
          store_real(distance2, to, exact, is_double);
        }
        found[q] += __popc(within);
      }
    }
  }
};

template <class RadiusSearch>
__device__ void write_counts(const RadiusSearch& search, const std::int32_t* row, std::int32_t* num_found) {
  if (num_found == nullptr || lane_id() != 0) return;
#pragma unroll
  for (int q = 0; q < RadiusSearch::kQueries; ++q) {
    if (row[q] >= 0) num_found[row[q]] = search.found[q];
  }
}

}  // namespace topomask::cuda
