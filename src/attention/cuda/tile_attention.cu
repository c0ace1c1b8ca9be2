#include "attention/cuda/tile_attention.h"

#include <cfloat>

#include "attention/cuda/dense_attention_tiles.cuh"
#include "attention/cuda/row_attention_device.cuh"
#include "attention/cuda/row_attention_kernels.h"
#include "core/cuda/grid.h"

// A warp takes one tile of one head. Rows of k and v travel through a ring of its own in shared memory, a
// step of 16 columns at a time, so warps never wait for each other. The entries of a step are scattered into
// a small dense matrix, from which every lane reads the weights of its own scores.

namespace topomask {

using namespace row_attention;

namespace {

using dense::Half;
using dense::pack;
using dense::Pair;
using dense::Tile;
using T = __nv_bfloat16;

constexpr int kWarps = 4, kThreads = kWarps * kWarpSize;
constexpr int kStages = 3;               // of the ring
constexpr int kBlocks = 3;               // to a multiprocessor, which bounds the registers
constexpr int kBlockBytes = 16 * 8 * 4;  // 16 x 8 numbers of a step
constexpr int kRecords = 96;             // of a step that are copied ahead
constexpr int kColumnSteps = 8;          // steps whose columns are copied at a time

// An entry in tile order: its value, and its place in the step.
struct Record {
  float value;
  std::uint32_t place;
};

// Of one warp.
template <int kWidth>
struct WarpMemory {
  static constexpr int kOperandBytes = kTileColumns * kWidth * 2;
  static constexpr int kRecordsAt = 2 * kOperandBytes, kStageBytes = kRecordsAt + kRecords * 8;
  static constexpr int kColumnBytes = kColumnSteps * kTileColumns * 4;
  static constexpr int kColumnsAt = kStages * kStageBytes, kMaskAt = kColumnsAt + 2 * kColumnBytes;
  static constexpr int kBytes = kMaskAt + kTileRows * kTileColumns * 4;
  static_assert(kRecordsAt == kTileRows * kWidth * 2, "the rows of q pass through a stage of k and v");
  static_assert(2 * (kStages - 1) <= kColumnSteps, "columns must be there when their rows are copied");
};

__device__ inline void store_word(std::uint32_t address, std::uint32_t x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}
__device__ inline int load_word(std::uint32_t address) {
  int x;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
  return x;
}
__device__ inline Record load_record(std::uint32_t address) {
  Record x;
  asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];" : "=f"(x.value), "=r"(x.place) : "r"(address) : "memory");
  return x;
}
__device__ inline void copy_record(std::uint32_t to, const Record* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
}
template <int kLeft>
__device__ inline void wait_for_all_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

__device__ inline Pair relu_of(Pair x) {
  const __nv_bfloat162 zero = __float2bfloat162_rn(0.0f);
  const __nv_bfloat162 y = __hmax2_nan(reinterpret_cast<const __nv_bfloat162&>(x), zero);
  return reinterpret_cast<const Pair&>(y);
}

struct Where {
  std::int64_t pair, batch, head, tile;
};

// A lane's chunk of every row of an operand. A row's address is a single multiply-add of 32-bit numbers.
struct Operand {
  const char* first;
  unsigned step;  // bytes

