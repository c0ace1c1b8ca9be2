// Tiles of rows in shared memory: how they are copied, turned into features, read as fragments, and written
// back.
#pragma once

#include <cstdint>

#include "attention/cuda/dense_attention.h"
#include "attention/cuda/dense_attention_fragments.cuh"

namespace topomask::dense {

// Shared memory of the greediest kernel, the backward pass; it asserts so.
constexpr int kMostSharedBytes = 225 * 1024;

// A row-major tile of kWidth 16-bit columns in shared memory. 16-byte chunks are permuted within a row so
// that eight rows of one column of chunks lie in eight different banks.
template <int kWidth>
struct Tile {
  static constexpr int kChunks = kWidth / 8;
  static constexpr int kRowBytes = kWidth * 2;
  static_assert(kChunks == 4 || kChunks == 8 || kChunks == 16);

  __device__ static std::uint32_t offset(int row, int chunk) {
    const int key = kChunks == 4 ? (row >> 1) & 3 : row & 7;
    return row * kRowBytes + ((chunk ^ key) << 4);
  }
  // Where this lane points ldmatrix within a 16 x 16 block: blocks whose rows are rows of the left operand
  // or, read transposed, the contracted index of the right one; and the other way round.
  __device__ static std::uint32_t lane_by_row(int lane) { return offset(lane & 15, lane >> 4); }
  __device__ static std::uint32_t lane_by_column(int lane) {
    return offset((lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1);
  }
  // The block at `row`, a multiple of 8, and `chunk`, an even number: permuting is an exclusive or, so it
  // commutes with moving by whole blocks.
  __device__ static std::uint32_t at(std::uint32_t tile, std::uint32_t lane_offset, int row, int chunk) {
    return tile + row * kRowBytes + (lane_offset ^ (chunk << 4));
  }
};

// Writes a left operand as the 16 x 16 block at (row, chunk) of a tile.
template <int kWidth>
__device__ void store_block(const Pair (&x)[4], std::uint32_t tile, int row, int chunk, int lane) {
#if __CUDA_ARCH__ >= 900
  const std::uint32_t address = Tile<kWidth>::at(tile, Tile<kWidth>::lane_by_row(lane), row, chunk);
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(x[0]),
               "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
#else
  for (int part = 0; part < 4; ++part) {
    const std::uint32_t address =
        tile + Tile<kWidth>::offset(row + (part & 1) * 8 + (lane >> 2), chunk + (part >> 1)) + (lane & 3) * 4;
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(x[part]) : "memory");
  }
#endif
}

__device__ inline uint4 read_shared(std::uint32_t address) {
  uint4 x;
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(address)
               : "memory");
  return x;
}

__device__ inline void write_shared(std::uint32_t address, const uint4& x) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
               : "memory");
}

// Asynchronous copies. Where `valid` is false, zeros are written and nothing is read.
__device__ inline void copy_chunk(std::uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void copy_word(std::uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(valid ? 4 : 0)
               : "memory");
}
__device__ inline void finish_issuing_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group 0;" ::: "memory");
}

// How threads share the chunks of a tile: in groups of rows, one chunk per thread, always the same ones.
template <int kWidth, int kThreads>
struct Groups {
  static constexpr int kRows = kThreads / Tile<kWidth>::kChunks;
  int first_row, chunk;
  __device__ Groups() {
    const int thread = opaque(static_cast<int>(threadIdx.x));
    first_row = thread / Tile<kWidth>::kChunks;
    chunk = thread % Tile<kWidth>::kChunks;
  }
  __device__ int row(int group) const { return group * kRows + first_row; }
  __device__ std::uint32_t offset(int group) const { return Tile<kWidth>::offset(row(group), chunk); }
};

// Copies groups [begin, end) of rows into a tile; rows from `valid` on and channels from `channels` on become
// zero.
template <class T, int kWidth, int kThreads>
__device__ void copy_rows(std::uint32_t tile, const T* rows, std::int64_t stride, int begin, int end,
                          int valid, int channels) {
  const Groups<kWidth, kThreads> mine;
  const T* from = rows + mine.row(begin) * stride + mine.chunk * 8;
  // No row is inside a column of padding.
  const int inside = mine.chunk * 8 < channels ? valid - mine.first_row : 0;
#pragma unroll
  for (int group = begin; group < end; ++group, from += mine.kRows * stride) {
    copy_chunk(tile + mine.offset(group), from, group * mine.kRows < inside);
  }
}

// Turns what the same thread has copied into features, marked ones for the backward pass: no barrier is
// needed in between.
template <class T, int kWidth, int kThreads, bool kMarked>
__device__ void map_features(std::uint32_t tile, int begin, int end, int channels, float epsilon) {
  const Groups<kWidth, kThreads> mine;
  if (mine.chunk * 8 >= channels) return;  // padding must stay zero, not become epsilon
  const ReluFeatures<T> features(epsilon);
#pragma unroll
  for (int group = begin; group < end; ++group) {
    const std::uint32_t address = tile + mine.offset(group);
    const uint4 x = read_shared(address);
    const auto map = [&](Pair p) { return kMarked ? features.marked(p) : features(p); };
    write_shared(address, {map(x.x), map(x.y), map(x.z), map(x.w)});
  }
}

