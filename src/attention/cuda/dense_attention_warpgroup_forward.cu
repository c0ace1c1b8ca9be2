// Forward pass, linear kind, from 129 to 256 tokens, up to 64 channels, on warpgroups.
//
// A block of threads owns 128 rows of queries, walks the batch, and keeps the mask of its rows in registers.
// Its queries are one unit of the ring, 128 keys and values another. Scores of the next 64 keys are computed
// while these are weighted.
#include "attention/cuda/dense_attention_warpgroup.cuh"
#include "attention/cuda/dense_attention_warpgroup.h"
#include "core/cuda/grid.h"
#include "core/cuda/lanes.cuh"

namespace topomask {

using namespace dense;

namespace {

namespace wg = warpgroup;

constexpr int kMostNodes = 256;
constexpr int kUnits = 3;  // of an entry: queries, and twice keys and values
constexpr int kSlots = 7;
// How many units are on their way while an earlier one is published. The next entry's can then be published
// while this one holds on to its keys and values.
constexpr int kAhead = 2;
using Ring = wg::Ring<kSlots>;
using Layout = Tile<wg::kWidth>;
static_assert(Ring::kBytes <= kMostSharedBytes);

// Where the scales of queries stand: in the half of their unit that holds values with keys.
__device__ std::uint32_t row_scale_of(const Ring& queries, int row) {
  return queries.tile(1) + row * 4;
}

// What a thread does to the chunks that it copied itself.
template <class T>
__device__ void scale_queries(const Ring& queries) {
  const Groups<wg::kWidth, wg::kThreads> mine;
#pragma unroll 1
  for (int group = 0; group < wg::kGroups; ++group) {
    const std::uint32_t at = queries.tile(0) + mine.offset(group);
    const uint4 x = read_shared(at);
    const float scale = forward_row_scale(max_lanes<Layout::kChunks>(largest_of<T>(x)));
    write_shared(at, scaled<T>(x, scale));
    if (mine.chunk == 0) wg::write_float(row_scale_of(queries, mine.row(group)), scale);
  }
}

template <class T>
__device__ void copy_units(const DenseAttention& a, const wg::Lanes& lanes, int begin, int end, int first_row,
                           Ring ring) {
  const auto copy = [&](std::uint32_t tile, const void* x, const RowStrides& strides, const wg::Entry& from,
                        int first, int channels) {
    copy_rows<T, wg::kWidth, wg::kThreads>(tile, row_start<T>(x, strides, from.batch, from.head, first),
                                           strides.row, 0, wg::kGroups, a.num_nodes - first, channels);
  };
  Ring ready = ring;   // the next to publish
  int ready_unit = 0;  // of its entry: 0 is queries
  const auto publish = [&] {
    if (a.rule.is_relu()) {
      map_features<T, wg::kWidth, wg::kThreads, false>(ready.tile(0), 0, wg::kGroups, a.d, a.rule.epsilon);
    }
    if constexpr (kScalesRows<T>) {
      if (ready_unit == 0) scale_queries<T>(ready);
      ready_unit = ready_unit == kUnits - 1 ? 0 : ready_unit + 1;
    }
    wg::publish_to_products();
    wg::arrive(ready.full());
    ready.advance();
  };

  wg::CopiesAhead<kAhead, decltype(publish)> copies{publish};
  wg::Entry entry(lanes, begin);
#pragma unroll 1
  for (int number = begin; number < end; ++number, entry.advance(lanes, a.batch)) {
#pragma unroll 1
    for (int unit = 0; unit < kUnits; ++unit) {
      ring.wait_until_empty();
      if (unit == 0) {
        copy(ring.tile(0), a.q, a.q_strides, entry, first_row, a.d);
      } else {
        copy(ring.tile(0), a.k, a.k_strides, entry, (unit - 1) * 128, a.d);
        copy(ring.tile(1), a.v, a.v_strides, entry, (unit - 1) * 128, a.d_v);
      }
      finish_issuing_copies();
      ring.advance();
      copies.keep_on();
    }
  }
  copies.finish();
}

template <class T, int kChunks>  // of 64 keys
struct Multiplying {
  using Products = wg::Products<T>;
  using Weights = Pair[4][4];  // of 64 keys, as left operands