  __device__ Operand(const Rows4& rows, const Where& at, int chunk)
      : first(reinterpret_cast<const char*>(head_rows<const T>(rows, at.batch, at.head) + chunk * 8)),
        step(static_cast<unsigned>(rows.node_step * sizeof(T))) {}
  __device__ const char* row(int node) const {
    return first + static_cast<std::uint64_t>(static_cast<unsigned>(node)) * step;
  }
};

// One row by itself, entry by entry. A product of tiles multiplies what the mask leaves out by 0, which gives
// NaN where that is not finite: tiles whose results are not finite come here.
template <ScoreKind kKind>
__device__ __noinline__ void attend_alone(const RowAttentionForward& pass, Where at, std::int64_t row,
                                          int lane) {
  const RowAttentionShape& shape = pass.shape;
  const T* const q = head_rows<const T>(pass.q, at.batch, at.head) + row * pass.q.node_step;
  const T* const k = head_rows<const T>(pass.k, at.batch, at.head);
  const T* const v = head_rows<const T>(pass.v, at.batch, at.head);
  const float* const value = static_cast<const float*>(pass.value) + at.head * pass.value_step;
  const auto epsilon = static_cast<float>(shape.rule.epsilon), scale = static_cast<float>(shape.rule.scale);
  const auto feature = [&](T x) {
    return kKind == ScoreKind::relu ? relu(to_real(x)) + epsilon : to_real(x);
  };
  float sum[2] = {}, normaliser = 0, row_max = -INFINITY;
  for (std::int64_t e = pass.mask.row_ptr[row]; e < pass.mask.row_ptr[row + 1]; ++e) {
    const std::int64_t j = pass.mask.col[e];
    float dot = 0;
    for (int c = lane; c < shape.features; c += kWarpSize)
      dot = fmaf(feature(q[c]), feature(k[j * pass.k.node_step + c]), dot);
    dot = sum_lanes(dot);
    const float mask = value[e];
    float weight = dot * mask;
    if constexpr (kKind == ScoreKind::softmax) {
      const float score = mask != 0 ? dot * scale : -INFINITY, new_max = fmaxf(row_max, score);
      const float shrink = row_max == new_max ? 1.0f : expf(row_max - new_max);
      row_max = new_max;
      normaliser *= shrink;
      sum[0] *= shrink;
      sum[1] *= shrink;
      weight = expf(score - shift_of(new_max)) * mask;
    }
    normaliser += weight;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int c = lane + i * kWarpSize;
      if (c < shape.value_columns) sum[i] = fmaf(weight, to_real(v[j * pass.v.node_step + c]), sum[i]);
    }
  }
  const float inverse = inverse_of(normaliser, static_cast<float>(shape.rule.guard));
  T* const out = head_rows<T>(pass.out, at.batch, at.head) + row * pass.out.node_step;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int c = lane + i * kWarpSize;
    if (c < shape.value_columns) out[c] = from_real<T>(sum[i] * inverse);
  }
}

