#include "walks/cuda/sample.h"

#include <algorithm>

#include "walks/cpu/walk_plan.h"
#include "walks/cuda/walkers.cuh"

namespace topomask {

namespace {

constexpr int kMaxWarpsPerBlock = 8;
constexpr int kBlockTeamThreads = 512;

enum class Mode { independent, repelling, enumerate };

bool needs_repelling_scratch(const DeviceWalkPlan& plan) {
  return plan.repelling && plan.num_walks > kWarpSize;
}

std::size_t repelling_bytes(const DeviceWalkPlan& plan) {
  return sizeof(std::uint64_t) * static_cast<std::size_t>(next_power_of_two(plan.num_walks)) +
         sizeof(RepellingWalker) * static_cast<std::size_t>(plan.num_walks);
}

// A team's arrays, in the order of their alignment.
struct TeamArrays {
  std::uint64_t* key;  // [capacity] node, hop, walker
  float* load;         // [capacity]
  int* count;          // shared even where the arrays are not
  RepellingScratch repelling;
};

__device__ RepellingScratch repelling_arrays(char* memory, const DeviceWalkPlan& plan, int* live) {
  RepellingScratch scratch;
  scratch.order = reinterpret_cast<std::uint64_t*>(memory);
  scratch.walkers = reinterpret_cast<RepellingWalker*>(scratch.order + next_power_of_two(plan.num_walks));
  scratch.live = live;
  return scratch;
}

__device__ TeamArrays team_arrays(char* memory, int capacity, const DeviceWalkPlan& plan, int* counters) {
  TeamArrays arrays;
  arrays.key = reinterpret_cast<std::uint64_t*>(memory);
  arrays.load = reinterpret_cast<float*>(arrays.key + capacity);
  arrays.count = counters;
  // capacity is even, so what follows is aligned for 8 bytes.
  arrays.repelling = repelling_arrays(reinterpret_cast<char*>(arrays.load + capacity), plan, counters + 1);
  return arrays;
}

template <Mode mode, class Team, class Visit>
__device__ bool run_walkers(const Team& team, const DeviceWalkPlan& plan, const DeviceGraph& graph,
                            std::int32_t start, std::int32_t out_degree, const RepellingScratch& scratch,
                            const Visit& visit) {
  if constexpr (mode == Mode::enumerate) {
    return enumerate_walks(team, plan, graph, start, out_degree, visit);
  } else if constexpr (mode == Mode::repelling) {
    if constexpr (Team::kIsWarp) {
      if (plan.num_walks <= kWarpSize) {
        repel_in_warp(plan, graph, start, visit);
        return true;
      }
    }
    repel_in_team(team, plan, graph, start, scratch, visit);
    return true;
  } else {
    walk_independently(team, plan, graph, start, visit);
    return true;
  }
}

struct RowSize {
  int visits, entries, deposits;
};

// Calls emit(i, entry, deposit, first_of_entry, first_of_deposit) for every sorted visit, with the numbers of
// the entry and the deposit that it belongs to or begins. Returns the counts.
template <class Team, class Emit>
__device__ RowSize for_each_visit(const Team& team, const std::uint64_t* key, int visits, int walk_bits,
                                  const Emit& emit) {
  RowSize size = {visits, 0, 0};
  for (int base = 0; base < visits; base += team.size()) {
    const int i = base + team.rank();
    const bool valid = i < visits;
    const std::uint64_t here = valid ? key[i] : 0, before = valid && i > 0 ? key[i - 1] : ~std::uint64_t{0};
    const bool new_entry = valid && here >> 32 != before >> 32;
    const bool new_deposit = valid && here >> walk_bits != before >> walk_bits;
    int entries, deposits;
    const int entry = size.entries + team.exclusive_count(new_entry, entries);
    const int deposit = size.deposits + team.exclusive_count(new_deposit, deposits);
    emit(i, entry, deposit, new_entry, new_deposit);
    size.entries += entries;
    size.deposits += deposits;
  }
  return size;
}

// Samples and sorts one row; the counts are 0 where it does not fit.
template <Mode mode, class Team>
__device__ RowSize make_row(const Team& team, const FeatureRowsArguments& a, std::int32_t start,
                            const TeamArrays& arrays) {
  const auto key_of = [&](std::int32_t node, int hop, std::int32_t walk) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(node)) << 32 |
           (static_cast<std::uint32_t>(hop) << a.walk_bits | static_cast<std::uint32_t>(walk));
  };
  if (team.rank() == 0) {
    arrays.key[0] = key_of(start, 0, 0);
    arrays.load[0] = mode == Mode::enumerate ? 1.0f : static_cast<float>(a.plan.num_walks);
    *arrays.count = 1;
  }
  team.sync();
  const bool regular = run_walkers<mode>(team, a.plan, a.graph, start, a.out_degree, arrays.repelling,
                                         [&](std::int32_t walk, int hop, std::int32_t node, float load) {
                                           const int slot = atomicAdd(arrays.count, 1);
                                           if (slot >= a.capacity) return;
                                           arrays.key[slot] = key_of(node, hop, walk);
                                           arrays.load[slot] = load;
                                         });
  if (!regular) a.status->irregular = 1;
  team.sync();
  const int visits = *arrays.count;
  if (visits > a.capacity) return {visits, 0, 0};
  team_sort<true>(team, arrays.key, arrays.load, visits);
  return for_each_visit(team, arrays.key, visits, a.walk_bits, [](int, int, int, bool, bool) {});
}

