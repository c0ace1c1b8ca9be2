// The backward pass for q, k and v, linear kind, up to 256 tokens and 64 channels, on warpgroups.
//
// As in dense_attention_backward_block.cuh, a block of threads owns the keys of a batch entry and head,
// queries pass by in tiles, scores are computed transposed, and weights go from one product to the next in
// registers. Each of the two multiplying warpgroups has 128 keys. It contracts the gradients of its dot
// products over them; the two halves of grad_q of a tile are then exchanged through shared memory.
//
// The transposed mask of a tile is copied to where the gradients of its dot products will be: a warp finds
// the mask of 16 keys, packed, in just the bytes of the 16 rows that it writes.
#include "attention/cuda/dense_attention_backward_rows.cuh"
#include "attention/cuda/dense_attention_warpgroup.cuh"
#include "attention/cuda/dense_attention_warpgroup.h"

namespace topomask {

using namespace dense;

namespace {

namespace wg = warpgroup;

constexpr int kKeys = 256, kGroupKeys = kKeys / wg::kMultipliers;
constexpr int kQueries = 64;  // of a tile
using Layout = Tile<wg::kWidth>;
using Mine = Groups<wg::kWidth, wg::kThreads>;
constexpr int kKeyGroups = kKeys / Mine::kRows, kQueryGroups = kQueries / Mine::kRows;
// Copying also computes delta.
constexpr int kCopyingRegisters = 40, kMultiplyingRegisters = 232;
static_assert(kQueries == wg::kWidth, "gradients of dot products have the layout of rows");

// Keys and values of this item and of the next, two tiles of queries, and what belongs to them. Users count
// items and tiles: the slot and the phase of its barriers follow from the number.
struct Memory {
  static constexpr int kKeyBytes = kKeys * Layout::kRowBytes, kQueryBytes = kQueries * Layout::kRowBytes;
  static constexpr int kStageBytes = 2 * kQueryBytes + kKeyBytes;
  static constexpr int kStatistics = 4 * kKeyBytes + 2 * kStageBytes;
  static constexpr int kBarriers = kStatistics + 4 * kQueries * 4;
  static constexpr int kBytes = kBarriers + 8 * 8;
  std::uint32_t base;

  __device__ std::uint32_t k(int number) const { return base + (number & 1) * 2 * kKeyBytes; }
  __device__ std::uint32_t v(int number) const { return k(number) + kKeyBytes; }
  __device__ std::uint32_t q(int step) const { return base + 4 * kKeyBytes + (step & 1) * kStageBytes; }
  __device__ std::uint32_t grad_out(int step) const { return q(step) + kQueryBytes; }
  __device__ std::uint32_t grad_dots(int step) const { return q(step) + 2 * kQueryBytes; }
  __device__ std::uint32_t inverse(int step) const {
    return base + kStatistics + (step & 1) * 2 * kQueries * 4;
  }
  __device__ std::uint32_t delta(int step) const { return inverse(step) + kQueries * 4; }
  __device__ std::uint32_t tile_full(int step) const { return base + kBarriers + (step & 1) * 8; }
  __device__ std::uint32_t tile_empty(int step) const { return tile_full(step) + 16; }
  __device__ std::uint32_t keys_full(int number) const { return tile_full(number) + 32; }
  __device__ std::uint32_t keys_empty(int number) const { return tile_full(number) + 48; }
  __device__ static std::uint32_t phase(int count) { return (count >> 1) & 1; }

  // By all threads of the block, before anything else.
  __device__ void start() const {
    if (threadIdx.x == 0) {
      for (int slot = 0; slot < 2; ++slot) {
        wg::start_barrier(tile_full(slot), wg::kThreads);
        wg::start_barrier(tile_empty(slot), wg::kMultipliers * wg::kThreads);
        wg::start_barrier(keys_full(slot), wg::kThreads);
        wg::start_barrier(keys_empty(slot), wg::kMultipliers * wg::kThreads);
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
  }
};
static_assert(Memory::kBytes <= 227 * 1024, "what a block of threads has on compute capability 9.0");

__device__ float2 read_pair(std::uint32_t address) {
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address) : "memory");
  return x;
}
__device__ void write_float(std::uint32_t address, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}

// An item is a (batch, head) pair; neighbouring blocks of threads share the mask.
struct Place {
  int batch, head;
  __device__ Place(const DenseAttention& a, int number) {
    const int index = static_cast<int>(blockIdx.x) + opaque(number) * static_cast<int>(gridDim.x);
    batch = index % a.batch;
    head = index / a.batch;
  }
  __device__ static bool exists(const DenseAttention& a, int number) {
    return static_cast<int>(blockIdx.x) + number * static_cast<int>(gridDim.x) < a.batch * a.heads;
  }
};

template <class T>
struct Copying {
  const DenseAttention& a;
  const DenseBackward& b;
  Memory memory;