// together: heads of one tile that neighbouring warps take, so that they read its lists from the cache.
template <int kWidth, ScoreKind kKind>
__global__ void __launch_bounds__(kThreads, kBlocks)
    forward_tiles(const __grid_constant__ RowAttentionForward pass, const __grid_constant__ RowTiles tiles,
                  const Record* records, int together) {
  using Memory = WarpMemory<kWidth>;
  constexpr int kChunks = kWidth / 8, kRowsAtOnce = kWarpSize / kChunks;
  constexpr int kFeatureSteps = kWidth / 16, kOutBlocks = kWidth / 8;
  extern __shared__ __align__(128) unsigned char shared[];
  const RowAttentionShape& shape = pass.shape;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
            warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int g = lane >> 2, t = lane & 3;
  Where at;
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp, rest = item / together;
  at.tile = rest % tiles.num_tiles;
  at.pair = rest / tiles.num_tiles * together + item % together;
  if (at.pair >= shape.batch * shape.heads) return;  // no barrier spans warps
  at.batch = at.pair / shape.heads;
  at.head = at.pair % shape.heads;
  const std::uint32_t ring = dense::shared_address(shared) + warp * Memory::kBytes,
                      columns_at = ring + Memory::kColumnsAt, mask_at = ring + Memory::kMaskAt;

  // What is read once per step is found anew each time (`opaque`): the accumulators need the registers.
  const int first_entry = static_cast<int>(tiles.first_entry[at.tile]),
            count = static_cast<int>(tiles.first_entry[at.tile + 1]) - first_entry,
            first_step = first_entry / kTileColumns + static_cast<int>(at.tile),
            steps = tiles.num_steps[at.tile];
  const std::int64_t position = at.tile * kTileRows + lane;
  int own_row = -1;  // the row of this lane's number, unless it is long
  if (position < pass.mask.num_rows) {
    const Item own = item_at(pass.mask, position, /*segments=*/false);
    if (own.mine) own_row = own.row;
  }

  // Entries of a step: from begin_of(step) to begin_of(step + 1), within the tile. 32 steps are looked up at
  // a time, those from first_known on.
  int first_known = 0, first_of_steps = 0;
  const auto look_up_steps = [&](int first) {
    first_known = first;
    first_of_steps =
        first + lane < steps ? __ldg(tiles.step_first + (dense::opaque(first_step) + first + lane)) : count;
  };
  const auto begin_of = [&](int step) { return __shfl_sync(~0u, first_of_steps, step - first_known); };
  look_up_steps(0);

  // Copies: this lane's chunk of every kRowsAtOnce-th row.
  const int chunk = lane % kChunks, sub = lane / kChunks;
  const bool in_features = chunk * 8 < shape.features, in_values = chunk * 8 < shape.value_columns;
  const Operand k(pass.k, at, chunk), v(pass.v, at, chunk);
  // Offsets are permuted by an exclusive or, so that of any other row is found by one.
  const std::uint32_t own_offset = Tile<kWidth>::offset(sub, chunk);
  records += at.head * pass.value_step;  // value_step: nnz, or 0
  const auto copy_step = [&](int stage, int step, int column) {
    const std::uint32_t to = ring + stage * Memory::kStageBytes;
#pragma unroll
    for (int i = 0; i < kTileColumns / kRowsAtOnce; ++i) {
      const int node = __shfl_sync(~0u, column, i * kRowsAtOnce + sub);
      const std::uint32_t chunk_at = to + (own_offset ^ Tile<kWidth>::offset(i * kRowsAtOnce, 0));
      dense::copy_chunk(chunk_at, k.row(node), in_features);
      dense::copy_chunk(chunk_at + Memory::kOperandBytes, v.row(node), in_values);
    }
    const int begin = begin_of(step),
              size = min((step + 1 < steps ? begin_of(step + 1) : count) - begin, kRecords);
    const int own_lane = dense::opaque(lane);
#pragma unroll
    for (int h = 0; h < kRecords / kWarpSize; ++h) {
      const int e = own_lane + h * kWarpSize;
      if (e < size) copy_record(to + Memory::kRecordsAt + e * 8, records + (first_entry + begin + e));
    }
  };
  // Columns of kColumnSteps steps from `first` on, one chunk per lane.
  const auto copy_columns = [&](int first) {
    const std::uint32_t to = columns_at + first / kColumnSteps % 2 * Memory::kColumnBytes;
    const std::int32_t* const from = tiles.column + (dense::opaque(first_step) + first) * kTileColumns;
    static_assert(Memory::kColumnBytes == kWarpSize * 16);
    dense::copy_chunk(to + lane * 16, from + lane * 4,
                      first * kTileColumns + lane * 4 < steps * kTileColumns);
  };
  copy_columns(0);
  {
    const Operand q(pass.q, at, chunk);
    const std::uint32_t to = ring + (kStages - 1) * Memory::kStageBytes;
#pragma unroll
    for (int i = 0; i < kTileRows / kRowsAtOnce; ++i) {
      const int row = __shfl_sync(~0u, own_row, i * kRowsAtOnce + sub);
      dense::copy_chunk(to + (own_offset ^ Tile<kWidth>::offset(i * kRowsAtOnce, 0)), q.row(max(row, 0)),
                        in_features && row >= 0);
    }
    dense::finish_issuing_copies();
  }
  {
    int column[kStages - 1];
#pragma unroll
    for (int s = 0; s < kStages - 1; ++s) {
      column[s] = 0;
      if (s < steps)
        column[s] = __ldg(tiles.column + ((first_step + s) * kTileColumns + lane % kTileColumns));
    }
#pragma unroll
    for (int s = 0; s < kStages - 1; ++s) {
      if (s < steps) copy_step(s, s, column[s]);
      dense::finish_issuing_copies();  // a group per step, even if it is empty
    }
  }

  const std::uint32_t own_numbers = mask_at + lane * 16;  // of the matrix, as far as this lane needs it
  const auto clear_mask = [&] {
#pragma unroll
    for (int block = 0; block < 4; ++block)
      dense::write_shared(own_numbers + block * kBlockBytes, {0, 0, 0, 0});
  };
  clear_mask();

  Pair query[2][kFeatureSteps][4];
  float constant[2][2] = {};  // of phi(k) = max(k, 0) + epsilon: epsilon's half of every product
  wait_for_all_but<kStages - 1>();
  __syncwarp();
#pragma unroll
  for (int a = 0; a < 2; ++a) {
#pragma unroll
    for (int s = 0; s < kFeatureSteps; ++s) {
      dense::load_block(query[a][s], Tile<kWidth>::at(ring + (kStages - 1) * Memory::kStageBytes,
                                                      Tile<kWidth>::lane_by_row(lane), 16 * a, 2 * s));
      if constexpr (kKind == ScoreKind::relu) {
        const dense::ReluFeatures<T> features(static_cast<float>(shape.rule.epsilon));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if ((2 * s + i / 2) * 8 >= shape.features) continue;  // padding stays zero
          query[a][s][i] = features(query[a][s][i]);
          const float2 two = Half<T>::unpack(query[a][s][i]);
          constant[a][i % 2] += two.x + two.y;
        }
      }
    }
    if constexpr (kKind == ScoreKind::relu) {
#pragma unroll
      for (float& c : constant[a]) c = sum_lanes<4>(c) * static_cast<float>(shape.rule.epsilon);
    }
  }

  // Numerators, and D_i as the product of the weights with a column of ones: what is divided by what it was
  // rounded with.
  float out[2][kOutBlocks][4] = {}, normaliser[2][4] = {};
  constexpr Pair kOnes = 0x3f803f80u;
  float row_max[2][2] = {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}};  // of exponents to base 2
  const float scale = static_cast<float>(shape.rule.scale) * dense::kLog2e;
  int stage = 0, free_stage = kStages - 1;
  for (int step = 0; step < steps; ++step) {
    wait_for_all_but<kStages - 2>();
    __syncwarp();  // the step is there, the matrix is clear, and `free_stage` is free
    const std::uint32_t k_tile = ring + stage * Memory::kStageBytes, v_tile = k_tile + Memory::kOperandBytes,
                        records_at = k_tile + Memory::kRecordsAt;
    {
      const int begin = begin_of(step), size = (step + 1 < steps ? begin_of(step + 1) : count) - begin;
      const int own_lane = dense::opaque(lane);
#pragma unroll
      for (int h = 0; h < kRecords / kWarpSize; ++h) {
        const int e = own_lane + h * kWarpSize;
        if (e >= size) break;
        const Record record = load_record(records_at + e * 8);
        store_word(mask_at + record.place * 4, __float_as_uint(record.value));
      }
      for (int e = own_lane + kRecords; e < size; e += kWarpSize) {
        const Record record = records[first_entry + begin + e];
        store_word(mask_at + record.place * 4, __float_as_uint(record.value));
      }
    }
    const int ahead = step + kStages - 1;
    if (ahead < steps) {
      // Both the step at hand and the one ahead must be among those looked up.
      if (ahead + 1 - first_known >= kWarpSize) look_up_steps(step);
      if (ahead % kColumnSteps == kStages - 1) copy_columns(ahead - ahead % kColumnSteps + kColumnSteps);
      const int which = ahead % (2 * kColumnSteps) * kTileColumns + lane % kTileColumns;
      copy_step(free_stage, ahead, load_word(columns_at + which * 4));
    }
    dense::finish_issuing_copies();
    __syncwarp();  // the matrix is written

    const int own_lane = dense::opaque(lane);
    const std::uint32_t by_column = Tile<kWidth>::lane_by_column(own_lane),
                        by_row = Tile<kWidth>::lane_by_row(own_lane);
    float score[2][2][4];
#pragma unroll
    for (int a = 0; a < 2; ++a) {
#pragma unroll
      for (int i = 0; i < 8; ++i) score[a][i / 4][i % 4] = constant[a][i % 4 / 2];
    }
#pragma unroll
    for (int s = 0; s < kFeatureSteps; ++s) {
      Pair keys[4];
      dense::load_block(keys, Tile<kWidth>::at(k_tile, by_column, 0, 2 * s));
      if constexpr (kKind == ScoreKind::relu) {
#pragma unroll
        for (Pair& x : keys) x = relu_of(x);
      }
#pragma unroll
      for (int a = 0; a < 2; ++a) {
        Half<T>::multiply(score[a][0], query[a][s], keys[0], keys[1]);
        Half<T>::multiply(score[a][1], query[a][s], keys[2], keys[3]);
      }
    }

    Pair weights[2][4];
#pragma unroll
    for (int a = 0; a < 2; ++a) {
      float mask[2][4];
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const uint4 own = dense::read_shared(own_numbers + (2 * a + b) * kBlockBytes);
        mask[b][0] = __uint_as_float(own.x);
        mask[b][1] = __uint_as_float(own.y);
        mask[b][2] = __uint_as_float(own.z);
        mask[b][3] = __uint_as_float(own.w);
      }
      if constexpr (kKind == ScoreKind::softmax) {
        float largest[2] = {row_max[a][0], row_max[a][1]};
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          float& x = score[a][i / 4][i % 4];
          x = mask[i / 4][i % 4] != 0 ? x * scale : -INFINITY;
          largest[i % 4 / 2] = fmaxf(largest[i % 4 / 2], x);
        }
        for (float& x : largest) x = max_lanes<4>(x);
        if (__any_sync(~0u, largest[0] != row_max[a][0] || largest[1] != row_max[a][1])) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float shrink = dense::fast_exp2(row_max[a][half] - shift_of(largest[half]));
            row_max[a][half] = largest[half];
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) {
              normaliser[a][i] *= shrink;
#pragma unroll
              for (int n = 0; n < kOutBlocks; ++n) out[a][n][i] *= shrink;
            }
          }
        }
