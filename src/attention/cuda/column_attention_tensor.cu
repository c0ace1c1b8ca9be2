// Column products of bfloat16 on tensor cores; fragments and tiles are those of the dense engine.
#include "attention/cuda/column_attention_device.cuh"
#include "attention/cuda/tensor_rows.cuh"
#include "core/cuda/grid.h"

namespace topomask::columns {

namespace {

using dense::load_block_transposed;
using namespace tensor_rows;

constexpr int kThreads = 128, kWarps = kThreads / kWarpSize;
constexpr unsigned kAll = 0xffffffffu;

// Where the feature stands that is multiplied as number `row % 16` of step `row / 16`, and the way back.
__device__ inline int step_row_of(int feature) {
  const int step = 2 * (feature >> 5) + (feature >> 2 & 1);
  return 16 * step + 8 * (feature >> 1 & 1) + 2 * (feature >> 3 & 3) + (feature & 1);
}

// Writes rows g and g + 8 of accumulators at places[0] and places[1] (negative: nowhere) of rows of
// `columns`.
template <int kWidth>
__device__ void store_products(const float (&c)[kWidth / 8][4], T* to, const std::int64_t (&place)[2],
                               int columns, int lane) {
  const int t = lane & 3;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int n = 0; n < kWidth / 8; n += 4) {
      Pair x[4];
#pragma unroll
      for (int s = 0; s < 4; ++s) x[s] = pack<T>(c[n + s][half * 2], c[n + s][half * 2 + 1]);
      const uint4 whole = dense::gather_row(x[0], x[1], x[2], x[3], lane);
      const int column = (n + t) * 8;
      if (place[half] >= 0 && column < columns)
        *reinterpret_cast<uint4*>(to + place[half] * columns + column) = whole;
    }
  }
}

// A warp does 16 rows of a column with few keys, pair by pair: P = (x y^T) B, u = P z.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) narrow_kernel(const ColumnPass p) {
  __shared__ __align__(128) char shared[kWarps][16 * kWidth * 2];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
            warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int g = lane >> 2, t = lane & 3;
  const std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp;
  if (tile >= p.work.num_tiles) return;
  const PairOf<T> pair(p, p.first_pair + blockIdx.y);
  const dense::ReluFeatures<T> map(static_cast<float>(p.epsilon));
  const std::int64_t column = p.work.tile_column[tile];
  const Span rows = {p.rows.ptr[column] + p.work.tile_first[tile], p.rows.ptr[column + 1]};
  const Span keys = span_of(p.keys, column);

  std::int64_t node[2], place[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t position = rows.begin + g + 8 * half;
    const bool exists = position < rows.end;
    node[half] = exists ? node_at(p.rows, position) : -1;
    place[half] = exists ? place_of(p.rows, position) : -1;
  }
  RowPair<kWidth> x;
  x.load(pair.x, p.x.rows.node_step, node, p.features, p.x.relu, map, t);
  float x_extra[2] = {0, 0};
  if (p.edge == ColumnEdge::extra) {
#pragma unroll
    for (int half = 0; half < 2; ++half) x_extra[half] = node[half] < 0 ? 0 : pair.extra_of_x(node[half]);
  }

  const std::uint32_t z_tile = dense::shared_address(shared[warp]);
  float sum[kWidth / 8][4] = {}, edge[2] = {0, 0};
  for (std::int64_t first = keys.begin; first < keys.end; first += 16) {
    std::int64_t key[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t position = first + g + 8 * half;
      key[half] = position < keys.end ? node_at(p.keys, position) : -1;
    }
    // Lanes 0 to 15 know what a key weighs; the accumulators have those of columns 2t, 2t + 1 and eight on.
    float own_weight = 0, own_extra = 0;
    if (lane < 16 && first + lane < keys.end) {
      const std::int64_t own = node_at(p.keys, first + lane);
      own_weight = pair.weight(p.keys, first + lane, own);
      if (p.edge == ColumnEdge::extra) own_extra = pair.extra_of_y(own);
    }
    RowPair<kWidth> y, z;
    y.load(pair.y, p.y.rows.node_step, key, p.features, p.y.relu, map, t);
    z.load(pair.z, p.z.rows.node_step, key, p.value_columns, p.z.relu, map, t);
    __syncwarp();  // the tile has been read
    z.store(z_tile, g, t);
    __syncwarp();
    float score[2][4] = {};
    add_scores<kWidth>(score, x, y);
    Pair weighted[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int source = 2 * t + 8 * half;
      const float w0 = __shfl_sync(kAll, own_weight, source), w1 = __shfl_sync(kAll, own_weight, source + 1);
      if (p.edge == ColumnEdge::extra) {
        const float e0 = __shfl_sync(kAll, own_extra, source), e1 = __shfl_sync(kAll, own_extra, source + 1);
        score[half][0] += x_extra[0] * e0;
        score[half][1] += x_extra[0] * e1;
        score[half][2] += x_extra[1] * e0;
        score[half][3] += x_extra[1] * e1;
      }
      weighted[2 * half] = pack<T>(score[half][0] * w0, score[half][1] * w1);
      weighted[2 * half + 1] = pack<T>(score[half][2] * w0, score[half][3] * w1);
      const float2 upper = Half::unpack(weighted[2 * half]), lower = Half::unpack(weighted[2 * half + 1]);
      edge[0] += upper.x + upper.y;
      edge[1] += lower.x + lower.y;
    }
    add_weighted<kWidth>(sum, weighted, z_tile, lane);
  }
  store_products<kWidth>(sum, static_cast<T*>(p.u) + blockIdx.y * p.rows.nnz * p.value_columns, place,
                         p.value_columns, lane);
  if (p.edge == ColumnEdge::ones) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = sum_lanes<4>(edge[half]);
      if (t == 0 && place[half] >= 0)
        static_cast<float*>(p.u_edge)[blockIdx.y * p.rows.nnz + place[half]] = total;
    }
  }
}