// Four lanes of a row hold one pair each of four 8-column accumulators; afterwards lane t holds all of the
// t-th.
__device__ inline uint4 gather_row(Pair x0, Pair x1, Pair x2, Pair x3, int lane) {
  const bool odd = lane & 1, high = lane & 2;
  const auto swap = [](Pair& x, Pair& y, bool first, int partner) {
    const Pair received = __shfl_xor_sync(0xffffffffu, first ? x : y, partner);
    x = first ? received : x;
    y = first ? y : received;
  };
  swap(x0, x1, odd, 1);
  swap(x2, x3, odd, 1);
  swap(x0, x2, high, 2);
  swap(x1, x3, high, 2);
  return {x0, x1, x2, x3};
}

// What becomes of gradients as they are stored. Numbers that belong to (row, column) come as eight of a row,
// or as a pair; what does not exist may become anything.
struct AsTheyAre {
  template <class X>
  __device__ X operator()(const X& x, int, int, bool) const {
    return x;
  }
};
// Gradients of ReLU features, which are marked and rows `first_row` and on of a tile.
template <class T, int kWidth>
struct ThroughMarkedFeatures {
  std::uint32_t tile;
  int first_row;
  ReluFeatures<T> features;

  __device__ uint4 operator()(const uint4& x, int row, int column, bool) const {
    const uint4 f = read_shared(tile + Tile<kWidth>::offset(first_row + row, column / 8));
    return {features.backward(x.x, f.x), features.backward(x.y, f.y), features.backward(x.z, f.z),
            features.backward(x.w, f.w)};
  }
  __device__ Pair operator()(Pair x, int row, int column, bool) const {
    Pair f;
    asm volatile("ld.shared.b32 %0, [%1];"
                 : "=r"(f)
                 : "r"(tile + Tile<kWidth>::offset(first_row + row, column / 8) + column % 8 * 2)
                 : "memory");
    return features.backward(x, f);
  }
};
// The same by the inputs themselves, which are read once more: rows of queries that were scaled bear no
// marks.
template <class T>
struct ThroughInputs {
  const T* rows;
  std::int64_t stride;

  __device__ uint4 operator()(const uint4& x, int row, int column, bool exists) const {
    if (!exists) return x;
    const uint4 y = __ldg(reinterpret_cast<const uint4*>(rows + row * stride + column));
    return {ReluFeatures<T>::backward_at(x.x, y.x), ReluFeatures<T>::backward_at(x.y, y.y),
            ReluFeatures<T>::backward_at(x.z, y.z), ReluFeatures<T>::backward_at(x.w, y.w)};
  }
  __device__ Pair operator()(Pair x, int row, int column, bool exists) const {
    if (!exists) return x;
    return ReluFeatures<T>::backward_at(x,
                                        __ldg(reinterpret_cast<const Pair*>(rows + row * stride + column)));
  }
};

// Writes 16 rows of accumulators, columns from `first` on, scaled and sent through `through`, to row-major
// memory of which `rows` rows and `channels` columns exist.
template <class T, int kTiles, class Through = AsTheyAre>
__device__ void store_rows(const float (&c)[kTiles][4], float upper_scale, float lower_scale, T* to,
                           std::int64_t stride, int first, int rows, int channels, int lane,
                           const Through& through = {}) {
  const int g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = g + half * 8;
    const float scale = half == 0 ? upper_scale : lower_scale;
    if constexpr (kTiles % 4 == 0) {
#pragma unroll
      for (int n = 0; n < kTiles; n += 4) {
        Pair x[4];
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          x[s] = pack<T>(c[n + s][half * 2] * scale, c[n + s][half * 2 + 1] * scale);
        }
        const uint4 gathered = gather_row(x[0], x[1], x[2], x[3], lane);
        const int column = first + (n + t) * 8;
        const bool exists = row < rows && column < channels;
        const uint4 whole = through(gathered, row, column, exists);
        if (exists) *reinterpret_cast<uint4*>(to + row * stride + column) = whole;
      }
    } else {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const Pair rounded = pack<T>(c[n][half * 2] * scale, c[n][half * 2 + 1] * scale);
        const int column = first + n * 8 + 2 * t;
        const bool exists = row < rows && column < channels;
        const Pair x = through(rounded, row, column, exists);
        if (exists) *reinterpret_cast<Pair*>(to + row * stride + column) = x;
      }
    }
  }
}

template <class T>
__device__ const T* row_start(const void* x, const RowStrides& s, int batch, int head, std::int64_t row) {
  return static_cast<const T*>(x) + batch * s.batch + head * s.head + row * s.row;
}
template <class T>
__device__ T* row_start(void* x, const RowStrides& s, int batch, int head, std::int64_t row) {
  return static_cast<T*>(x) + batch * s.batch + head * s.head + row * s.row;
}

// Calls f.template operator()<T, kWidth, kSoftmax>() for the types and padded sizes of a problem.
template <class F>
cudaError_t dispatch(const DenseAttention& a, F&& f) {
  const int widest = a.d > a.d_v ? a.d : a.d_v;
  const auto with_type = [&]<class T>() {
    const auto with_width = [&]<int kWidth>() {
      return a.rule.is_softmax() ? f.template operator()<T, kWidth, true>()
                                 : f.template operator()<T, kWidth, false>();
    };
    if (widest <= 32) return with_width.template operator()<32>();
    if (widest <= 64) return with_width.template operator()<64>();
    return with_width.template operator()<128>();
  };
  return a.type == HalfType::bfloat16 ? with_type.template operator()<__nv_bfloat16>()
                                      : with_type.template operator()<__half>();
}

}  // namespace topomask::dense