#pragma unroll
        for (int i = 0; i < 8; ++i)
          mask[i / 4][i % 4] *= dense::fast_exp2(score[a][i / 4][i % 4] - shift_of(row_max[a][i % 4 / 2]));
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) mask[i / 4][i % 4] *= score[a][i / 4][i % 4];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[a][i] = pack<T>(mask[i / 2][i % 2 * 2], mask[i / 2][i % 2 * 2 + 1]);
      Half<T>::multiply(normaliser[a], weights[a], kOnes, kOnes);
    }
    clear_mask();
#pragma unroll
    for (int n = 0; n < kOutBlocks; n += 2) {
      Pair values[4];
      dense::load_block_transposed(values, Tile<kWidth>::at(v_tile, by_row, 0, n));
#pragma unroll
      for (int a = 0; a < 2; ++a) {
        Half<T>::multiply(out[a][n], weights[a], values[0], values[1]);
        Half<T>::multiply(out[a][n + 1], weights[a], values[2], values[3]);
      }
    }
    free_stage = stage;
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }

  bool finite = true;
  T* const result = head_rows<T>(pass.out, at.batch, at.head);
#pragma unroll
  for (int a = 0; a < 2; ++a) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = __shfl_sync(~0u, own_row, 16 * a + 8 * half + g);
      const float inverse = inverse_of(normaliser[a][2 * half], static_cast<float>(shape.rule.guard));
      finite = finite && fabsf(normaliser[a][2 * half]) <= FLT_MAX;