  __device__ void copy_keys(int number, int begin, int end) const {
    const Place from(a, number);
    copy_rows<T, wg::kWidth, wg::kThreads>(memory.k(number),
                                           row_start<T>(a.k, a.k_strides, from.batch, from.head, 0),
                                           a.k_strides.row, begin, end, a.num_nodes, a.d);
    copy_rows<T, wg::kWidth, wg::kThreads>(memory.v(number),
                                           row_start<T>(a.v, a.v_strides, from.batch, from.head, 0),
                                           a.v_strides.row, begin, end, a.num_nodes, a.d_v);
  }
  __device__ void publish_keys(int number) const {
    if (a.relu) {
      map_features<T, wg::kWidth, wg::kThreads, true>(memory.k(number), 0, kKeyGroups, a.d, a.epsilon);
    }
    wg::publish_to_products();
    wg::arrive(memory.keys_full(number));
  }

  __device__ void run() const {
    const int n = a.num_nodes, tiles = (n + kQueries - 1) / kQueries;
    // The next keys are copied with the last tiles: by then, the last item's are no longer used.
    const int first_slice = tiles > 2 ? 2 : tiles - 1, slice = kKeyGroups / (tiles - first_slice);
    copy_keys(0, 0, kKeyGroups);
    finish_issuing_copies();
    wait_for_copies();
    publish_keys(0);

    int step = 0;
#pragma unroll 1
    for (int number = 0; Place::exists(a, number); ++number) {
      const bool more = Place::exists(a, number + 1);
#pragma unroll 1
      for (int tile = 0; tile < tiles; ++tile, ++step) {
        wg::wait(memory.tile_empty(step), memory.phase(step) ^ 1);
        const Place here(a, number);
        const int first = tile * kQueries, valid = n - first;
        copy_mask(here, step, tile);
        copy_rows<T, wg::kWidth, wg::kThreads>(memory.q(step),
                                               row_start<T>(a.q, a.q_strides, here.batch, here.head, first),
                                               a.q_strides.row, 0, kQueryGroups, valid, a.d);
        copy_rows<T, wg::kWidth, wg::kThreads>(
            memory.grad_out(step), row_start<T>(b.grad_out, b.grad_out_strides, here.batch, here.head, first),
            b.grad_out_strides.row, 0, kQueryGroups, valid, a.d_v);
        finish_issuing_copies();

        const Mine mine;
        uint4 out[kQueryGroups];
        {
          const T* from = row_start<T>(b.out, b.out_strides, here.batch, here.head, first + mine.first_row) +
                          mine.chunk * 8;
          const int inside = mine.chunk * 8 < a.d_v ? valid - mine.first_row : 0;
#pragma unroll
          for (int group = 0; group < kQueryGroups; ++group, from += Mine::kRows * b.out_strides.row) {
            out[group] = {0, 0, 0, 0};
            if (group * Mine::kRows < inside) out[group] = __ldg(reinterpret_cast<const uint4*>(from));
          }
        }
        const std::int64_t row = (static_cast<std::int64_t>(here.batch) * a.heads + here.head) * n + first;
        const int i = opaque(static_cast<int>(threadIdx.x));
        float inverse = 0;
        if (i < kQueries && i < valid) inverse = __ldg(b.inverse_normaliser + row + i);

        if (more && tile >= first_slice) {
          if (tile == first_slice) wg::wait(memory.keys_empty(number + 1), memory.phase(number + 1) ^ 1);
          copy_keys(number + 1, (tile - first_slice) * slice, (tile - first_slice + 1) * slice);
        }
        finish_issuing_copies();
        wg::wait_for_copies_but<1>();

        if (a.relu) {
          map_features<T, wg::kWidth, wg::kThreads, true>(memory.q(step), 0, kQueryGroups, a.d, a.epsilon);
        }
#pragma unroll
        for (int group = 0; group < kQueryGroups; ++group) {
          const uint4 x = read_shared(memory.grad_out(step) + mine.offset(group)), y = out[group];
          float sum = dot<T>(x.x, y.x) + dot<T>(x.y, y.y) + (dot<T>(x.z, y.z) + dot<T>(x.w, y.w));
#pragma unroll
          for (int partner = 1; partner < Layout::kChunks; partner *= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, partner);
          }
          if (mine.chunk == 0) {
            const int at = mine.row(group);
            write_float(memory.delta(step) + at * 4, sum);
            if (b.delta != nullptr && at < valid) b.delta[row + at] = sum;
          }
        }
        if (i < kQueries) write_float(memory.inverse(step) + i * 4, inverse * weight_scale<T>(n));
        wg::publish_to_products();
        wg::arrive(memory.tile_full(step));

        if (more && tile == tiles - 1) {
          wait_for_copies();
          publish_keys(number + 1);
        }
      }
    }
  }

