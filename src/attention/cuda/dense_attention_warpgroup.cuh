// Warpgroups: four warps whose products read their operands from shared memory asynchronously.
//
// A block of threads is one warpgroup that copies rows and two that multiply. Rows travel through a ring of
// slots: a slot is filled, turned into features, and published by the copying warpgroup, then released by the
// multiplying ones. Both walk over the same units in the same order and know which slot comes next by
// counting.
//
// An accumulator of 64 rows holds, for each of its four warps' 16 rows, what mma.m16n8k16 would hold, so the
// fragments of dense_attention_fragments.cuh hold here too. A Tile<64> that starts at a multiple of 1024
// bytes is permuted in just the way that the instructions expect.
#pragma once

#include "attention/cuda/dense_attention_tiles.cuh"

namespace topomask::dense::warpgroup {

constexpr int kThreads = 128;    // of a warpgroup
constexpr int kMultipliers = 2;  // warpgroups, 64 rows each
constexpr int kBlockThreads = (1 + kMultipliers) * kThreads;
constexpr int kRows = 64 * kMultipliers;  // of a tile, for each block of threads
constexpr int kWidth = 64;                // channels, padded
constexpr int kTileBytes = 128 * kWidth * 2;
constexpr int kUnitBytes = 2 * kTileBytes;
constexpr int kGroups = 128 / Groups<kWidth, kThreads>::kRows;
// Registers of a thread: 168 when the block starts, what 384 threads can have. Copying needs few.
constexpr int kCopyingRegisters = 40, kMultiplyingRegisters = 232;

__device__ inline void start_barrier(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ inline void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline bool has_passed(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t passed;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.b32 %0, 1, 0, p;\n}"
      : "=r"(passed)
      : "r"(barrier), "r"(parity)
      : "memory");
  return passed != 0;
}
__device__ inline void wait(std::uint32_t barrier, std::uint32_t parity) {
#ifdef TOPOMASK_BOUNDED_WAITS  // to debug with: a wait that never ends ends the program
  const long long start = clock64();
  while (!has_passed(barrier, parity)) {
    if (clock64() - start > 2000000000LL) __trap();
  }
#else
  while (!has_passed(barrier, parity)) {
  }
#endif
}

__device__ inline float read_float(std::uint32_t address) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  return x;
}
__device__ inline void write_float(std::uint32_t address, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}

// What threads have written becomes visible to products that read shared memory themselves.
__device__ inline void publish_to_products() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Among so many threads that name the same barrier; 0 is __syncthreads.
template <int kCount>
__device__ void meet(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kCount) : "memory");
}

// Lets others pass that barrier, without waiting for them.
template <int kCount>
__device__ void announce(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(kCount) : "memory");
}

template <int kMost>
__device__ void wait_for_copies_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kMost) : "memory");
}

// The copies of kAhead units stay under way: what was asked for before them is published.
template <int kAhead, class Publish>
struct CopiesAhead {
  const Publish& publish;
  int unpublished = 0;

  // After the copies of one more unit were issued.
  __device__ void keep_on() {
    if (unpublished == kAhead) {
      wait_for_copies_but<kAhead>();
      publish();
    } else {
      ++unpublished;
    }
  }
  __device__ void finish() {
    wait_for_copies();
    for (; unpublished > 0; --unpublished) publish();
  }
};

// A place in a ring of kSlots slots, as many barriers that tell when they are full, and as many when empty.
template <int kSlots>
struct Ring {
  static constexpr int kBytes = kSlots * kUnitBytes + 2 * kSlots * 8;
  std::uint32_t memory;
  int slot = 0;
  std::uint32_t parity = 0;

  __device__ std::uint32_t tile(int which) const { return memory + slot * kUnitBytes + which * kTileBytes; }
  __device__ std::uint32_t full() const { return memory + kSlots * kUnitBytes + slot * 8; }
  __device__ std::uint32_t empty() const { return full() + kSlots * 8; }
  __device__ void advance() {
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
  __device__ void wait_until_full() const { wait(full(), parity); }
  __device__ void wait_until_empty() const { wait(empty(), parity ^ 1); }

  // By all threads of the block, before anything else.
  __device__ void start() {
    if (threadIdx.x == 0) {
      Ring at = *this;
      for (at.slot = 0; at.slot < kSlots; ++at.slot) {
        start_barrier(at.full(), kThreads);
        start_barrier(at.empty(), kMultipliers * kThreads);
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
  }
};

// 64 rows by 64 columns: 8 accumulators side by side.
using Accumulator = float[8][4];

// Between what threads do to registers, or others have done to shared memory, and the products that use them.
__device__ inline void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void finish_issuing_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kMost>
__device__ void wait_for_products_but() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kMost) : "memory");
}
// Describes rows of a Tile<64> to a product: 1024 bytes from eight rows to the next, permuted.
__device__ inline std::uint64_t describe(std::uint32_t address) {
  return (std::uint64_t{1} << 62) | (std::uint64_t{64} << 32) | (std::uint64_t{1} << 16) |
         ((address & 0x3ffff) >> 4);
}

#define TOPOMASK_WARPGROUP_SUMS                                                                         \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26," \
  "%27,%28,%29,%30,%31}"
