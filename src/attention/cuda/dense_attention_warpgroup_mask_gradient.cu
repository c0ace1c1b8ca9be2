// dL/dM, linear kind, up to 64 channels, on warpgroups: a block of threads owns 128 x 256 of it.
//
// The rows of q and grad_out that belong to the tile's rows are one unit of the ring, k and v of 128 columns
// another.
#include "attention/cuda/dense_attention_warpgroup.cuh"
#include "attention/cuda/dense_attention_warpgroup.h"
#include "core/cuda/grid.h"

namespace topomask {

using namespace dense;

namespace {

namespace wg = warpgroup;

constexpr int kColumns = 256;  // of a tile of the mask
constexpr int kSlots = 7;
// How many units are on their way while an earlier one is published. An entry holds on to its rows until its
// last columns have come, so three slots must not be waiting to be published.
constexpr int kAhead = kSlots - 3;
using Ring = wg::Ring<kSlots>;
static_assert(Ring::kBytes <= kMostSharedBytes);

struct TilePlace {
  int first_row, first_column;
  int units;  // of columns, 128 each
};

template <class T>
__device__ void copy_units(const DenseAttention& a, const DenseMaskGradient& b, const wg::Lanes& lanes,
                           int begin, int end, const TilePlace& place, Ring ring) {
  const auto copy = [](std::uint32_t tile, const void* x, const RowStrides& strides, const wg::Entry& from,
                       int first, int valid, int channels) {
    copy_rows<T, wg::kWidth, wg::kThreads>(tile, row_start<T>(x, strides, from.batch, from.head, first),
                                           strides.row, 0, wg::kGroups, valid, channels);
  };
  Ring ready = ring;   // the next to publish
  int ready_unit = 0;  // of its entry: 0 is rows
  const auto publish = [&] {
    if (ready_unit > 0 && a.rule.is_relu()) {
      map_features<T, wg::kWidth, wg::kThreads, false>(ready.tile(0), 0, wg::kGroups, a.d, a.rule.epsilon);
    }
    wg::publish_to_products();
    wg::arrive(ready.full());
    ready.advance();
    ready_unit = ready_unit == place.units ? 0 : ready_unit + 1;
  };

  wg::CopiesAhead<kAhead, decltype(publish)> copies{publish};
  wg::Entry entry(lanes, begin);
  for (int number = begin; number < end; ++number, entry.advance(lanes, a.batch)) {
#pragma unroll 1
    for (int unit = 0; unit <= place.units; ++unit) {
      ring.wait_until_empty();
      if (unit == 0) {
        const int first = place.first_row, valid = a.num_nodes - first;
        copy(ring.tile(0), a.q, a.q_strides, entry, first, valid, a.d);
        copy(ring.tile(1), b.grad_out, b.grad_out_strides, entry, first, valid, a.d_v);
      } else {
        const int first = place.first_column + (unit - 1) * 128, valid = a.num_nodes - first;
        copy(ring.tile(0), a.k, a.k_strides, entry, first, valid, a.d);
        copy(ring.tile(1), a.v, a.v_strides, entry, first, valid, a.d_v);
      }
      finish_issuing_copies();
      ring.advance();
      copies.keep_on();
    }
  }
  copies.finish();
}

// What an entry knows of the two rows of a thread: 1/D_i and delta_i / D_i.
struct RowStatistics {
  float inverse[2], delta[2];
};

template <class T>
__device__ void multiply_units(const DenseAttention& a, const DenseMaskGradient& b, const wg::Lanes& lanes,
                               int lane, const TilePlace& place, Ring ring, float* to) {
  using Products = wg::Products<T>;
  using Layout = Tile<wg::kWidth>;
  // The thread's own place is asked for again wherever it is needed: sums take the registers.
  const auto thread = [] { return opaque(static_cast<int>(threadIdx.x)) - wg::kThreads; };
  const auto thread_row = [&] { return place.first_row + thread() / 32 * 16 + (thread() % 32 >> 2); };
  const int n = a.num_nodes;

  const auto load_statistics = [&](const wg::Entry& of) {
    const int row = thread_row();
    const std::int64_t at = (static_cast<std::int64_t>(of.batch) * a.heads + of.head) * n + row;
    RowStatistics s;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool valid = row + half * 8 < n;
      s.inverse[half] = valid ? __ldg(b.inverse_normaliser + at + half * 8) : 0;
      s.delta[half] = valid ? __ldg(b.delta + at + half * 8) : 0;
    }
    return s;
  };