  // 64 queries of 16 keys lie side by side in a packed mask.
  __device__ void copy_mask(const Place& here, int step, int tile) const {
    constexpr int kRowBytes = kQueries * 16 * 2;
    if (threadIdx.x >= 32) return;
    const int rows = PackedMask::blocks_per_side(a.num_nodes);
    if (threadIdx.x == 0) wg::expect_bytes(memory.tile_full(step), rows * kRowBytes);
    __syncwarp();
    const int row = opaque(static_cast<int>(threadIdx.x));
    if (row < rows) {
      const PackedMask mask(b.mask_transposed, a.mask_heads == 1 ? 0 : here.head, a.num_nodes);
      wg::copy_bulk(memory.grad_dots(step) + row * kRowBytes, mask.at(row, tile * (kQueries / 16)), kRowBytes,
                    memory.tile_full(step));
    }
  }
};

template <class T>
struct Multiplying {
  using Products = wg::Products<T>;
  static constexpr int kBlocks = kGroupKeys / 64;
  using Gradients = wg::Accumulator[kBlocks];  // of this warpgroup's keys
  using Weights = Pair[kQueries / 16][4];      // of 64 keys, as left operands

  const DenseAttention& a;
  const DenseBackward& b;
  Memory memory;

  // The thread's own place is asked for again wherever it is needed: sums take the registers.
  __device__ static int thread() { return opaque(static_cast<int>(threadIdx.x)) - wg::kThreads; }
  __device__ static int lane() { return thread() & 31; }
  __device__ static int group() { return thread() / wg::kThreads; }
  __device__ static int warp_key(int block) {
    return group() * kGroupKeys + block * 64 + (thread() / 32 & 3) * 16;
  }

  // 64 keys against a tile of queries. Columns of the accumulators are queries: lane t has 2t and 2t+1 of
  // every eight.
  __device__ void score(wg::Accumulator& grad_k, wg::Accumulator& grad_v, int number, int step, int block,
                        bool add) const {
    const int first = (group() * kGroupKeys + block * 64) * Layout::kRowBytes;
    const std::uint64_t q = wg::describe(memory.q(step)), grad_out = wg::describe(memory.grad_out(step));
    wg::Accumulator dots;
    wg::hold(dots);
    wg::begin_products();
    const std::uint64_t k = wg::describe(memory.k(number) + first);
#pragma unroll
    for (int c = 0; c < wg::kWidth / 16; ++c) Products::multiply(dots, k + c * 2, q + c * 2, c > 0);
    wg::finish_issuing_products();
    wg::wait_for_products_but<0>();
    wg::hold(dots);

    // No mask was copied for keys that do not exist.
    Pair m16[kQueries / 16][4] = {};
    if (warp_key(block) < PackedMask::blocks_per_side(a.num_nodes) * 16) {
      const std::uint32_t from = memory.grad_dots(step) + warp_key(block) * Layout::kRowBytes + lane() * 16;
#pragma unroll
      for (int c = 0; c < kQueries / 16; ++c) {
        const uint4 x = read_shared(from + c * 512);
        m16[c][0] = x.x;
        m16[c][1] = x.y;
        m16[c][2] = x.z;
        m16[c][3] = x.w;
      }
    }

    Weights weight;  // M_ij e_ij / D_i
#pragma unroll
    for (int s = 0; s < kQueries / 8; ++s) {
      const float2 inverse = read_pair(memory.inverse(step) + s * 32 + (lane() & 3) * 8);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int part = (s % 2) * 2 + half;
        const float2 entry = Half<T>::unpack(m16[s / 2][part]);
        weight[s / 2][part] =
            pack<T>(entry.x * inverse.x * dots[s][half * 2], entry.y * inverse.y * dots[s][half * 2 + 1]);
      }
    }
    // Both products at once with the first would not fit the registers.
    wg::Accumulator grad_weight;
    wg::hold(grad_weight);
    wg::begin_products();
    const std::uint64_t v = wg::describe(memory.v(number) + first);
#pragma unroll
    for (int c = 0; c < wg::kWidth / 16; ++c) {
      Products::multiply(grad_weight, v + c * 2, grad_out + c * 2, c > 0);
    }
    wg::finish_issuing_products();
#pragma unroll
    for (int c = 0; c < kQueries / 16; ++c) {
      Products::template multiply<true>(grad_v, weight[c], grad_out + c * 128, add || c > 0);
    }
    wg::finish_issuing_products();