  const DenseAttention& a;
  const DenseForward& f;
  int first_row;

  __device__ static int thread() { return opaque(static_cast<int>(threadIdx.x)) - wg::kThreads; }
  __device__ static int lane() { return thread() & 31; }
  __device__ int warp_row() const { return first_row + thread() / 32 * 16; }

  __device__ void load_mask(Weights (&m16)[kChunks], int mask_head) const {
    const PackedMask mask(f.mask, mask_head, a.num_nodes);
    const int row = warp_row() / 16;
    const uint4* from = mask.at(row < mask.side ? row : 0, 0) + lane();
#pragma unroll
    for (int c = 0; c < 4 * kChunks; ++c) PackedMask::load<false>(m16[c / 4][c % 4], from + c * 32);
  }

  __device__ void start_scores(wg::Accumulator& score, const Ring& queries, const Ring& keys,
                               int chunk) const {
    const std::uint64_t q = wg::describe(queries.tile(0) + thread() / wg::kThreads * 64 * Layout::kRowBytes),
                        k = wg::describe(keys.tile(0) + (chunk % 2) * 64 * Layout::kRowBytes);
#pragma unroll
    for (int c = 0; c < wg::kWidth / 16; ++c) Products::multiply(score, q + c * 2, k + c * 2, c > 0);
    wg::finish_issuing_products();
  }

  // row_scale: of queries, kScalesRows only.
  __device__ void finish_rows(const wg::Accumulator& out, float (&sum)[2], const float (&row_scale)[2],
                              const wg::Entry& here) const {
    const int first = warp_row(), n = a.num_nodes;
    const std::int64_t row = (static_cast<std::int64_t>(here.batch) * a.heads + here.head) * n;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& x = sum[half];
      x = sum_lanes<4>(x);
      if constexpr (kScalesRows<T>) x /= row_scale[half];
      x = fabsf(x) <= a.rule.guard ? 0 : 1 / x;
      const int i = first + half * 8 + (lane() >> 2);
      if (i < n && (lane() & 3) == 0) f.inverse_normaliser[row + i] = x;
      if constexpr (kScalesRows<T>) x /= row_scale[half];
    }
    store_rows<T>(out, sum[0], sum[1], row_start<T>(f.out, f.out_strides, here.batch, here.head, first),
                  f.out_strides.row, 0, n - first, a.d_v, lane());
  }

