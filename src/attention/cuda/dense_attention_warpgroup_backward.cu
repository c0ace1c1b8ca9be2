// The backward pass for q, k and v, linear kind, up to 256 tokens and 64 channels, on warpgroups.
//
// As in dense_attention_backward_block.cuh, a block of threads owns the keys of a batch entry and head,
// queries pass by in tiles, scores are computed transposed, and weights go from one product to the next in
// registers. Each of the two multiplying warpgroups has 128 keys. It contracts the gradients of its dot
// products over them; the two halves of grad_q of a tile are then exchanged through shared memory.
//
// The mask is read where it is used, from the second-level cache: it is the same for many items. Copies of a
// tile are issued before the last one's are turned into features, so that memory has a tile's time to answer.
#include "attention/cuda/dense_attention_backward_rows.cuh"
#include "attention/cuda/dense_attention_warpgroup.cuh"
#include "attention/cuda/dense_attention_warpgroup.h"
#include "core/cuda/grid.h"
#include "core/cuda/lanes.cuh"

namespace topomask {

using namespace dense;

namespace {

namespace wg = warpgroup;

constexpr int kKeys = 256, kGroupKeys = kKeys / wg::kMultipliers;
constexpr int kQueries = 64;  // of a tile
using Layout = Tile<wg::kWidth>;
using Mine = Groups<wg::kWidth, wg::kThreads>;
constexpr int kKeyGroups = kKeys / Mine::kRows, kQueryGroups = kQueries / Mine::kRows;
constexpr int kStages = 3;  // tiles of queries: multiplied with, published, and on their way
static_assert(kQueries == wg::kWidth, "gradients of dot products have the layout of rows");

// A place in the ring of tiles.
struct Stage {
  int slot = 0;
  std::uint32_t phase = 0;
  __device__ void advance() {
    if (++slot == kStages) {
      slot = 0;
      phase ^= 1;
    }
  }
};

// Keys and values of this item and of the next, gradients of dot products, tiles of queries and what belongs
// to them. Rows of `out` serve those alone that copied them.
struct Memory {
  static constexpr int kKeyBytes = kKeys * Layout::kRowBytes, kQueryBytes = kQueries * Layout::kRowBytes;
  static constexpr int kQueryRows = 5 * kKeyBytes;
  static constexpr int kOut = kQueryRows + kStages * 2 * kQueryBytes;
  static constexpr int kStatistics = kOut + 2 * kQueryBytes;
  static constexpr int kBarriers = kStatistics + kStages * 3 * kQueries * 4;
  static constexpr int kBytes = kBarriers + (2 * kStages + 4) * 8;
  std::uint32_t base;

  __device__ std::uint32_t k(int number) const { return base + (number & 1) * 2 * kKeyBytes; }
  __device__ std::uint32_t v(int number) const { return k(number) + kKeyBytes; }
  __device__ std::uint32_t grad_dots() const { return base + 4 * kKeyBytes; }
  __device__ std::uint32_t q(int slot) const { return base + kQueryRows + slot * 2 * kQueryBytes; }
  __device__ std::uint32_t grad_out(int slot) const { return q(slot) + kQueryBytes; }
  __device__ std::uint32_t out(int step) const { return base + kOut + (step & 1) * kQueryBytes; }
  __device__ std::uint32_t inverse(int slot) const { return base + kStatistics + slot * 3 * kQueries * 4; }
  __device__ std::uint32_t delta(int slot) const { return inverse(slot) + kQueries * 4; }
  __device__ std::uint32_t row_scale(int slot) const { return delta(slot) + kQueries * 4; }  // kScalesRows
  __device__ std::uint32_t tile_full(int slot) const { return base + kBarriers + slot * 8; }
  __device__ std::uint32_t tile_empty(int slot) const { return tile_full(slot) + kStages * 8; }
  __device__ std::uint32_t keys_full(int number) const {
    return base + kBarriers + (2 * kStages + (number & 1)) * 8;
  }
  __device__ std::uint32_t keys_empty(int number) const { return keys_full(number) + 16; }
  __device__ static std::uint32_t keys_phase(int number) { return (number >> 1) & 1; }

