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

struct RowSizes {
  int entries, deposits;
};

// Sums visits alike, two a lane, in the order of their keys: node, then hop, then walk. `row` takes the
// entries and deposits.
template <class Row>
__device__ RowSizes sum_visits(const Visits& visits, const SlotTable& table, int count, const Row& row) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const unsigned lower = (1u << lane) - 1;
  RowSizes sizes = {0, 0};
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
    const int deposit = sizes.deposits + __popc(deposit_votes & lower);
    if (new_entry) {
      row.put_entry(sizes.entries + __popc(entry_votes & lower), static_cast<std::int32_t>(here >> kSlotBits),
                    deposit);
    }
    if (new_deposit) {
      float sum = visits.load[here & (kSlots - 1)];
      for (int j = i + 1; j < count; ++j) {
        const std::uint32_t next = visits.sorted[j];
        if (!alike(here, next)) break;
        sum += visits.load[next & (kSlots - 1)];
      }
      row.put_deposit(deposit, sum, hop_of(here));
    }
    sizes.entries += __popc(entry_votes);
    sizes.deposits += __popc(deposit_votes);
  }
  return sizes;
}

// All of a row. What it is put into is up to `row`.
template <bool kRegular, class Row>
__device__ RowSizes enumerate_row(const FeatureRowsArguments& a, std::int32_t start, int most,
                                  const SlotTable& table, Visits& visits, const Row& row) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  walk_all<kRegular>(a, start, table, visits);
  int count = most;
  if constexpr (!kRegular) {
    count = __popc(__ballot_sync(~0u, visits.key[lane] != kEmpty)) +
            __popc(__ballot_sync(~0u, visits.key[lane + kWarpSize] != kEmpty));
  }
  sort_visits(visits, most);
  __syncwarp();
  const RowSizes sizes = sum_visits(visits, table, count, row);
  __syncwarp();
  return sizes;
}

// By all threads of a block, before the first row.
__device__ void prepare(SlotTable& table, Visits& visits, int degree, int most) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if (threadIdx.x < static_cast<unsigned>(most)) table.fill(static_cast<int>(threadIdx.x), degree);
  for (int slot = most + lane; slot < kSlots; slot += kWarpSize) visits.key[slot] = kEmpty;
  __syncthreads();
}

struct StagedRow {
  const FeatureRowsArguments& a;
  std::int64_t at;

  __device__ void put_entry(int entry, std::int32_t col, int deposit) const {
    a.stage_col[at + entry] = col;
    a.stage_first[at + entry] = deposit;
  }
  __device__ void put_deposit(int deposit, float load, int hop) const {
    a.stage_load[at + deposit] = load;
    a.stage_hop[at + deposit] = static_cast<std::int16_t>(hop);
  }
};

template <bool kRegular>
__global__ void __launch_bounds__(kWarps* kWarpSize, 6)
    enumerate_rows(const __grid_constant__ FeatureRowsArguments a, int most) {
  __shared__ SlotTable table;
  __shared__ Visits of_warp[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
            warp = static_cast<int>(threadIdx.x) / kWarpSize;
  prepare(table, of_warp[warp], a.out_degree, most);
  const std::int32_t step = static_cast<std::int32_t>(gridDim.x) * kWarps;
  for (std::int32_t row = static_cast<std::int32_t>(blockIdx.x) * kWarps + warp; row < a.num_rows;
       row += step) {
    const std::int64_t at = static_cast<std::int64_t>(row) * most;
    const RowSizes sizes =
        enumerate_row<kRegular>(a, a.first_row + row, most, table, of_warp[warp], StagedRow{a, at});
    if (lane != 0) continue;
    a.entries[row] = sizes.entries;
    a.deposits[row] = sizes.deposits;
    a.stage_at[row] = at;
  }
}

// A tile is the rows of a block. Its word says what is known of it: nothing (0), its own sizes, or those of
// all rows up to its end. 2 + 31 + 31 bits, so that one store tells all.
using TileWord = unsigned long long;
constexpr int kRowsATile = kWarps * kRowsAWarp;
constexpr int kSizeBits = 31;
constexpr TileWord kOwnSizes = 1ull << (2 * kSizeBits), kAllSizes = 2ull << (2 * kSizeBits),
                   kSizesMask = kOwnSizes - 1;

__device__ TileWord load_word(const TileWord* word) {
  return *static_cast<const volatile TileWord*>(word);
}

// The sizes of all rows before a tile, by a warp: 32 tiles at a time, back to one that knows all.
__device__ TileWord sizes_before(const TileWord* words, int tile) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  TileWord sum = 0;
  for (int last = tile - 1; last >= 0; last -= kWarpSize) {
    const int mine = last - lane;
    TileWord word = kAllSizes;
    if (mine >= 0) {
      do {
        word = load_word(words + mine);
      } while (word == 0);
    }
    __syncwarp();
    const unsigned all = __ballot_sync(~0u, word >= kAllSizes);
    const int nearest = all == 0 ? kWarpSize : __ffs(static_cast<int>(all)) - 1;
    sum += sum_lanes(lane <= nearest ? word & kSizesMask : 0);
    if (all != 0) break;
  }
  return sum;
}

