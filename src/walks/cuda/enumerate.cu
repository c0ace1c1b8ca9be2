// Every walk of a few hops on a graph of one out-degree: the paper's point clouds, where 3 neighbours and 3
// hops make 40 visits. They are known to be so many, so each has a slot: the walks of hop h in order behind
// those of hop h - 1. Slots and nodes share a key of 32 bits, and rows have fixed places in the stage:
// nothing is shared between warps.
#include "core/cuda/lanes.cuh"
#include "walks/cuda/sample.h"

namespace topomask {

namespace {

constexpr int kSlotBits = 6, kSlots = 1 << kSlotBits, kWarps = 8, kRowsAWarp = 4;
constexpr std::uint32_t kEmpty = ~0u;

// The same for every row: where a visit comes from.
struct SlotTable {
  std::uint8_t parent[kSlots], neighbour[kSlots], hop[kSlots];

  __device__ void fill(int slot, int degree) {
    int first = 0, width = 1, level = 0;
    while (slot >= first + width) {
      first += width;
      width *= degree;
      ++level;
    }
    hop[slot] = static_cast<std::uint8_t>(level);
    parent[slot] =
        static_cast<std::uint8_t>(level == 0 ? 0 : first - width / degree + (slot - first) / degree);
    neighbour[slot] = static_cast<std::uint8_t>(level == 0 ? 0 : (slot - first) % degree);
  }
};

struct Visits {
  alignas(16) std::uint32_t key[kSlots];  // node and slot, or kEmpty behind a node without neighbours
  alignas(16) std::uint32_t sorted[kSlots];
  float load[kSlots];
};

// kRegular: row u begins at u * out_degree, for sure.
template <bool kRegular>
__device__ void walk_all(const FeatureRowsArguments& a, std::int32_t start, const SlotTable& table,
                         Visits& visits) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, degree = a.out_degree;
  if (lane == 0) {
    visits.key[0] = static_cast<std::uint32_t>(start) << kSlotBits;
    visits.load[0] = 1.0f;
  }
  __syncwarp();
  int first = 1, width = degree;
  for (int hop = 0; hop < a.plan.max_hops; ++hop) {
    for (int slot = first + lane; slot < first + width; slot += kWarpSize) {
      const int parent = table.parent[slot];
      const std::uint32_t from = visits.key[parent];
      std::uint32_t key = kEmpty;
      float load = 0;
      if (kRegular || from != kEmpty) {
        const std::int64_t node = from >> kSlotBits;
        std::int64_t begin = node * degree;
        bool onward = true;
        if constexpr (!kRegular) {
          begin = a.graph.row_ptr[node];
          const std::int64_t own = a.graph.row_ptr[node + 1] - begin;
          onward = own == degree;
          if (!onward && own != 0) a.status->irregular = 1;
        }
        if (onward) {
          const std::int64_t entry = begin + table.neighbour[slot];
          key =
              static_cast<std::uint32_t>(a.graph.col[entry]) << kSlotBits | static_cast<std::uint32_t>(slot);
          load = visits.load[parent] *
                 (a.plan.importance_weights ? a.graph.weight[entry] : 1.0f / static_cast<float>(degree));
        }
      }
      visits.key[slot] = key;
      visits.load[slot] = load;
    }
    __syncwarp();
    first += width;
    width *= degree;
  }
}

// Everyone counts the keys before its own; no two are equal but empty ones.
__device__ void sort_visits(Visits& visits, int count) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::uint32_t a = visits.key[lane], b = visits.key[lane + kWarpSize];
  int rank_a = 0, rank_b = 0;
  for (int i = 0; i < count; i += 4) {
    const uint4 four = *reinterpret_cast<const uint4*>(visits.key + i);
    rank_a += (four.x < a) + (four.y < a) + (four.z < a) + (four.w < a);
    rank_b += (four.x < b) + (four.y < b) + (four.z < b) + (four.w < b);
  }
  if (a != kEmpty) visits.sorted[rank_a] = a;
  if (b != kEmpty) visits.sorted[rank_b] = b;
}