  __device__ void run(const wg::Lanes& lanes, int number, int end, Ring queries) const {
    Ring lower = queries;
    lower.advance();
    queries.wait_until_full();
    lower.wait_until_full();
    wg::Accumulator score;
    wg::renew(score);
    wg::begin_products();
    start_scores(score, queries, lower, 0);

    wg::Entry entry(lanes, number);
    int loaded = -1;
    Weights m16[kChunks];
#pragma unroll 1
    for (; number < end; ++number) {
      if (entry.mask_head != loaded) {
        loaded = entry.mask_head;
        load_mask(m16, loaded);
      }
      Ring upper = lower;
      upper.advance();
      upper.wait_until_full();
      wg::Accumulator out;
      float sum[2] = {0, 0};
      Weights weight[2];
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        // The product of the last weights may still be on its way.
        if (chunk == 0) {
          wg::wait_for_products_but<0>();
        } else {
          wg::wait_for_products_but<1>();
        }
        wg::hold(score);
#pragma unroll
        for (int s = 0; s < 8; ++s) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int part = (s % 2) * 2 + half;
            const float2 entries = Half<T>::unpack(m16[chunk][s / 2][part]);
            const float x = entries.x * score[s][half * 2], y = entries.y * score[s][half * 2 + 1];
            sum[half] += x + y;
            weight[chunk % 2][s / 2][part] = pack<T>(x, y);
          }
        }
        if (chunk == 0) wg::renew(out);
        if (chunk < kChunks - 1) wg::renew(score);
        wg::begin_products();
        if (chunk < kChunks - 1) start_scores(score, queries, chunk == 0 ? lower : upper, chunk + 1);
        const std::uint64_t v =
            wg::describe((chunk < 2 ? lower : upper).tile(1) + (chunk % 2) * 64 * Layout::kRowBytes);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          Products::template multiply<true>(out, weight[chunk % 2][c], v + c * 128, chunk > 0 || c > 0);
        }
        wg::finish_issuing_products();
      }

      float row_scale[2];
      if constexpr (kScalesRows<T>) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          row_scale[half] =
              wg::read_float(row_scale_of(queries, thread() / 32 * 16 + (lane() >> 2) + half * 8));
        }
      }
      // The first scores of the next entry; after the last one, nothing reads what is computed here.
      wg::arrive(queries.empty());
      const std::uint32_t lower_empty = lower.empty();
      queries = upper;
      queries.advance();
      lower = queries;
      lower.advance();
      if (number + 1 < end) {
        queries.wait_until_full();
        lower.wait_until_full();
      }
      wg::renew(score);
      wg::begin_products();
      start_scores(score, queries, lower, 0);
      wg::wait_for_products_but<1>();
      wg::hold(out);
      wg::arrive(lower_empty);
      wg::arrive(upper.empty());
      finish_rows(out, sum, row_scale, entry);
      entry.advance(lanes, a.batch);
    }
    wg::wait_for_products_but<0>();
    wg::hold(score);
  }
};

template <class T, int kChunks>
__global__ __launch_bounds__(wg::kBlockThreads,
                             1) void warpgroup_forward_kernel(const __grid_constant__ DenseAttention a,
                                                              const __grid_constant__ DenseForward f,
                                                              const __grid_constant__ wg::Lanes lanes) {
  extern __shared__ __align__(1024) unsigned char shared[];
  Ring ring{shared_address(shared)};
  ring.start();
  const int lane = static_cast<int>(blockIdx.y), first_row = static_cast<int>(blockIdx.x) * wg::kRows;
  const int begin = lanes.begin(lane), end = lanes.begin(lane + 1);
  if (threadIdx.x < wg::kThreads) {
    wg::give_up_registers<wg::kCopyingRegisters>();
    copy_units<T>(a, lanes, begin, end, first_row, ring);
  } else {
    wg::claim_registers<wg::kMultiplyingRegisters>();
    Multiplying<T, kChunks>{a, f, first_row}.run(lanes, begin, end, ring);
  }
}

template <class T>
cudaError_t launch(const DenseAttention& a, const DenseForward& f, cudaStream_t stream) {
  const int multiprocessors = num_multiprocessors();
  const auto kernel = a.num_nodes <= 192 ? warpgroup_forward_kernel<T, 3> : warpgroup_forward_kernel<T, 4>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Ring::kBytes);
  if (status != cudaSuccess) return status;
  constexpr int kTiles = kMostNodes / wg::kRows;
  wg::Lanes lanes;
  lanes.mask_heads = a.mask_heads;
  lanes.heads_each = a.mask_heads == 1 ? a.heads : 1;
  lanes.entries_each = a.batch * lanes.heads_each;
  const int at_once = multiprocessors / kTiles;
  lanes.lanes = lanes.entries() < at_once ? lanes.entries() : at_once;
  kernel<<<dim3(kTiles, lanes.lanes), wg::kBlockThreads, Ring::kBytes, stream>>>(a, f, lanes);
  return cudaGetLastError();
}

}  // namespace

bool warpgroup_forward_fits(const DenseAttention& a) {
  return a.num_nodes > 128 && a.num_nodes <= kMostNodes && warpgroup_mask_gradient_fits(a);
}

cudaError_t warpgroup_forward(const DenseAttention& a, const DenseForward& f, cudaStream_t stream) {
  return a.type == HalfType::bfloat16 ? launch<__nv_bfloat16>(a, f, stream) : launch<__half>(a, f, stream);
}

}  // namespace topomask