#define TOPOMASK_WARPGROUP_SUM(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define TOPOMASK_WARPGROUP_OPERANDS                                                    \
  TOPOMASK_WARPGROUP_SUM(0), TOPOMASK_WARPGROUP_SUM(1), TOPOMASK_WARPGROUP_SUM(2),     \
      TOPOMASK_WARPGROUP_SUM(3), TOPOMASK_WARPGROUP_SUM(4), TOPOMASK_WARPGROUP_SUM(5), \
      TOPOMASK_WARPGROUP_SUM(6), TOPOMASK_WARPGROUP_SUM(7)

// Keeps the compiler from moving uses of an accumulator across the waits.
__device__ inline void hold(Accumulator& c) {
  asm volatile("" : TOPOMASK_WARPGROUP_OPERANDS::"memory");
}

// The numbers that an accumulator holds are no longer needed.
__device__ inline void renew(Accumulator& c) {
#pragma unroll
  for (auto& part : c) {
    asm volatile("" : "=f"(part[0]), "=f"(part[1]), "=f"(part[2]), "=f"(part[3]));
  }
}

template <class T>
struct Products;

// c (+)= left right, contracted over 16 numbers. The left operand comes from shared memory or from registers.
// Rows of memory are rows of the left operand and columns of the right one; where they are read transposed,
// rows of memory are the contracted index.
#define TOPOMASK_WARPGROUP_PRODUCTS(Type, name)                                                             \
  template <>                                                                                               \
  struct Products<Type> {                                                                                   \
    __device__ static void multiply(Accumulator& c, std::uint64_t left, std::uint64_t right, bool add) {    \
      asm volatile(                                                                                         \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                                      \
          "wgmma.mma_async.sync.aligned.m64n64k16.f32." name "." name " " TOPOMASK_WARPGROUP_SUMS           \
          ", %32, %33, p, 1, 1, 0, 0;\n}"                                                                   \
          : TOPOMASK_WARPGROUP_OPERANDS                                                                     \
          : "l"(left), "l"(right), "r"(static_cast<int>(add)));                                             \
    }                                                                                                       \
    __device__ static void multiply_transposed(Accumulator& c, std::uint64_t left, std::uint64_t right,     \
                                               bool add) {                                                  \
      asm volatile(                                                                                         \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                                      \
          "wgmma.mma_async.sync.aligned.m64n64k16.f32." name "." name " " TOPOMASK_WARPGROUP_SUMS           \
          ", %32, %33, p, 1, 1, 1, 1;\n}"                                                                   \
          : TOPOMASK_WARPGROUP_OPERANDS                                                                     \
          : "l"(left), "l"(right), "r"(static_cast<int>(add)));                                             \
    }                                                                                                       \
    template <bool kTransposed>                                                                             \
    __device__ static void multiply(Accumulator& c, const Pair (&left)[4], std::uint64_t right, bool add) { \
      asm volatile(                                                                                         \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                                      \
          "wgmma.mma_async.sync.aligned.m64n64k16.f32." name "." name " " TOPOMASK_WARPGROUP_SUMS           \
          ", {%32,%33,%34,%35}, %36, p, 1, 1, %38;\n}"                                                      \
          : TOPOMASK_WARPGROUP_OPERANDS                                                                     \
          : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(static_cast<int>(add)), \
            "n"(kTransposed ? 1 : 0));                                                                      \
    }                                                                                                       \
  }
TOPOMASK_WARPGROUP_PRODUCTS(__nv_bfloat16, "bf16");
TOPOMASK_WARPGROUP_PRODUCTS(__half, "f16");
#undef TOPOMASK_WARPGROUP_PRODUCTS
#undef TOPOMASK_WARPGROUP_OPERANDS
#undef TOPOMASK_WARPGROUP_SUM
#undef TOPOMASK_WARPGROUP_SUMS

template <int kRegisters>
__device__ void give_up_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ void claim_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// What a block of threads works on one after the other: (batch, head) pairs. Neighbouring blocks share a
// mask.
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

// How the work on a tile of the mask is shared out: all its (mask head, batch, head) entries in this order,
// cut into `lanes` equal ranges, one for each block of threads. A range may run from one mask head into the
// next.
struct Lanes {
  int lanes, mask_heads, heads_each;
  int entries_each;  // of a mask head

  __host__ __device__ int entries() const { return entries_each * mask_heads; }
  __host__ __device__ int begin(int lane) const {
    return static_cast<int>(static_cast<std::int64_t>(entries()) * lane / lanes);
  }
  // The lane that has an entry.
  __host__ __device__ int lane_of(int entry) const {
    return static_cast<int>(((entry + std::int64_t{1}) * lanes - 1) / entries());
  }
};

// An entry on the way through a lane.
struct Entry {
  int mask_head, batch, head;
  __device__ Entry(const Lanes& lanes, int number) {
    mask_head = number / lanes.entries_each;
    const int rest = number % lanes.entries_each;
    batch = rest / lanes.heads_each;
    head = mask_head + rest % lanes.heads_each;
  }
  __device__ void advance(const Lanes& lanes, int batches) {
    if (++head < mask_head + lanes.heads_each) return;
    head = mask_head;
    if (++batch < batches) return;
    batch = 0;
    head = ++mask_head;
  }
};

}  // namespace topomask::dense::warpgroup