  int number = lanes.begin(lane);
  const int end = lanes.begin(lane + 1);
  wg::Entry entry(lanes, number);
  RowStatistics next = load_statistics(entry);
#pragma unroll 1
  while (number < end) {
    const int mask_head = entry.mask_head;
    const int end_here = min(end, (mask_head + 1) * lanes.entries_each);
    wg::Accumulator sum[kColumns / 64] = {};
#pragma unroll 1
    for (; number < end_here; ++number) {
      const RowStatistics here = next;
      entry.advance(lanes, a.batch);
      if (number + 1 < end) next = load_statistics(entry);

      ring.wait_until_full();
      const Ring rows = ring;
      ring.advance();
      Pair query[wg::kWidth / 16][4];
      {
        const ReluFeatures<T> features(a.rule.epsilon);
        const std::uint32_t by_row = Layout::lane_by_row(thread() % 32);
        const int warp_row = thread() / 32 * 16;
#pragma unroll
        for (int k = 0; k < wg::kWidth / 16; ++k) {
          load_block(query[k], Layout::at(rows.tile(0), by_row, warp_row, 2 * k));
          if (a.rule.is_relu()) {
#pragma unroll
            for (Pair& x : query[k]) x = features(x);  // padding meets zeros
          }
        }
      }
      const std::uint64_t grad_out =
          wg::describe(rows.tile(1) + thread() / wg::kThreads * 64 * Layout::kRowBytes);

#pragma unroll
      for (int c = 0; c < kColumns / 64; ++c) {
        if (c / 2 >= place.units) break;
        if (c % 2 == 0) ring.wait_until_full();
        const std::uint64_t key = wg::describe(ring.tile(0) + (c % 2) * 64 * Layout::kRowBytes),
                            value = wg::describe(ring.tile(1) + (c % 2) * 64 * Layout::kRowBytes);
        wg::Accumulator score, grad_weight;
        wg::hold(score);
        wg::hold(grad_weight);
        wg::begin_products();
#pragma unroll
        for (int k = 0; k < wg::kWidth / 16; ++k) {
          Products::template multiply<false>(score, query[k], key + k * 2, k > 0);
        }
#pragma unroll
        for (int k = 0; k < wg::kWidth / 16; ++k) {
          Products::multiply(grad_weight, grad_out + k * 2, value + k * 2, k > 0);
        }
        wg::finish_issuing_products();
        wg::wait_for_products_but<0>();
        wg::hold(score);
        wg::hold(grad_weight);
        if (c % 2 == 1) {
          wg::arrive(ring.empty());
          ring.advance();
        }
#pragma unroll
        for (int s = 0; s < 8; ++s) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float inverse = here.inverse[e / 2], shift = -here.delta[e / 2] * inverse;
            sum[c][s][e] = fmaf(score[s][e], fmaf(grad_weight[s][e], inverse, shift), sum[c][s][e]);
          }
        }
      }
      wg::arrive(rows.empty());
    }

    float* const out =
        to + static_cast<std::int64_t>(lanes.lanes == 1 ? mask_head : lane + mask_head) * n * n;
    const int column = place.first_column + (thread() & 3) * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = thread_row() + half * 8;
      if (i >= n) continue;
      float* const out_row = out + static_cast<std::int64_t>(i) * n;
#pragma unroll
      for (int c = 0; c < kColumns / 64; ++c) {
#pragma unroll
        for (int s = 0; s < 8; ++s) {
          const int j = column + c * 64 + s * 8;
          const float x = sum[c][s][half * 2], y = sum[c][s][half * 2 + 1];
          if (n % 2 == 0) {
            if (j < n) *reinterpret_cast<float2*>(out_row + j) = make_float2(x, y);
          } else {
            if (j < n) out_row[j] = x;
            if (j + 1 < n) out_row[j + 1] = y;
          }
        }
      }
    }
  }
}