template <class Team>
__device__ void write_row(const Team& team, const FeatureRowsArguments& a, const TeamArrays& arrays,
                          int visits, std::int64_t at, float scale) {
  for_each_visit(team, arrays.key, visits, a.walk_bits,
                 [&](int i, int entry, int deposit, bool new_entry, bool new_deposit) {
                   if (new_entry) {
                     a.stage_col[at + entry] = static_cast<std::int32_t>(arrays.key[i] >> 32);
                     a.stage_first[at + entry] = deposit;
                   }
                   if (!new_deposit) return;
                   const std::uint64_t pair = arrays.key[i] >> a.walk_bits;
                   float sum = arrays.load[i];
                   for (int j = i + 1; j < visits && arrays.key[j] >> a.walk_bits == pair; ++j)
                     sum += arrays.load[j];
                   a.stage_load[at + deposit] = sum * scale;
                   a.stage_hop[at + deposit] =
                       static_cast<std::int16_t>(static_cast<std::uint32_t>(arrays.key[i]) >> a.walk_bits);
                 });
}

__device__ void report_overflow(const FeatureRowsArguments& a, std::int32_t row, int visits) {
  a.overflow_list[atomicAdd(&a.status->overflow_rows, 1ull)] = row;
  atomicAdd(&a.status->overflow_visits, static_cast<unsigned long long>(visits));
  atomicMax(&a.status->overflow_most, static_cast<unsigned long long>(visits));
}

// One thread per row: sizes to memory. Rows without a place are done again later.
__device__ void finish_row(const FeatureRowsArguments& a, std::int32_t row, const RowSize& size,
                           std::int64_t at) {
  const bool fits = size.deposits > 0 && at + size.deposits <= a.stage_capacity;
  a.entries[row] = fits ? size.entries : 0;
  a.deposits[row] = fits ? size.deposits : 0;
  a.stage_at[row] = a.stage_mark + at;
  if (!fits) report_overflow(a, row, size.visits);
}

template <Mode mode>
__device__ float row_scale(const DeviceWalkPlan& plan) {
  return mode == Mode::enumerate ? 1.0f : 1.0f / static_cast<float>(plan.num_walks);
}

template <Mode mode>
__global__ void __launch_bounds__(kMaxWarpsPerBlock* kWarpSize)
    feature_rows_by_warp(const __grid_constant__ FeatureRowsArguments a) {
  extern __shared__ __align__(16) char shared[];
  __shared__ int counters[kMaxWarpsPerBlock][2];
  __shared__ RowSize sizes[kMaxWarpsPerBlock];
  __shared__ long long place[kMaxWarpsPerBlock];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize,
            warps = static_cast<int>(blockDim.x) / kWarpSize;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * warps + warp;
  const bool valid = index < a.num_rows;
  const WarpTeam team;
  const std::int32_t row = !valid                  ? 0
                           : a.row_list != nullptr ? a.row_list[index]
                                                   : static_cast<std::int32_t>(index);
  const TeamArrays arrays = team_arrays(shared + warp * a.team_bytes, a.capacity, a.plan, counters[warp]);
  RowSize size = {0, 0, 0};
  if (valid) size = make_row<mode>(team, a, a.first_row + row, arrays);
  if (team.rank() == 0) sizes[warp] = size;
  __syncthreads();
  // One claim a block: all teams of a GPU on one counter would queue up.
  if (threadIdx.x == 0) {
    int total = 0;
    for (int w = 0; w < warps; ++w) total += sizes[w].deposits;
    auto at = static_cast<long long>(atomicAdd(&a.status->staged, static_cast<unsigned long long>(total)));
    for (int w = 0; w < warps; ++w) {
      place[w] = at;
      at += sizes[w].deposits;
    }
  }
  __syncthreads();
  if (!valid) return;
  const std::int64_t at = place[warp];
  if (team.rank() == 0) finish_row(a, row, size, at);
  if (size.deposits > 0 && at + size.deposits <= a.stage_capacity) {
    write_row(team, a, arrays, size.visits, at, row_scale<mode>(a.plan));
  }
}