    wg::wait_for_products_but<1>();
    wg::hold(grad_weight);
    Weights grad_dot;
#pragma unroll
    for (int s = 0; s < kQueries / 8; ++s) {
      const float2 inverse = read_pair(memory.inverse(step) + s * 32 + (lane() & 3) * 8);
      const float2 delta = read_pair(memory.delta(step) + s * 32 + (lane() & 3) * 8);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int part = (s % 2) * 2 + half;
        const float2 entry = Half<T>::unpack(m16[s / 2][part]);
        grad_dot[s / 2][part] = pack<T>(entry.x * inverse.x * (grad_weight[s][half * 2] - delta.x),
                                        entry.y * inverse.y * (grad_weight[s][half * 2 + 1] - delta.y));
      }
    }
    __syncwarp();  // the mask has been read by all lanes
#pragma unroll
    for (int c = 0; c < kQueries / 16; ++c) {
      store_block<kQueries>(grad_dot[c], memory.grad_dots(step), warp_key(block), c * 2, lane());
    }
    wg::begin_products();
#pragma unroll
    for (int c = 0; c < kQueries / 16; ++c) {
      Products::template multiply<true>(grad_k, grad_dot[c], q + c * 128, add || c > 0);
    }
    wg::finish_issuing_products();
  }

  // grad_q of a tile; a warpgroup writes half of its columns.
  __device__ void finish_queries(int number, int step, int tile) const {
    wg::publish_to_products();
    wg::meet<wg::kThreads>(1 + group());
    wg::Accumulator sum;
    wg::hold(sum);
    wg::begin_products();
    {
      const int first = group() * kGroupKeys * Layout::kRowBytes;
      const std::uint64_t dots = wg::describe(memory.grad_dots(step) + first),
                          k = wg::describe(memory.k(number) + first);
#pragma unroll
      for (int c = 0; c < kGroupKeys / 16; ++c) {
        Products::multiply_transposed(sum, dots + c * 128, k + c * 128, c > 0);
      }
    }
    wg::finish_issuing_products();
    wg::wait_for_products_but<0>();
    wg::hold(sum);

    // What the other warpgroup writes goes where this one's gradients of dot products were.
    wg::meet<wg::kThreads>(1 + group());
    const std::uint32_t exchange =
        memory.grad_dots(step) + (thread() & (wg::kThreads - 1)) * 16;  // + group * kGroupKeys rows
    const int upper = group();
    float mine[4][4];
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const std::uint32_t to = exchange + upper * kGroupKeys * Layout::kRowBytes + s * wg::kThreads * 16;
      float other[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float left = sum[s][e], right = sum[4 + s][e];
        mine[s][e] = upper ? right : left;
        other[e] = upper ? left : right;
      }
      const uint4 x = {__float_as_uint(other[0]), __float_as_uint(other[1]), __float_as_uint(other[2]),
                       __float_as_uint(other[3])};
      write_shared(to, x);
    }
    wg::meet<wg::kMultipliers * wg::kThreads>(1 + wg::kMultipliers);
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint4 x =
          read_shared(exchange + (1 - upper) * kGroupKeys * Layout::kRowBytes + s * wg::kThreads * 16);
      mine[s][0] += __uint_as_float(x.x);
      mine[s][1] += __uint_as_float(x.y);
      mine[s][2] += __uint_as_float(x.z);
      mine[s][3] += __uint_as_float(x.w);
    }

    const Place here(a, number);
    const int row = (thread() / 32 & 3) * 16, first = tile * kQueries + row, valid = a.num_nodes - first;
    const float factor = 1 / weight_scale<T>(a.num_nodes);
    T* to = row_start<T>(b.grad_q, b.grad_q_strides, here.batch, here.head, first);
    if (a.relu) {
      store_rows<T, wg::kWidth, true>(mine, factor, factor, to, b.grad_q_strides.row, upper * 32, valid, a.d,
                                      lane(), memory.q(step), row, a.epsilon);
    } else {
      store_rows<T, wg::kWidth, false>(mine, factor, factor, to, b.grad_q_strides.row, upper * 32, valid, a.d,
                                       lane());
    }
    wg::publish_to_products();  // the next mask is copied over what was exchanged
    wg::arrive(memory.tile_empty(step));
  }

  __device__ void finish_keys(const Gradients& grad_k, const Gradients& grad_v, int number) const {
    const Place here(a, number);
    const float factor = 1 / weight_scale<T>(a.num_nodes);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const int key = warp_key(block), valid = a.num_nodes - key;
      store_rows<T, wg::kWidth, false>(grad_v[block], factor, factor,
                                       row_start<T>(b.grad_v, b.grad_v_strides, here.batch, here.head, key),
                                       b.grad_v_strides.row, 0, valid, a.d_v, lane());
      T* to = row_start<T>(b.grad_k, b.grad_k_strides, here.batch, here.head, key);
      if (a.relu) {
        store_rows<T, wg::kWidth, true>(grad_k[block], factor, factor, to, b.grad_k_strides.row, 0, valid,
                                        a.d, lane(), memory.k(number), key, a.epsilon);
      } else {
        store_rows<T, wg::kWidth, false>(grad_k[block], factor, factor, to, b.grad_k_strides.row, 0, valid,
                                         a.d, lane());
      }
    }
    wg::arrive(memory.keys_empty(number));
  }

  __device__ void run() const {
    int step = 0;
#pragma unroll 1
    for (int number = 0; Place::exists(a, number); ++number) {
      Gradients grad_k, grad_v;
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        wg::hold(grad_k[block]);
        wg::hold(grad_v[block]);
      }
      wg::wait(memory.keys_full(number), memory.phase(number));
#pragma unroll 1
      for (int tile = 0; tile * kQueries < a.num_nodes; ++tile, ++step) {
        wg::wait(memory.tile_full(step), memory.phase(step));
        score(grad_k[0], grad_v[0], number, step, 0, tile > 0);
        score(grad_k[1], grad_v[1], number, step, 1, tile > 0);
        finish_queries(number, step, tile);
      }
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        wg::hold(grad_k[block]);
        wg::hold(grad_v[block]);
      }
      finish_keys(grad_k, grad_v, number);
    }
  }
};