template <bool kRegular>
__global__ void __launch_bounds__(kWarps* kWarpSize, 6)
    enumerate_rows(const __grid_constant__ FeatureRowsArguments a, int most) {
  __shared__ SlotTable table;
  __shared__ Visits of_warp[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
            warp = static_cast<int>(threadIdx.x) / kWarpSize;
  Visits& visits = of_warp[warp];
  if (threadIdx.x < static_cast<unsigned>(most)) table.fill(static_cast<int>(threadIdx.x), a.out_degree);
  for (int slot = most + lane; slot < kSlots; slot += kWarpSize) visits.key[slot] = kEmpty;
  __syncthreads();
  const unsigned lower = (1u << lane) - 1;
  const std::int32_t step = static_cast<std::int32_t>(gridDim.x) * kWarps;
  for (std::int32_t row = static_cast<std::int32_t>(blockIdx.x) * kWarps + warp; row < a.num_rows;
       row += step) {
    walk_all<kRegular>(a, a.first_row + row, table, visits);
    int count = most;
    if constexpr (!kRegular) {
      count = __popc(__ballot_sync(~0u, visits.key[lane] != kEmpty)) +
              __popc(__ballot_sync(~0u, visits.key[lane + kWarpSize] != kEmpty));
    }
    sort_visits(visits, most);
    __syncwarp();
    // Two visits a lane, in the order of their keys: node, then hop, then walk.
    const std::int64_t at = static_cast<std::int64_t>(row) * most;
    int entries = 0, deposits = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = lane + half * kWarpSize;
      const bool valid = i < count;
      const std::uint32_t here = valid ? visits.sorted[i] : 0,
                          before = valid && i > 0 ? visits.sorted[i - 1] : kEmpty;
      const auto hop_of = [&](std::uint32_t key) { return table.hop[key & (kSlots - 1)]; };
      const auto alike = [&](std::uint32_t x, std::uint32_t y) {
        return x >> kSlotBits == y >> kSlotBits && hop_of(x) == hop_of(y);
      };
      const bool new_entry = valid && (i == 0 || here >> kSlotBits != before >> kSlotBits);
      const bool new_deposit = valid && (i == 0 || !alike(here, before));
      const unsigned entry_votes = __ballot_sync(~0u, new_entry),
                     deposit_votes = __ballot_sync(~0u, new_deposit);
      const int entry = entries + __popc(entry_votes & lower),
                deposit = deposits + __popc(deposit_votes & lower);
      if (new_entry) {
        a.stage_col[at + entry] = static_cast<std::int32_t>(here >> kSlotBits);
        a.stage_first[at + entry] = deposit;
      }
      if (new_deposit) {
        float sum = visits.load[here & (kSlots - 1)];
        for (int j = i + 1; j < count; ++j) {
          const std::uint32_t next = visits.sorted[j];
          if (!alike(here, next)) break;
          sum += visits.load[next & (kSlots - 1)];
        }
        a.stage_load[at + deposit] = sum;
        a.stage_hop[at + deposit] = hop_of(here);
      }
      entries += __popc(entry_votes);
      deposits += __popc(deposit_votes);
    }
    if (lane == 0) {
      a.entries[row] = entries;
      a.deposits[row] = deposits;
      a.stage_at[row] = at;
    }
    __syncwarp();
  }
}

// Visits of one start, or more than there are slots.
std::int64_t visits_of(const FeatureRowsArguments& a) {
  std::int64_t walks = 1, total = 1;
  for (int hop = 0; hop < a.plan.max_hops && a.out_degree > 0 && total <= kSlots; ++hop) {
    walks *= a.out_degree;
    total += walks;
  }
  return total;
}

}  // namespace

bool enumerates_in_slots(const FeatureRowsArguments& a) {
  return a.out_degree >= 0 && a.row_list == nullptr &&
         a.graph.num_nodes < (std::int64_t{1} << (32 - kSlotBits)) && visits_of(a) <= kSlots &&
         a.num_rows * visits_of(a) <= a.stage_capacity;
}

cudaError_t enumerate_in_slots(const FeatureRowsArguments& a, cudaStream_t stream) {
  constexpr int kRowsABlock = kWarps * kRowsAWarp;
  const auto blocks = static_cast<unsigned>((a.num_rows + kRowsABlock - 1) / kRowsABlock);
  const int most = static_cast<int>(visits_of(a));
  if (a.graph.out_degree == a.out_degree) {
    enumerate_rows<true><<<blocks, kWarps * kWarpSize, 0, stream>>>(a, most);
  } else {
    enumerate_rows<false><<<blocks, kWarps * kWarpSize, 0, stream>>>(a, most);
  }
  return cudaGetLastError();
}

}  // namespace topomask