// ---- columns with many keys, by Z_c ----

// How the warps of a block share Z: tiles of 16 features, and where there are fewer than warps, columns.
template <int kWidth>
struct Split {
  static constexpr int kFeatureTiles = kWidth / 16;
  static constexpr int kColumnGroups = kWarps / kFeatureTiles;
  static constexpr int kTiles = kWidth / 8 / kColumnGroups;  // of 8 columns, for a warp
};

template <int kWidth>
struct WideShared {
  static constexpr int kKeys = 32;  // loaded at a time
  __align__(128) char y[kKeys * kWidth * 2];
  __align__(128) char z[kKeys * kWidth * 2];
  __align__(128) char state[kWidth * kWidth * 2];  // Z_c, rows in the order of the steps
  float partial[kThreads / (kWidth / 8)][kWidth];
  float edge[kWidth];  // sum_j B_jc y_j, or sum_j B_jc y_extra_j z_j
};

// Z_c of the keys of a span: accumulators, and `edge` in shared memory.
template <int kWidth>
__device__ void sum_keys(const ColumnPass& p, const PairOf<T>& pair, const Span& keys,
                         WideShared<kWidth>& shared, float (&sum)[Split<kWidth>::kTiles][4]) {
  constexpr int kChunks = kWidth / 8, kGroup = kThreads / kChunks, kKeys = WideShared<kWidth>::kKeys;
  constexpr int kEach = kKeys / kGroup;  // rows of a tile that a thread loads its chunk of
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpSize, warp = thread / kWarpSize;
  const int chunk = thread % kChunks, own_row = thread / kChunks;
  const bool y_exists = chunk * 8 < p.features, z_exists = chunk * 8 < p.value_columns;
  const dense::ReluFeatures<T> map(static_cast<float>(p.epsilon));
  const std::uint32_t y_tile = dense::shared_address(shared.y), z_tile = dense::shared_address(shared.z);
  float edge[8] = {};

  // Rows of the next tile travel while this one is multiplied, and the numbers of those after it.
  std::int64_t node[kEach];
  float weight[kEach], extra[kEach];
  uint4 y[kEach], z[kEach];
  const auto find = [&](std::int64_t first) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const std::int64_t position = first + own_row + i * kGroup;
      const bool exists = position < keys.end;
      node[i] = exists ? node_at(p.keys, position) : -1;
      weight[i] = exists ? pair.weight(p.keys, position, node[i]) : 0;
      extra[i] = exists && p.edge == ColumnEdge::extra ? pair.extra_of_y(node[i]) : 0;
    }
  };
  const auto fetch = [&] {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      y[i] = load_chunk(pair.y, p.y.rows.node_step, node[i], chunk, node[i] >= 0 && y_exists);
      z[i] = load_chunk(pair.z, p.z.rows.node_step, node[i], chunk, node[i] >= 0 && z_exists);
    }
  };
  find(keys.begin);
  fetch();
  const int feature_tile = warp % Split<kWidth>::kFeatureTiles;
  const int first_chunk = warp / Split<kWidth>::kFeatureTiles * Split<kWidth>::kTiles;
  for (std::int64_t first = keys.begin; first < keys.end; first += kKeys) {
    __syncthreads();  // the tiles have been read
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const bool exists = node[i] >= 0;
      const uint4 rows = features_of(y[i], p.y.relu, map, exists && y_exists);
      const uint4 values = features_of(z[i], p.z.relu, map, exists && z_exists);
      Pair scaled[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const float2 both = Half::unpack(word(rows, w));
        scaled[w] = exists ? pack<T>(both.x * weight[i], both.y * weight[i]) : 0;
        if (p.edge == ColumnEdge::ones) {
          const float2 rounded = Half::unpack(scaled[w]);
          edge[2 * w] += rounded.x;
          edge[2 * w + 1] += rounded.y;
        } else if (p.edge == ColumnEdge::extra) {
          const float2 value = Half::unpack(word(values, w));
          const float factor = weight[i] * extra[i];
          if (exists) {
            edge[2 * w] += factor * value.x;
            edge[2 * w + 1] += factor * value.y;
          }
        }
      }
      const std::uint32_t offset = Tile<kWidth>::offset(own_row + i * kGroup, chunk);
      dense::write_shared(y_tile + offset, {scaled[0], scaled[1], scaled[2], scaled[3]});
      dense::write_shared(z_tile + offset, values);
    }
    __syncthreads();
    if (first + kKeys < keys.end) {
      find(first + kKeys);
      fetch();
    }