// Whether a block's arrays are in shared memory is known to the compiler: it makes different code of the two.
template <Mode mode, bool kInShared>
__global__ void __launch_bounds__(kBlockTeamThreads)
    feature_rows_by_block(const __grid_constant__ FeatureRowsArguments a) {
  extern __shared__ __align__(16) char shared[];
  __shared__ int counters[2], partial[kWarpSize];
  __shared__ long long place;
  const BlockTeam team{partial};
  char* memory = kInShared ? shared : a.scratch + blockIdx.x * a.team_bytes;
  const TeamArrays arrays = team_arrays(memory, a.capacity, a.plan, counters);
  for (std::int32_t index = static_cast<std::int32_t>(blockIdx.x); index < a.num_rows;
       index += static_cast<std::int32_t>(gridDim.x)) {
    const std::int32_t row = a.row_list != nullptr ? a.row_list[index] : index;
    const RowSize size = make_row<mode>(team, a, a.first_row + row, arrays);
    if (team.rank() == 0) {
      place = static_cast<long long>(
          atomicAdd(&a.status->staged, static_cast<unsigned long long>(size.deposits)));
      finish_row(a, row, size, place);
    }
    team.sync();
    if (size.deposits > 0 && place + size.deposits <= a.stage_capacity) {
      write_row(team, a, arrays, size.visits, place, row_scale<mode>(a.plan));
    }
    team.sync();
  }
}