template <class T>
__global__ __launch_bounds__(wg::kBlockThreads,
                             1) void warpgroup_backward_kernel(const __grid_constant__ DenseAttention a,
                                                               const __grid_constant__ DenseBackward b) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const Memory memory{shared_address(shared)};
  memory.start();
  if (threadIdx.x < wg::kThreads) {
    wg::give_up_registers<kCopyingRegisters>();
    Copying<T>{a, b, memory}.run();
  } else {
    wg::claim_registers<kMultiplyingRegisters>();
    Multiplying<T>{a, b, memory}.run();
  }
}

}  // namespace

bool warpgroup_backward_fits(const DenseAttention& a) {
  return a.num_nodes <= kKeys && warpgroup_mask_gradient_fits(a);
}

cudaError_t warpgroup_backward(const DenseAttention& a, const DenseBackward& b, cudaStream_t stream) {
  int device = 0, multiprocessors = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (status != cudaSuccess) return status;
  const auto kernel = a.type == HalfType::bfloat16 ? warpgroup_backward_kernel<__nv_bfloat16>
                                                   : warpgroup_backward_kernel<__half>;
  status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Memory::kBytes);
  if (status != cudaSuccess) return status;
  const std::int64_t items = static_cast<std::int64_t>(a.batch) * a.heads;
  const auto blocks = static_cast<unsigned>(items < multiprocessors ? items : multiprocessors);
  kernel<<<blocks, wg::kBlockThreads, Memory::kBytes, stream>>>(a, b);
  return cudaGetLastError();
}

}  // namespace topomask