#pragma unroll
    for (int k = 0; k < kKeys; k += 16) {
      // y^T as the left operand: its rows are features, so blocks are read transposed.
      Pair a[4];
      load_block_transposed(
          a, Tile<kWidth>::at(y_tile, Tile<kWidth>::lane_by_column(lane), k, feature_tile * 2));
#pragma unroll
      for (int n = 0; n < Split<kWidth>::kTiles; n += 2) {
        Pair b[4];
        load_block_transposed(b,
                              Tile<kWidth>::at(z_tile, Tile<kWidth>::lane_by_row(lane), k, first_chunk + n));
        Half::multiply(sum[n], a, b[0], b[1]);
        Half::multiply(sum[n + 1], a, b[2], b[3]);
      }
    }
  }
  if (p.edge == ColumnEdge::none) return;
#pragma unroll
  for (int i = 0; i < 8; ++i) shared.partial[own_row][chunk * 8 + i] = edge[i];
  __syncthreads();
  if (thread < kWidth) {
    float total = 0;
    for (int row = 0; row < kGroup; ++row) total += shared.partial[row][thread];
    shared.edge[thread] = total;
  }
  __syncthreads();
}

// Accumulators of Z_c and where they belong: use(feature, column, two numbers side by side).
template <int kWidth, class Use>
__device__ void for_state(const float (&sum)[Split<kWidth>::kTiles][4], const Use& use) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
            warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int feature = warp % Split<kWidth>::kFeatureTiles * 16 + (lane >> 2);
  const int first = warp / Split<kWidth>::kFeatureTiles * Split<kWidth>::kTiles * 8 + 2 * (lane & 3);
#pragma unroll
  for (int n = 0; n < Split<kWidth>::kTiles; ++n) {
    use(feature, first + n * 8, make_float2(sum[n][0], sum[n][1]));
    use(feature + 8, first + n * 8, make_float2(sum[n][2], sum[n][3]));
  }
}