// Shared memory beyond 48 KiB must be asked for.
template <class Kernel>
cudaError_t allow_shared_bytes(Kernel* kernel, std::size_t bytes) {
  if (bytes <= 40 * 1024) return cudaSuccess;  // static arrays take some of the 48
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

template <Mode mode>
cudaError_t launch_feature_rows(const FeatureRowsArguments& a, cudaStream_t stream) {
  if (a.team_is_block) {
    if (a.scratch != nullptr) {
      feature_rows_by_block<mode, false><<<a.num_blocks, kBlockTeamThreads, 0, stream>>>(a);
      return cudaGetLastError();
    }
    const auto kernel = feature_rows_by_block<mode, true>;
    if (const cudaError_t status = allow_shared_bytes(kernel, a.team_bytes)) return status;
    kernel<<<a.num_blocks, kBlockTeamThreads, a.team_bytes, stream>>>(a);
  } else {
    const int warps =
        static_cast<int>(std::clamp<std::size_t>(2 * kMaxWarpTeamBytes / a.team_bytes, 1, kMaxWarpsPerBlock));
    const std::size_t bytes = warps * a.team_bytes;
    if (const cudaError_t status = allow_shared_bytes(feature_rows_by_warp<mode>, bytes)) return status;
    const auto blocks = static_cast<unsigned>((a.num_rows + warps - 1) / warps);
    feature_rows_by_warp<mode><<<blocks, warps * kWarpSize, bytes, stream>>>(a);
  }
  return cudaGetLastError();
}

// Sixteen lanes a row: rows of local graphs hold about as many entries.
constexpr int kCompactLanes = 16, kCompactThreads = 256;

__global__ void compact_rows(const __grid_constant__ CompactArguments a) {
  const std::int64_t row =
      (static_cast<std::int64_t>(blockIdx.x) * kCompactThreads + threadIdx.x) / kCompactLanes;
  const int lane = static_cast<int>(threadIdx.x) % kCompactLanes;
  const OffsetPair all = a.offset[a.num_rows];
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kCompactThreads;
  for (std::int64_t e = all.first + row * kCompactLanes + lane; e < a.capacity; e += threads) {
    a.col[e] = 0;
    a.deposit_ptr[e + 1] = all.second;
  }
  if (row >= a.num_rows) return;
  const OffsetPair begin = a.offset[row], end = a.offset[row + 1];
  const std::int64_t first_entry = begin.first, entries = end.first - begin.first;
  const std::int64_t first_deposit = begin.second, deposits = end.second - begin.second;
  const std::int64_t marked = a.stage_at[row];
  const int stage = marked >= kSecondStage ? 1 : 0;
  const std::int64_t at = marked - (stage != 0 ? kSecondStage : 0);
  for (std::int64_t e = lane; e < entries; e += kCompactLanes) {
    a.col[first_entry + e] = a.stage_col[stage][at + e];
    a.deposit_ptr[first_entry + e] = first_deposit + a.stage_first[stage][at + e];
  }
  for (std::int64_t d = lane; d < deposits; d += kCompactLanes) {
    a.hop[first_deposit + d] = a.stage_hop[stage][at + d];
    a.load[first_deposit + d] = a.stage_load[stage][at + d];
  }
  if (lane != 0) return;
  a.row_ptr[row] = first_entry;
  if (row == a.num_rows - 1) {
    a.row_ptr[row + 1] = end.first;
    a.deposit_ptr[end.first] = end.second;
  }
}

__global__ void one_hot(std::int64_t num_nodes, std::int64_t* row_ptr, std::int32_t* col, std::int16_t* hop,
                        float* load) {
  const std::int64_t node = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (node > num_nodes) return;
  row_ptr[node] = node;
  if (node == num_nodes) return;
  col[node] = static_cast<std::int32_t>(node);
  hop[node] = 0;
  load[node] = 1.0f;
}

__global__ void weighted_steps(DeviceGraph graph, bool importance_weights, std::uint32_t* edge_below,
                               float* edge_factor) {
  const std::int64_t node = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (node >= graph.num_nodes) return;
  const std::int64_t begin = graph.row_ptr[node], end = graph.row_ptr[node + 1];
  double row_weight = 0;
  for (std::int64_t e = begin; e < end; ++e) row_weight += fabs(static_cast<double>(graph.weight[e]));
  double cumulative = 0;
  for (std::int64_t e = begin; e < end; ++e) {
    const double weight = graph.weight[e];
    cumulative += fabs(weight);
    const double below = row_weight > 0 ? floor(cumulative / row_weight * 0x1p32) : 0;
    edge_below[e] = static_cast<std::uint32_t>(fmin(below, 0x1p32 - 1));
    edge_factor[e] =
        importance_weights ? static_cast<float>(copysign(weight == 0 ? 0.0 : row_weight, weight)) : 1.0f;
  }
}

// A team's paths lie side by side in memory, but every lane writes another one: they are put together in
// `staged` where that is not null, and written in whole lines.
template <Mode mode, class Team>
__device__ void write_paths(const Team& team, const PathArguments& a, std::int32_t start,
                            const RepellingScratch& scratch, std::int32_t* staged) {
  const std::int64_t length = a.hops + 1, numbers = a.plan.num_walks * length;
  std::int32_t* out = a.paths + start * numbers;
  std::int32_t* paths = staged != nullptr ? staged : out;
  for (std::int64_t i = team.rank(); i < numbers; i += team.size()) paths[i] = -1;
  team.sync();
  for (std::int32_t walk = team.rank(); walk < a.plan.num_walks; walk += team.size()) {
    paths[walk * length] = start;
  }
  run_walkers<mode>(
      team, a.plan, a.graph, start, -1, scratch,
      [&](std::int32_t walk, int hop, std::int32_t node, float) { paths[walk * length + hop] = node; });
  if (staged == nullptr) return;
  team.sync();
  for (std::int64_t i = team.rank(); i < numbers; i += team.size()) out[i] = staged[i];
}

constexpr std::int64_t kMaxStagedNumbers = 1024;  // of a warp

template <Mode mode>
__global__ void __launch_bounds__(kMaxWarpsPerBlock* kWarpSize)
    paths_by_warp(const __grid_constant__ PathArguments a, int staged_numbers) {
  extern __shared__ std::int32_t staged_paths[];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const std::int64_t start = static_cast<std::int64_t>(blockIdx.x) * kMaxWarpsPerBlock + warp;
  if (start >= a.graph.num_nodes) return;
  std::int32_t* staged = staged_numbers == 0 ? nullptr : staged_paths + warp * staged_numbers;
  write_paths<mode>(WarpTeam(), a, static_cast<std::int32_t>(start), {}, staged);
}

template <bool kInShared>
__global__ void __launch_bounds__(kBlockTeamThreads)
    repelling_paths_by_block(const __grid_constant__ PathArguments a) {
  extern __shared__ __align__(16) char shared[];
  __shared__ int live, partial[kWarpSize];
  char* memory = kInShared ? shared : a.scratch + blockIdx.x * a.team_bytes;
  const RepellingScratch scratch = repelling_arrays(memory, a.plan, &live);
  for (std::int64_t start = blockIdx.x; start < a.graph.num_nodes; start += gridDim.x) {
    write_paths<Mode::repelling>(BlockTeam{partial}, a, static_cast<std::int32_t>(start), scratch, nullptr);
    __syncthreads();
  }
}

}  // namespace