// A row in shared memory, `most` places for each of its parts.
struct TileRow {
  std::int32_t* col;
  float* load;
  std::uint8_t *first, *hop;

  __device__ TileRow(char* tile, int row, int most)
      : col(reinterpret_cast<std::int32_t*>(tile) + row * most),
        load(reinterpret_cast<float*>(tile) + (kRowsATile + row) * most),
        first(reinterpret_cast<std::uint8_t*>(tile) + 8 * kRowsATile * most + row * most),
        hop(first + kRowsATile * most) {}
  static std::size_t tile_bytes(int most) { return std::size_t{10} * kRowsATile * most; }

  __device__ void put_entry(int entry, std::int32_t to, int deposit) const {
    col[entry] = to;
    first[entry] = static_cast<std::uint8_t>(deposit);
  }
  __device__ void put_deposit(int deposit, float sum, int at_hop) const {
    load[deposit] = sum;
    hop[deposit] = static_cast<std::uint8_t>(at_hop);
  }
};

// Rows straight to their places. A tile waits until all tiles before it have counted theirs: blocks start in
// the order of their numbers, so none waits for one that cannot run. The last kTailBlocks fill the places
// that no row takes.
constexpr int kTailBlocks = 64;

template <bool kRegular>
__global__ void __launch_bounds__(kWarps* kWarpSize, 6)
    enumerate_tiles(const __grid_constant__ FeatureRowsArguments a, int most,
                    const __grid_constant__ EnumeratedRows out) {
  extern __shared__ __align__(16) char rows_of_tile[];
  __shared__ SlotTable table;
  __shared__ Visits of_warp[kWarps];
  __shared__ RowSizes sizes_of[kRowsATile];
  __shared__ TileWord begin_of[kRowsATile + 1];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
            warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int tiles = static_cast<int>(gridDim.x) - kTailBlocks, tile = static_cast<int>(blockIdx.x);
  if (tile >= tiles) {
    TileWord all;
    do {
      all = load_word(out.tile_words + tiles - 1);
    } while (all < kAllSizes);
    const auto entries = static_cast<std::int64_t>((all & kSizesMask) >> kSizeBits),
               deposits = static_cast<std::int64_t>(all & ((1ull << kSizeBits) - 1));
    constexpr int kStep = kTailBlocks * kWarps * kWarpSize;
    for (std::int64_t e = entries + (tile - tiles) * kWarps * kWarpSize + threadIdx.x; e < out.capacity;
         e += kStep) {
      out.col[e] = 0;
      out.deposit_ptr[e + 1] = deposits;
    }
    return;
  }
  prepare(table, of_warp[warp], a.out_degree, most);
  const std::int32_t first_row = tile * kRowsATile;
  for (int r = warp; r < kRowsATile; r += kWarps) {
    RowSizes sizes = {0, 0};
    if (first_row + r < a.num_rows) {
      sizes = enumerate_row<kRegular>(a, a.first_row + first_row + r, most, table, of_warp[warp],
                                      TileRow(rows_of_tile, r, most));
    }
    if (lane == 0) sizes_of[r] = sizes;
  }
  __syncthreads();
  if (warp == 0) {
    static_assert(kRowsATile == kWarpSize);
    const TileWord own = static_cast<TileWord>(sizes_of[lane].entries) << kSizeBits |
                         static_cast<TileWord>(sizes_of[lane].deposits);
    const TileWord up_to = running_sum_of_lanes(own), total = __shfl_sync(~0u, up_to, kWarpSize - 1);
    volatile TileWord* word = out.tile_words + tile;
    if (lane == 0 && tile > 0) *word = kOwnSizes | total;
    const TileWord before = sizes_before(out.tile_words, tile);
    if (lane == 0) *word = kAllSizes | (before + total);
    begin_of[lane + 1] = before + up_to;
    if (lane == 0) begin_of[0] = before;
  }
  __syncthreads();
  constexpr int kLanes = 16;  // a row: rows of local graphs have about as many entries
  const auto entries_in = [](TileWord sizes) { return static_cast<std::int64_t>(sizes >> kSizeBits); };
  const auto deposits_in = [](TileWord sizes) {
    return static_cast<std::int64_t>(sizes & ((1ull << kSizeBits) - 1));
  };
  for (int r = static_cast<int>(threadIdx.x) / kLanes; r < kRowsATile; r += kWarps * kWarpSize / kLanes) {
    const std::int32_t row = first_row + r;
    if (row >= a.num_rows) break;
    const std::int64_t first_entry = entries_in(begin_of[r]), first_deposit = deposits_in(begin_of[r]);
    const RowSizes sizes = sizes_of[r];
    const TileRow from(rows_of_tile, r, most);
    const int mine = static_cast<int>(threadIdx.x) % kLanes;
    for (int e = mine; e < sizes.entries; e += kLanes) {
      out.col[first_entry + e] = from.col[e];
      out.deposit_ptr[first_entry + e] = first_deposit + from.first[e];
    }
    for (int d = mine; d < sizes.deposits; d += kLanes) {
      out.hop[first_deposit + d] = from.hop[d];
      out.load[first_deposit + d] = from.load[d];
    }
    if (mine != 0) continue;
    out.row_ptr[row] = first_entry;
    if (row == a.num_rows - 1) {
      out.row_ptr[row + 1] = first_entry + sizes.entries;
      out.deposit_ptr[first_entry + sizes.entries] = first_deposit + sizes.deposits;
    }
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

// Whether every visit has a slot of its own.
bool has_slots(const FeatureRowsArguments& a) {
  return a.out_degree >= 0 && a.row_list == nullptr &&
         a.graph.num_nodes < (std::int64_t{1} << (32 - kSlotBits)) && visits_of(a) <= kSlots;
}

}  // namespace

bool enumerates_in_slots(const FeatureRowsArguments& a) {
  return has_slots(a) && a.num_rows * visits_of(a) <= a.stage_capacity;
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

bool enumerates_in_place(const FeatureRowsArguments& a) {
  return has_slots(a) && a.num_rows > 0 && a.num_rows * visits_of(a) < (std::int64_t{1} << kSizeBits);
}

std::int64_t enumeration_tiles(std::int64_t num_rows) {
  return (num_rows + kRowsATile - 1) / kRowsATile;
}

cudaError_t enumerate_in_place(const FeatureRowsArguments& a, const EnumeratedRows& out,
                               cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(enumeration_tiles(a.num_rows)) + kTailBlocks;
  const int most = static_cast<int>(visits_of(a));
  const std::size_t bytes = TileRow::tile_bytes(most);
  if (a.graph.out_degree == a.out_degree) {
    enumerate_tiles<true><<<blocks, kWarps * kWarpSize, bytes, stream>>>(a, most, out);
  } else {
    enumerate_tiles<false><<<blocks, kWarps * kWarpSize, bytes, stream>>>(a, most, out);
  }
  return cudaGetLastError();
}

}  // namespace topomask