// Rows of a span times Z_c and its edge, both in shared memory.
template <int kWidth, bool kDirect>
__device__ void multiply_rows(const ColumnPass& p, const PairOf<T>& pair, std::int64_t index_of_pair,
                              const Span& rows, const WideShared<kWidth>& shared, const ColumnRows& direct) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
            warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int g = lane >> 2, t = lane & 3;
  const dense::ReluFeatures<T> map(static_cast<float>(p.epsilon));
  const std::uint32_t state = dense::shared_address(shared.state);
  for (std::int64_t first = rows.begin + warp * 16; first < rows.end; first += kWarps * 16) {
    std::int64_t node[2], place[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t position = first + g + 8 * half;
      const bool exists = position < rows.end;
      node[half] = exists ? node_at(p.rows, position) : -1;
      place[half] = exists ? place_of(p.rows, position) : -1;
    }
    RowPair<kWidth> x;
    x.load(pair.x, p.x.rows.node_step, node, p.features, p.x.relu, map, t);
    float product[kWidth / 8][4] = {};
#pragma unroll
    for (int s = 0; s < kWidth / 16; ++s) {
      Pair a[4];
      x.left(a, s);
#pragma unroll
      for (int n = 0; n < kWidth / 8; n += 2) {
        Pair b[4];
        load_block_transposed(b, Tile<kWidth>::at(state, Tile<kWidth>::lane_by_row(lane), s * 16, n));
        Half::multiply(product[n], a, b[0], b[1]);
        Half::multiply(product[n + 1], a, b[2], b[3]);
      }
    }
    float edge[2] = {0, 0};
    if (p.edge == ColumnEdge::ones) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int c = 0; c < kWidth / 32; ++c) {
#pragma unroll
          for (int w = 0; w < 4; ++w) {
            const float2 both = Half::unpack(word(x.chunk[half][c], w));
            const int feature = (t + 4 * c) * 8 + 2 * w;
            edge[half] += both.x * shared.edge[feature] + both.y * shared.edge[feature + 1];
          }
        }
        edge[half] = sum_lanes<4>(edge[half]);
      }
    } else if (p.edge == ColumnEdge::extra) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float factor = node[half] < 0 ? 0 : pair.extra_of_x(node[half]);
#pragma unroll
        for (int n = 0; n < kWidth / 8; ++n) {
          product[n][2 * half] += factor * shared.edge[n * 8 + 2 * t];
          product[n][2 * half + 1] += factor * shared.edge[n * 8 + 2 * t + 1];
        }
      }
    }
    if constexpr (kDirect) {
      const std::int64_t batch = index_of_pair / p.heads, head = index_of_pair % p.heads;
      float scale[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int64_t index = index_of_pair * p.num_nodes + max(node[half], std::int64_t{0});
        scale[half] = finished_scale<float>(direct, index, edge[half], t == 0 && node[half] >= 0);
      }
      T* const out = row_attention::head_rows<T>(direct.out, batch, head) + first * direct.out.node_step;
      const int count = static_cast<int>(min(rows.end - first, std::int64_t{16}));
      if (direct.gate.data != nullptr) {
        const T* const gate =
            row_attention::head_rows<T>(direct.gate, batch, head) + first * direct.gate.node_step;
        dense::store_rows<T, kWidth / 8>(product, scale[0], scale[1], out, direct.out.node_step, 0, count,
                                         p.value_columns, lane,
                                         dense::ThroughInputs<T>{gate, direct.gate.node_step});
      } else {
        dense::store_rows<T, kWidth / 8>(product, scale[0], scale[1], out, direct.out.node_step, 0, count,
                                         p.value_columns, lane);
      }
    } else {
      const std::int64_t offset = (index_of_pair - p.first_pair) * p.rows.nnz;
      store_products<kWidth>(product, static_cast<T*>(p.u) + offset * p.value_columns, place, p.value_columns,
                             lane);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (p.edge == ColumnEdge::ones && t == 0 && place[half] >= 0)
          static_cast<float*>(p.u_edge)[offset + place[half]] = edge[half];
      }
    }
  }
}