cudaError_t prepare_weighted_steps(const DeviceGraph& graph, bool importance_weights,
                                   std::uint32_t* edge_below, float* edge_factor, cudaStream_t stream) {
  constexpr int kThreads = 128;
  const auto blocks = static_cast<unsigned>((graph.num_nodes + kThreads - 1) / kThreads);
  if (blocks == 0) return cudaSuccess;
  weighted_steps<<<blocks, kThreads, 0, stream>>>(graph, importance_weights, edge_below, edge_factor);
  return cudaGetLastError();
}

cudaError_t write_one_hot(std::int64_t num_nodes, std::int64_t* row_ptr, std::int32_t* col, std::int16_t* hop,
                          float* load, cudaStream_t stream) {
  constexpr int kThreads = 256;
  const auto blocks = static_cast<unsigned>((num_nodes + kThreads) / kThreads);
  one_hot<<<blocks, kThreads, 0, stream>>>(num_nodes, row_ptr, col, hop, load);
  return cudaGetLastError();
}

std::size_t feature_team_bytes(int capacity, const DeviceWalkPlan& plan, bool enumerate) {
  const std::size_t visits = 12 * static_cast<std::size_t>(capacity);
  return (visits + (!enumerate && needs_repelling_scratch(plan) ? repelling_bytes(plan) : 0) + 15) / 16 * 16;
}

cudaError_t sample_feature_rows(const FeatureRowsArguments& arguments, cudaStream_t stream) {
  if (arguments.num_rows == 0) return cudaSuccess;
  if (enumerates_in_slots(arguments)) return enumerate_in_slots(arguments, stream);
  if (arguments.out_degree >= 0) return launch_feature_rows<Mode::enumerate>(arguments, stream);
  if (arguments.plan.repelling) return launch_feature_rows<Mode::repelling>(arguments, stream);
  return launch_feature_rows<Mode::independent>(arguments, stream);
}

cudaError_t compact_feature_rows(const CompactArguments& arguments, cudaStream_t stream) {
  if (arguments.num_rows == 0) return cudaSuccess;
  const std::int64_t threads = static_cast<std::int64_t>(arguments.num_rows) * kCompactLanes;
  compact_rows<<<static_cast<unsigned>((threads + kCompactThreads - 1) / kCompactThreads), kCompactThreads, 0,
                 stream>>>(arguments);
  return cudaGetLastError();
}

cudaError_t sample_paths(const PathArguments& arguments, cudaStream_t stream) {
  const std::int64_t starts = arguments.graph.num_nodes;
  if (starts == 0) return cudaSuccess;
  if (needs_repelling_scratch(arguments.plan)) {
    if (arguments.scratch != nullptr) {
      repelling_paths_by_block<false><<<arguments.num_blocks, kBlockTeamThreads, 0, stream>>>(arguments);
      return cudaGetLastError();
    }
    const auto kernel = repelling_paths_by_block<true>;
    if (const cudaError_t status = allow_shared_bytes(kernel, arguments.team_bytes)) return status;
    kernel<<<arguments.num_blocks, kBlockTeamThreads, arguments.team_bytes, stream>>>(arguments);
    return cudaGetLastError();
  }
  const auto blocks = static_cast<unsigned>((starts + kMaxWarpsPerBlock - 1) / kMaxWarpsPerBlock);
  const auto kernel =
      arguments.plan.repelling ? paths_by_warp<Mode::repelling> : paths_by_warp<Mode::independent>;
  const std::int64_t numbers = arguments.plan.num_walks * (arguments.hops + 1);
  const int staged = numbers <= kMaxStagedNumbers ? static_cast<int>(numbers) : 0;
  kernel<<<blocks, kMaxWarpsPerBlock * kWarpSize, kMaxWarpsPerBlock * staged * sizeof(std::int32_t),
           stream>>>(arguments, staged);
  return cudaGetLastError();
}

}  // namespace topomask