  // By all threads of the block, before anything else.
  __device__ void start() const {
    if (threadIdx.x == 0) {
      for (int slot = 0; slot < kStages; ++slot) {
        wg::start_barrier(tile_full(slot), wg::kThreads);
        wg::start_barrier(tile_empty(slot), wg::kMultipliers * wg::kThreads);
      }
      for (int slot = 0; slot < 2; ++slot) {
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

template <class T>
struct Copying {
  const DenseAttention& a;
  const DenseBackward& b;
  Memory memory;

  __device__ void copy_keys(int number) const {
    const wg::Place from(a, number);
#pragma unroll 1
    for (int group = 0; group < kKeyGroups; group += 4) {
      copy_rows<T, wg::kWidth, wg::kThreads>(
          memory.k(number) + group * Mine::kRows * Layout::kRowBytes,
          row_start<T>(a.k, a.k_strides, from.batch, from.head, group * Mine::kRows), a.k_strides.row, 0, 4,
          a.num_nodes - group * Mine::kRows, a.d);
      copy_rows<T, wg::kWidth, wg::kThreads>(
          memory.v(number) + group * Mine::kRows * Layout::kRowBytes,
          row_start<T>(a.v, a.v_strides, from.batch, from.head, group * Mine::kRows), a.v_strides.row, 0, 4,
          a.num_nodes - group * Mine::kRows, a.d_v);
    }
  }
  __device__ void publish_keys(int number) const {
    if (a.rule.is_relu()) {
#pragma unroll 1
      for (int group = 0; group < kKeyGroups; group += 4) {
        map_features<T, wg::kWidth, wg::kThreads, true>(
            memory.k(number) + group * Mine::kRows * Layout::kRowBytes, 0, 4, a.d, a.rule.epsilon);
      }
    }
    wg::publish_to_products();
    wg::arrive(memory.keys_full(number));
  }

  __device__ void copy_queries(int number, int tile, int step, const Stage& stage) const {
    wg::wait(memory.tile_empty(stage.slot), stage.phase ^ 1);
    const wg::Place from(a, number);
    const int first = tile * kQueries, valid = a.num_nodes - first;
    const auto copy = [&](std::uint32_t to, const void* x, const RowStrides& strides, int channels) {
      copy_rows<T, wg::kWidth, wg::kThreads>(to, row_start<T>(x, strides, from.batch, from.head, first),
                                             strides.row, 0, kQueryGroups, valid, channels);
    };
    copy(memory.q(stage.slot), a.q, a.q_strides, a.d);
    copy(memory.grad_out(stage.slot), b.grad_out, b.grad_out_strides, a.d_v);
    copy(memory.out(step), b.out, b.out_strides, a.d_v);
    const Mine mine;
    if (mine.chunk == 0) {
      const std::int64_t row = (static_cast<std::int64_t>(from.batch) * a.heads + from.head) * a.num_nodes;
#pragma unroll
      for (int group = 0; group < kQueryGroups; ++group) {
        const int i = mine.row(group);
        copy_word(memory.inverse(stage.slot) + i * 4,
                  b.inverse_normaliser + row + (i < valid ? first + i : 0), i < valid);
      }
    }
  }

  // What a thread does to the chunks that it copied itself: features of q and their scale, and
  // delta_i = <grad_out_i, out_i>.
  __device__ void publish_queries(int number, int tile, int step, const Stage& stage) const {
    if (a.rule.is_relu()) {
      map_features<T, wg::kWidth, wg::kThreads, !kScalesRows<T>>(memory.q(stage.slot), 0, kQueryGroups, a.d,
                                                                 a.rule.epsilon);
    }
    const Mine mine;
    float sum[kQueryGroups];
#pragma unroll
    for (int group = 0; group < kQueryGroups; ++group) {
      const uint4 x = read_shared(memory.grad_out(stage.slot) + mine.offset(group));
      const uint4 y = read_shared(memory.out(step) + mine.offset(group));
      sum[group] = dot<T>(x.x, y.x) + dot<T>(x.y, y.y) + (dot<T>(x.z, y.z) + dot<T>(x.w, y.w));
    }
#pragma unroll
    for (float& x : sum) x = sum_lanes<Layout::kChunks>(x);
    if (mine.chunk == 0) {
      const wg::Place here(a, number);
      const int first = tile * kQueries;
      const std::int64_t row = (static_cast<std::int64_t>(here.batch) * a.heads + here.head) * a.num_nodes;
#pragma unroll
      for (int group = 0; group < kQueryGroups; ++group) {
        const int i = mine.row(group);
        wg::write_float(memory.delta(stage.slot) + i * 4, sum[group]);
        if (b.delta != nullptr && first + i < a.num_nodes) b.delta[row + first + i] = sum[group];
      }
    }
    if constexpr (kScalesRows<T>) scale_queries(stage.slot);
    wg::publish_to_products();
    wg::arrive(memory.tile_full(stage.slot));
  }

  // One row at a time: few registers are left to those who copy.
  __device__ void scale_queries(int slot) const {
    const Mine mine;
#pragma unroll 1
    for (int group = 0; group < kQueryGroups; ++group) {
      const std::uint32_t at = memory.q(slot) + mine.offset(group), row = mine.row(group) * 4;
      const uint4 q = read_shared(at), grad = read_shared(memory.grad_out(slot) + mine.offset(group));
      float inverse = 0;
      if (mine.chunk == 0)
        inverse = wg::read_float(memory.inverse(slot) + row) * weight_scale<T>(a.num_nodes);
      const float scale = backward_row_scale(max_lanes<Layout::kChunks>(largest_of<T>(q)),
                                             max_lanes<Layout::kChunks>(largest_of<T>(grad)),
                                             __shfl_sync(0xffffffffu, inverse, 0, Layout::kChunks));
      write_shared(at, scaled<T>(q, scale));
      if (mine.chunk == 0) {
        wg::write_float(memory.inverse(slot) + row, inverse / scale);
        wg::write_float(memory.row_scale(slot) + row, scale);
      }
    }
  }

  __device__ void run() const {
    const int tiles = (a.num_nodes + kQueries - 1) / kQueries;
    copy_keys(0);
    finish_issuing_copies();
    Stage stage;
    copy_queries(0, 0, 0, stage);
    finish_issuing_copies();
    wg::wait_for_copies_but<1>();
    publish_keys(0);
    finish_issuing_copies();  // an empty group, where later rounds copy keys

    int step = 0;
#pragma unroll 1
    for (int number = 0; wg::Place::exists(a, number); ++number) {
#pragma unroll 1
      for (int tile = 0; tile < tiles; ++tile, ++step) {
        const bool last = tile == tiles - 1;
        Stage next = stage;
        next.advance();
        if (!last) {
          copy_queries(number, tile + 1, step + 1, next);
        } else if (wg::Place::exists(a, number + 1)) {
          copy_queries(number + 1, 0, step + 1, next);
        }
        finish_issuing_copies();
        wg::wait_for_copies_but<2>();  // this tile has come, and keys that were asked for two rounds ago
        publish_queries(number, tile, step, stage);
        stage = next;

        if (wg::Place::exists(a, number + 1)) {
          // The slot held the item before this one, whose last products are over by the second tile.
          if (tile == (tiles > 1 ? 1 : 0)) {
            wg::wait(memory.keys_empty(number + 1), memory.keys_phase(number + 1) ^ 1);
            copy_keys(number + 1);
          }
          finish_issuing_copies();
          if (last) {
            if (tiles < 4) wait_for_copies();
            publish_keys(number + 1);
          }
        } else {
          finish_issuing_copies();
        }
      }
    }
  }
};

template <class T>
struct Multiplying {
  using Products = wg::Products<T>;
  static constexpr int kBlocks = kGroupKeys / 64;
  // Barriers: of a warpgroup alone, of both, and one that the other passes on to a warpgroup.
  static constexpr int kGroupMeets = 1, kExchangeWritten = 3, kExchangeRead = 4;
  using Gradients = wg::Accumulator[kBlocks];  // of this warpgroup's keys
  using Weights = Pair[kQueries / 16][4];      // of 64 keys, as left operands
  using Mask = Pair[kQueries / 16][4];

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

  __device__ static int first_row(int block) {
    return (group() * kGroupKeys + block * 64) * Layout::kRowBytes;
  }

  // The dot products of 64 keys and a tile of queries, which the products before them need not wait for.
  __device__ void start_dots(wg::Accumulator& dots, int number, int slot, int block) const {
    const std::uint64_t k = wg::describe(memory.k(number) + first_row(block)),
                        q = wg::describe(memory.q(slot));
#pragma unroll
    for (int c = 0; c < wg::kWidth / 16; ++c) Products::multiply(dots, k + c * 2, q + c * 2, c > 0);
    wg::finish_issuing_products();
  }
  __device__ void load_mask(Mask& m16, int number, int tile, int block) const {
    const int row = warp_key(block) / 16;
    const bool exists = row < PackedMask::blocks_per_side(a.num_nodes);
    const PackedMask mask(b.mask_transposed, a.mask_heads == 1 ? 0 : wg::Place(a, number).head, a.num_nodes);
    const uint4* from = mask.at(exists ? row : 0, tile * (kQueries / 16)) + lane();
#pragma unroll
    for (int c = 0; c < kQueries / 16; ++c) {
      PackedMask::load<true>(m16[c], from + c * 32);
    }
    if (!exists) {
#pragma unroll
      for (auto& block16 : m16) {
#pragma unroll
        for (Pair& x : block16) x = 0;
      }
    }
  }

  // 64 keys against a tile of queries, whose dot products are on their way. Columns of the accumulators are
  // queries: lane t has 2t and 2t+1 of every eight.
  template <int kBlock>
  __device__ void score(wg::Accumulator& dots, Mask& m16, wg::Accumulator& grad_k, wg::Accumulator& grad_v,
                        int number, int tile, int slot, bool wait_for_reader) const {
    const std::uint64_t q = wg::describe(memory.q(slot)), grad_out = wg::describe(memory.grad_out(slot));
    const bool add = tile > 0;
    wg::wait_for_products_but<0>();
    wg::hold(dots);
    Weights weight;  // M_ij e_ij / D_i
#pragma unroll
    for (int s = 0; s < kQueries / 8; ++s) {
      const float2 inverse = read_pair(memory.inverse(slot) + s * 32 + (lane() & 3) * 8);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int part = (s % 2) * 2 + half;
        const float2 entry = Half<T>::unpack(m16[s / 2][part]);
        weight[s / 2][part] =
            pack<T>(entry.x * inverse.x * dots[s][half * 2], entry.y * inverse.y * dots[s][half * 2 + 1]);
      }
    }
    wg::Accumulator grad_weight;
    wg::renew(grad_weight);
    wg::begin_products();
    {
      const std::uint64_t v = wg::describe(memory.v(number) + first_row(kBlock));
#pragma unroll
      for (int c = 0; c < wg::kWidth / 16; ++c) {
        Products::multiply(grad_weight, v + c * 2, grad_out + c * 2, c > 0);
      }
      wg::finish_issuing_products();
    }
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
      const float2 inverse = read_pair(memory.inverse(slot) + s * 32 + (lane() & 3) * 8);
      const float2 delta = read_pair(memory.delta(slot) + s * 32 + (lane() & 3) * 8);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int part = (s % 2) * 2 + half;
        const float2 entry = Half<T>::unpack(m16[s / 2][part]);
        grad_dot[s / 2][part] = pack<T>(entry.x * inverse.x * (grad_weight[s][half * 2] - delta.x),
                                        entry.y * inverse.y * (grad_weight[s][half * 2 + 1] - delta.y));
      }
    }
    if constexpr (kBlock + 1 < kBlocks) wg::renew(dots);
    wg::begin_products();
#pragma unroll
    for (int c = 0; c < kQueries / 16; ++c) {
      Products::template multiply<true>(grad_k, grad_dot[c], q + c * 128, add || c > 0);
    }
    wg::finish_issuing_products();
    if constexpr (kBlock + 1 < kBlocks) {
      start_dots(dots, number, slot, kBlock + 1);
      load_mask(m16, number, tile, kBlock + 1);
    }
    if (wait_for_reader) wg::meet<wg::kMultipliers * wg::kThreads>(kExchangeRead + group());
#pragma unroll
    for (int c = 0; c < kQueries / 16; ++c) {
      store_block<kQueries>(grad_dot[c], memory.grad_dots(), warp_key(kBlock), c * 2, lane());
    }
  }

  // grad_q of a tile; a warpgroup writes half of its columns. Meanwhile the first dot products of the next
  // tile run; after an item's last tile there are none, and nothing reads what is computed then.
  __device__ void finish_queries(wg::Accumulator& dots, Mask& m16, int number, int tile, int slot,
                                 const Stage& next) const {
    const bool more = (tile + 1) * kQueries < a.num_nodes;
    if (more) wg::wait(memory.tile_full(next.slot), next.phase);
    wg::publish_to_products();
    wg::meet<wg::kThreads>(kGroupMeets + group());
    wg::wait_for_products_but<0>();  // frees registers for two more accumulators
    wg::Accumulator sum;
    wg::renew(sum);
    wg::renew(dots);
    wg::begin_products();
    {
      const int first = group() * kGroupKeys * Layout::kRowBytes;
      const std::uint64_t dots = wg::describe(memory.grad_dots() + first),
                          k = wg::describe(memory.k(number) + first);
#pragma unroll
      for (int c = 0; c < kGroupKeys / 16; ++c) {
        Products::multiply_transposed(sum, dots + c * 128, k + c * 128, c > 0);
      }
    }
    wg::finish_issuing_products();
    start_dots(dots, number, next.slot, 0);
    wg::wait_for_products_but<1>();
    wg::hold(sum);

    // What the other warpgroup writes goes where this one's gradients of dot products were.
    wg::meet<wg::kThreads>(kGroupMeets + group());
    const std::uint32_t exchange =
        memory.grad_dots() + (thread() & (wg::kThreads - 1)) * 16;  // + group * kGroupKeys rows
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
    wg::meet<wg::kMultipliers * wg::kThreads>(kExchangeWritten);
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint4 x =
          read_shared(exchange + (1 - upper) * kGroupKeys * Layout::kRowBytes + s * wg::kThreads * 16);
      mine[s][0] += __uint_as_float(x.x);
      mine[s][1] += __uint_as_float(x.y);
      mine[s][2] += __uint_as_float(x.z);
      mine[s][3] += __uint_as_float(x.w);
    }
    load_mask(m16, number, more ? tile + 1 : 0, 0);
    wg::announce<wg::kMultipliers * wg::kThreads>(kExchangeRead + 1 - upper);

    const wg::Place here(a, number);
    const int row = (thread() / 32 & 3) * 16, first = tile * kQueries + row, valid = a.num_nodes - first;
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      factor[half] = 1 / weight_scale<T>(a.num_nodes);
      if (kScalesRows<T>)
        factor[half] *= wg::read_float(memory.row_scale(slot) + (row + (lane() >> 2) + half * 8) * 4);
    }
    T* to = row_start<T>(b.grad_q, b.grad_q_strides, here.batch, here.head, first);
    const auto store = [&](const auto& through) {
      store_rows<T>(mine, factor[0], factor[1], to, b.grad_q_strides.row, upper * 32, valid, a.d, lane(),
                    through);
    };
    if (!a.rule.is_relu()) {
      store(AsTheyAre());
    } else if constexpr (kScalesRows<T>) {
      store(ThroughInputs<T>{row_start<T>(a.q, a.q_strides, here.batch, here.head, first), a.q_strides.row});
    } else {
      store(ThroughMarkedFeatures<T, wg::kWidth>{memory.q(slot), row, ReluFeatures<T>(a.rule.epsilon)});
    }
    wg::arrive(memory.tile_empty(slot));
  }