#pragma unroll
      for (int n = 0; n < kOutBlocks; n += 4) {
        Pair x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float left = out[a][n + i][2 * half], right = out[a][n + i][2 * half + 1];
          finite = finite && fabsf(left) <= FLT_MAX && fabsf(right) <= FLT_MAX;
          x[i] = pack<T>(left * inverse, right * inverse);
        }
        const uint4 whole = dense::gather_row(x[0], x[1], x[2], x[3], lane);
        const int column = (n + t) * 8;
        if (row >= 0 && column < shape.value_columns)
          __stcs(reinterpret_cast<uint4*>(result + row * pass.out.node_step + column), whole);
      }
    }
  }
  if (__any_sync(~0u, !finite)) {
    __syncwarp();
    for (int r = 0; r < kTileRows; ++r) {
      const int row = __shfl_sync(~0u, own_row, r);
      if (row >= 0) attend_alone<kKind>(pass, at, row, lane);
    }
  }
}

__global__ void records_by_tile(const float* value, const RowTiles tiles, std::int64_t nnz,
                                std::int64_t heads, Record* records) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= tiles.first_entry[tiles.num_tiles]) return;  // entries of long rows are in no tile
  const std::int32_t from = tiles.entry[i];
  const std::uint32_t place = tiles.place[i];
  for (std::int64_t h = 0; h < heads; ++h) records[h * nnz + i] = {__ldg(value + h * nnz + from), place};
}