template <class T>
__global__ __launch_bounds__(wg::kBlockThreads, 1) void warpgroup_mask_gradient_kernel(
    const __grid_constant__ DenseAttention a, const __grid_constant__ DenseMaskGradient b,
    const __grid_constant__ wg::Lanes lanes, float* to) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const int tile_columns = (a.num_nodes + kColumns - 1) / kColumns;
  TilePlace place;
  place.first_row = static_cast<int>(blockIdx.x) / tile_columns * wg::kRows;
  place.first_column = static_cast<int>(blockIdx.x) % tile_columns * kColumns;
  place.units = a.num_nodes - place.first_column > 128 ? 2 : 1;
  const int lane = static_cast<int>(blockIdx.y);
  Ring ring{shared_address(shared)};
  ring.start();
  if (threadIdx.x < wg::kThreads) {
    wg::give_up_registers<wg::kCopyingRegisters>();
    copy_units<T>(a, b, lanes, lanes.begin(lane), lanes.begin(lane + 1), place, ring);
  } else {
    wg::claim_registers<wg::kMultiplyingRegisters>();
    multiply_units<T>(a, b, lanes, lane, place, ring, to);
  }
}

// A mask head's gradient from the shares of the lanes that had entries of it, in their order.
__global__ void sum_lanes_kernel(const float* shares, const __grid_constant__ wg::Lanes lanes,
                                 std::int64_t size, float* grad_mask) {
  const int mask_head = static_cast<int>(blockIdx.y);
  const int first = lanes.lane_of(mask_head * lanes.entries_each),
            last = lanes.lane_of((mask_head + 1) * lanes.entries_each - 1);
  const float* from = shares + (first + mask_head) * size;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < size;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    float sum = 0;
#pragma unroll 4
    for (int l = 0; l <= last - first; ++l) sum += from[l * size + i];
    grad_mask[mask_head * size + i] = sum;
  }
}

int num_tiles(const DenseAttention& a) {
  return (a.num_nodes + wg::kRows - 1) / wg::kRows * ((a.num_nodes + kColumns - 1) / kColumns);
}

// Blocks of threads run in waves of one per multiprocessor, and the last wave should be full. Writing a share
// costs about as much as two entries.
wg::Lanes choose_lanes(const DenseAttention& a) {
  wg::Lanes lanes;
  lanes.mask_heads = a.mask_heads;
  lanes.heads_each = a.mask_heads == 1 ? a.heads : 1;
  lanes.entries_each = a.batch * lanes.heads_each;
  const std::int64_t tiles = num_tiles(a), slots = num_multiprocessors(), entries = lanes.entries();
  std::int64_t best_cost = INT64_MAX;
  for (std::int64_t count = 1; count <= entries && count <= 4 * slots; ++count) {
    const std::int64_t waves = (tiles * count + slots - 1) / slots;
    const std::int64_t cost = waves * ((entries + count - 1) / count + 2);
    if (cost < best_cost) {
      lanes.lanes = static_cast<int>(count);
      best_cost = cost;
    }
  }
  return lanes;
}

}  // namespace

bool warpgroup_mask_gradient_fits(const DenseAttention& a) {
  const int widest = a.d > a.d_v ? a.d : a.d_v;
  int device = 0, major = 0, minor = 0;
  if (a.rule.is_softmax() || widest <= 32 || widest > wg::kWidth || cudaGetDevice(&device) != cudaSuccess)
    return false;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return major == 9 && minor == 0;
}

std::int64_t warpgroup_mask_gradient_workspace(const DenseAttention& a) {
  const wg::Lanes lanes = choose_lanes(a);
  if (lanes.lanes == 1) return 0;
  return static_cast<std::int64_t>(lanes.lanes + lanes.mask_heads - 1) * a.num_nodes * a.num_nodes * 4;
}

cudaError_t warpgroup_mask_gradient(const DenseAttention& a, const DenseMaskGradient& b,
                                    cudaStream_t stream) {
  const wg::Lanes lanes = choose_lanes(a);
  const auto kernel = a.type == HalfType::bfloat16 ? warpgroup_mask_gradient_kernel<__nv_bfloat16>
                                                   : warpgroup_mask_gradient_kernel<__half>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Ring::kBytes);
  if (status != cudaSuccess) return status;
  kernel<<<dim3(num_tiles(a), lanes.lanes), wg::kBlockThreads, Ring::kBytes, stream>>>(
      a, b, lanes, lanes.lanes == 1 ? b.grad_mask : b.workspace);
  const cudaError_t launched = cudaGetLastError();
  if (launched != cudaSuccess || lanes.lanes == 1) return launched;
  const std::int64_t size = static_cast<std::int64_t>(a.num_nodes) * a.num_nodes;
  sum_lanes_kernel<<<dim3(static_cast<unsigned>((size + 255) / 256), a.mask_heads), 256, 0, stream>>>(
      b.workspace, lanes, size, b.grad_mask);
  return cudaGetLastError();
}

}  // namespace topomask