// A column from its keys to its rows, for those that one block does alone.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) whole_kernel(const ColumnPass p) {
  __shared__ WideShared<kWidth> shared;
  const std::int64_t column = p.work.whole[blockIdx.x], index = p.first_pair + blockIdx.y;
  const PairOf<T> pair(p, index);
  float sum[Split<kWidth>::kTiles][4] = {};
  sum_keys<kWidth>(p, pair, span_of(p.keys, column), shared, sum);
  const std::uint32_t state = dense::shared_address(shared.state);
  for_state<kWidth>(sum, [&](int feature, int column_of_z, float2 both) {
    const std::uint32_t address =
        state + Tile<kWidth>::offset(step_row_of(feature), column_of_z / 8) + column_of_z % 8 * 2;
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(pack<T>(both.x, both.y)) : "memory");
  });
  __syncthreads();
  multiply_rows<kWidth, false>(p, pair, index, span_of(p.rows, column), shared, {});
}

// ---- hubs: Z_c of chunks of keys, their sum, rows in chunks ----

// In the workspace: of every chunk Z and its edge in float32, then of every hub Z in bfloat16, laid out as in
// shared memory, and its edge.
template <int kWidth>
struct HubMemory {
  static constexpr std::int64_t kChunkFloats = kWidth * kWidth + kWidth;
  static constexpr std::int64_t kHubFloats = kWidth * kWidth / 2 + kWidth;
  float* chunks;
  float* hubs;
  __host__ __device__ HubMemory(const ColumnPass& p, std::int64_t pair_of_call)
      : chunks(static_cast<float*>(p.workspace) + pair_of_call * p.work.num_key_chunks * kChunkFloats),
        hubs(static_cast<float*>(p.workspace) + p.num_pairs * p.work.num_key_chunks * kChunkFloats +
             pair_of_call * p.work.num_hubs * kHubFloats) {}
  static std::int64_t bytes(const ColumnPass& p) {
    return p.num_pairs * (p.work.num_key_chunks * kChunkFloats + p.work.num_hubs * kHubFloats) * 4;
  }
};

template <int kWidth>
__global__ void __launch_bounds__(kThreads, 5) hub_keys_kernel(const ColumnPass p) {
  __shared__ WideShared<kWidth> shared;
  const std::int64_t chunk = blockIdx.x;
  const PairOf<T> pair(p, p.first_pair + blockIdx.y);
  const Span keys = key_chunk(p, chunk);
  float sum[Split<kWidth>::kTiles][4] = {};
  sum_keys<kWidth>(p, pair, keys, shared, sum);
  float* const to = HubMemory<kWidth>(p, blockIdx.y).chunks + chunk * HubMemory<kWidth>::kChunkFloats;
  for_state<kWidth>(sum, [&](int feature, int column, float2 both) {
    *reinterpret_cast<float2*>(to + feature * kWidth + column) = both;
  });
  if (p.edge != ColumnEdge::none && threadIdx.x < kWidth)
    to[kWidth * kWidth + threadIdx.x] = shared.edge[threadIdx.x];
}

// Four numbers of Z or of its edge at a time, by groups of threads that take runs of chunks each: the order
// depends on the number of chunks alone.
constexpr int kSumGroups = 8, kSumLanes = kThreads / kSumGroups;

template <int kWidth>
__global__ void __launch_bounds__(kThreads) hub_sum_kernel(const ColumnPass p) {
  __shared__ float4 partial[kSumGroups][kSumLanes];
  const std::int64_t hub = blockIdx.x;
  const HubMemory<kWidth> memory(p, blockIdx.y);
  const Span chunks = key_chunks_of(p.work, hub);
  const int lane = static_cast<int>(threadIdx.x) % kSumLanes,
            group = static_cast<int>(threadIdx.x) / kSumLanes;
  const int element = (static_cast<int>(blockIdx.z) * kSumLanes + lane) * 4;
  const bool exists = element < (p.edge == ColumnEdge::none ? kWidth * kWidth : kWidth * kWidth + kWidth);
  const std::int64_t run = (chunks.end - chunks.begin + kSumGroups - 1) / kSumGroups;
  const std::int64_t begin = chunks.begin + group * run, end = min(chunks.end, begin + run);
  float4 sum = {0, 0, 0, 0};
  const auto add = [](float4& to, const float4& part) {
    to.x += part.x;
    to.y += part.y;
    to.z += part.z;
    to.w += part.w;
  };
  if (exists) {
    const float* const from = memory.chunks + element;
#pragma unroll 8
    for (std::int64_t chunk = begin; chunk < end; ++chunk)
      add(sum, *reinterpret_cast<const float4*>(from + chunk * HubMemory<kWidth>::kChunkFloats));
  }
  partial[group][lane] = sum;
  __syncthreads();
  if (group != 0 || !exists) return;
  for (int other = 1; other < kSumGroups; ++other) add(sum, partial[other][lane]);
  float* const to = memory.hubs + hub * HubMemory<kWidth>::kHubFloats;
  if (element >= kWidth * kWidth) {
    *reinterpret_cast<float4*>(to + kWidth * kWidth / 2 + element - kWidth * kWidth) = sum;
    return;
  }
  const int feature = element / kWidth, column = element % kWidth;
  const std::uint32_t offset = Tile<kWidth>::offset(step_row_of(feature), column / 8) + column % 8 * 2;
  *reinterpret_cast<uint2*>(reinterpret_cast<char*>(to) + offset) = {pack<T>(sum.x, sum.y),
                                                                     pack<T>(sum.z, sum.w)};
}