  __device__ void finish_keys(const Gradients& grad_k, const Gradients& grad_v, int number) const {
    const wg::Place here(a, number);
    const float factor = 1 / weight_scale<T>(a.num_nodes);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const int key = warp_key(block), valid = a.num_nodes - key;
      store_rows<T>(grad_v[block], factor, factor,
                    row_start<T>(b.grad_v, b.grad_v_strides, here.batch, here.head, key),
                    b.grad_v_strides.row, 0, valid, a.d_v, lane());
      T* to = row_start<T>(b.grad_k, b.grad_k_strides, here.batch, here.head, key);
      if (a.rule.is_relu()) {
        store_rows<T>(
            grad_k[block], factor, factor, to, b.grad_k_strides.row, 0, valid, a.d, lane(),
            ThroughMarkedFeatures<T, wg::kWidth>{memory.k(number), key, ReluFeatures<T>(a.rule.epsilon)});
      } else {
        store_rows<T>(grad_k[block], factor, factor, to, b.grad_k_strides.row, 0, valid, a.d, lane());
      }
    }
    wg::arrive(memory.keys_empty(number));
  }

  __device__ void run() const {
    Stage stage;
#pragma unroll 1
    for (int number = 0; wg::Place::exists(a, number); ++number) {
      Gradients grad_k, grad_v;
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        wg::hold(grad_k[block]);
        wg::hold(grad_v[block]);
      }
      wg::wait(memory.keys_full(number), memory.keys_phase(number));
      wg::wait(memory.tile_full(stage.slot), stage.phase);
      wg::Accumulator dots;
      wg::renew(dots);
      wg::begin_products();
      start_dots(dots, number, stage.slot, 0);
      Mask m16;
      load_mask(m16, number, 0, 0);
#pragma unroll 1
      for (int tile = 0; tile * kQueries < a.num_nodes; ++tile) {
        Stage next = stage;
        next.advance();
        score<0>(dots, m16, grad_k[0], grad_v[0], number, tile, stage.slot, number + tile > 0);
        score<1>(dots, m16, grad_k[1], grad_v[1], number, tile, stage.slot, false);
        finish_queries(dots, m16, number, tile, stage.slot, next);
        stage = next;
      }
      wg::wait_for_products_but<0>();
      wg::hold(dots);
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
    wg::give_up_registers<wg::kCopyingRegisters>();
    Copying<T>{a, b, memory}.run();
  } else {
    wg::claim_registers<wg::kMultiplyingRegisters>();
    Multiplying<T>{a, b, memory}.run();
  }
}

}  // namespace

bool warpgroup_backward_fits(const DenseAttention& a) {
  // Every item costs as much as 256 keys: with very few, the other kernel is faster.
  return a.num_nodes >= 64 && a.num_nodes <= kKeys && warpgroup_mask_gradient_fits(a);
}

cudaError_t warpgroup_backward(const DenseAttention& a, const DenseBackward& b, cudaStream_t stream) {
  const int multiprocessors = num_multiprocessors();
  const auto kernel = a.type == HalfType::bfloat16 ? warpgroup_backward_kernel<__nv_bfloat16>
                                                   : warpgroup_backward_kernel<__half>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Memory::kBytes);
  if (status != cudaSuccess) return status;
  const std::int64_t items = static_cast<std::int64_t>(a.batch) * a.heads;
  const auto blocks = static_cast<unsigned>(items < multiprocessors ? items : multiprocessors);
  kernel<<<blocks, wg::kBlockThreads, Memory::kBytes, stream>>>(a, b);
  return cudaGetLastError();
}

}  // namespace topomask