template <int kWidth>
cudaError_t launch(const RowAttentionForward& pass, const RowTiles& tiles, const Record* records,
                   cudaStream_t stream) {
  const std::int64_t pairs = pass.shape.batch * pass.shape.heads;
  const int together = pairs % 4 == 0 ? 4 : pairs % 2 == 0 ? 2 : 1;
  const auto run = [&](auto kind) {
    const auto kernel = forward_tiles<kWidth, kind>;
    constexpr int kBytes = kWarps * WarpMemory<kWidth>::kBytes;
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    if (status != cudaSuccess) return status;
    kernel<<<blocks_for(pairs * tiles.num_tiles, kWarps), kThreads, kBytes, stream>>>(pass, tiles, records,
                                                                                      together);
    return cudaGetLastError();
  };
  switch (pass.shape.rule.kind) {
    case ScoreKind::features:
      return run(std::integral_constant<ScoreKind, ScoreKind::features>{});
    case ScoreKind::relu:
      return run(std::integral_constant<ScoreKind, ScoreKind::relu>{});
    default:
      return run(std::integral_constant<ScoreKind, ScoreKind::softmax>{});
  }
}

}  // namespace

bool tile_attention_fits(const RowAttentionForward& pass) {
  return pass.dot == nullptr && pass.dtype == Real::bfloat16 && pass.shape.features <= kMostTiledChannels &&
         pass.shape.value_columns <= kMostTiledChannels && !pass.mask.uncut && rows_are_vectors(pass);
}

std::int64_t tile_attention_workspace(const RowAttentionForward& pass) {
  const std::int64_t value_heads = pass.value_step == 0 ? 1 : pass.shape.heads;
  return value_heads * pass.mask.nnz * static_cast<std::int64_t>(sizeof(Record) / sizeof(float)) +
         row_attention_workspace(pass.mask, pass.shape);
}

cudaError_t tile_attention_forward(const RowAttentionForward& given, const RowTiles& tiles,
                                   cudaStream_t stream) {
  RowAttentionForward pass = given;
  pass.mask.order = tiles.order;
  if (pass.shape.batch * pass.shape.heads * tiles.num_tiles == 0) return cudaSuccess;
  auto* const records = static_cast<Record*>(pass.workspace);
  const std::int64_t nnz = pass.mask.nnz, value_heads = pass.value_step == 0 ? 1 : pass.shape.heads;
  constexpr int kRecordThreads = 256;
  records_by_tile<<<blocks_for(nnz, kRecordThreads), kRecordThreads, 0, stream>>>(
      static_cast<const float*>(pass.value), tiles, nnz, value_heads, records);
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) return status;
  const bool narrow = pass.shape.features <= 32 && pass.shape.value_columns <= 32;
  const cudaError_t short_status =
      narrow ? launch<32>(pass, tiles, records, stream) : launch<64>(pass, tiles, records, stream);
  if (short_status != cudaSuccess) return short_status;
  pass.workspace = records + value_heads * nnz;
  return long_row_attention_forward(pass, stream);
}

}  // namespace topomask