template <int kWidth, bool kDirect>
__global__ void __launch_bounds__(kThreads, 5) hub_rows_kernel(const ColumnPass p, const ColumnRows direct) {
  __shared__ WideShared<kWidth> shared;
  const std::int64_t chunk = blockIdx.x, hub = hub_of_rows(p.work, chunk), index = p.first_pair + blockIdx.y;
  const PairOf<T> pair(p, index);
  const float* const from = HubMemory<kWidth>(p, blockIdx.y).hubs + hub * HubMemory<kWidth>::kHubFloats;
  uint4* const state = reinterpret_cast<uint4*>(shared.state);
  for (int i = static_cast<int>(threadIdx.x); i < kWidth * kWidth / 8; i += kThreads)
    state[i] = reinterpret_cast<const uint4*>(from)[i];
  if (p.edge != ColumnEdge::none && threadIdx.x < kWidth)
    shared.edge[threadIdx.x] = from[kWidth * kWidth / 2 + threadIdx.x];
  __syncthreads();
  multiply_rows<kWidth, kDirect>(p, pair, index, row_chunk(p, chunk), shared, direct);
}

template <int kWidth>
cudaError_t launch(const ColumnPass& p, const ColumnRows* direct, cudaStream_t stream) {
  const auto pairs = static_cast<unsigned>(p.num_pairs);
  const auto blocks = [&](std::int64_t count) { return dim3(static_cast<unsigned>(count), pairs); };
  if (p.work.num_tiles > 0)
    narrow_kernel<kWidth><<<dim3(blocks_for(p.work.num_tiles, kWarps), pairs), kThreads, 0, stream>>>(p);
  if (p.work.num_whole > 0) whole_kernel<kWidth><<<blocks(p.work.num_whole), kThreads, 0, stream>>>(p);
  if (p.work.num_hubs > 0) {
    hub_keys_kernel<kWidth><<<blocks(p.work.num_key_chunks), kThreads, 0, stream>>>(p);
    const dim3 slices(static_cast<unsigned>(p.work.num_hubs), pairs,
                      blocks_for((kWidth * kWidth + kWidth) / 4, kSumLanes));
    hub_sum_kernel<kWidth><<<slices, kThreads, 0, stream>>>(p);
    if (direct != nullptr) {
      hub_rows_kernel<kWidth, true><<<blocks(p.work.num_row_chunks), kThreads, 0, stream>>>(p, *direct);
    } else {
      hub_rows_kernel<kWidth, false><<<blocks(p.work.num_row_chunks), kThreads, 0, stream>>>(p, {});
    }
  }
  return cudaGetLastError();
}

bool is_small(const ColumnPass& p) {
  return p.features <= 32 && p.value_columns <= 32;
}

}  // namespace

std::int64_t tensor_core_workspace(const ColumnPass& pass) {
  return is_small(pass) ? HubMemory<32>::bytes(pass) : HubMemory<64>::bytes(pass);
}

cudaError_t tensor_core_products(const ColumnPass& pass, const ColumnRows* direct, cudaStream_t stream) {
  return is_small(pass) ? launch<32>(pass, direct, stream) : launch<64>(pass, direct, stream);
}

}  // namespace topomask::columns
