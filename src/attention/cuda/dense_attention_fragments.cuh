// What tensor cores compute with: fragments, pairs of 16-bit numbers, packed masks.
//
// Fragments are those of mma.m16n8k16, with g = lane / 4 and t = lane % 4. An accumulator (16 x 8) holds
// c0 c1 at row g, columns 2t and 2t+1, and c2 c3 eight rows below. A left operand (16 x 16) holds four pairs:
// (g, 2t), (g+8, 2t), (g, 2t+8), (g+8, 2t+8). Hence two accumulators side by side, rounded and paired, are a
// left operand already: scores go from one product to the next without leaving their registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace topomask::dense {

constexpr int kMaskPad = 64;  // packed masks are padded to whole tiles of this size
constexpr float kLog2e = 1.4426950408889634f;

using Pair = std::uint32_t;  // two 16-bit numbers

template <class T>
struct Half;

template <>
struct Half<__nv_bfloat16> {
  using Vector = __nv_bfloat162;
  __device__ static float2 unpack(Pair x) {
    return {__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)};
  }
  __device__ static Vector round(float2 x) { return __float22bfloat162_rn(x); }
  __device__ static void multiply(float (&c)[4], const Pair (&a)[4], Pair b0, Pair b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

template <>
struct Half<__half> {
  using Vector = __half2;
  __device__ static float2 unpack(Pair x) { return __half22float2(reinterpret_cast<const __half2&>(x)); }
  __device__ static Vector round(float2 x) { return __float22half2_rn(x); }
  __device__ static void multiply(float (&c)[4], const Pair (&a)[4], Pair b0, Pair b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

template <class T>
__device__ Pair pack(float x, float y) {
  const auto both = Half<T>::round(make_float2(x, y));
  return reinterpret_cast<const Pair&>(both);
}

template <class T>
__device__ float dot(Pair x, Pair y) {
  const float2 u = Half<T>::unpack(x), w = Half<T>::unpack(y);
  return fmaf(u.x, w.x, u.y * w.y);
}

// max(x, 0) + epsilon, on pairs; NaN stays NaN.
template <class T>
struct ReluFeatures {
  using Vector = typename Half<T>::Vector;
  Vector zero, epsilon;

  __device__ explicit ReluFeatures(float e)
      : zero(Half<T>::round(make_float2(0, 0))), epsilon(Half<T>::round(make_float2(e, e))) {}
  __device__ Pair operator()(Pair x) const {
    const Vector y = __hadd2(__hmax2_nan(reinterpret_cast<const Vector&>(x), zero), epsilon);
    return reinterpret_cast<const Pair&>(y);
  }
  // The same, but where x is at least 0 the result is above epsilon even if x is too small to change it. So the
  // features tell where max(x, 0) passes a gradient on, by clamp_min's rule, and the inputs need not be read
  // again.
  __device__ Pair marked(Pair x) const {
    // Bits of positive numbers are in order: this is the next number after epsilon, twice.
    const Pair above = reinterpret_cast<const Pair&>(epsilon) + 0x00010001u;
    const Pair least = __hge2_mask(reinterpret_cast<const Vector&>(x), zero) & above, y = (*this)(x);
    const Vector larger =
        __hmax2_nan(reinterpret_cast<const Vector&>(y), reinterpret_cast<const Vector&>(least));
    return reinterpret_cast<const Pair&>(larger);
  }
  // A pair of gradients, or zeros where the input was negative or NaN: by the marked features, or by
  // the input itself.
  __device__ Pair backward(Pair gradient, Pair features) const {
    return gradient & __hgt2_mask(reinterpret_cast<const Vector&>(features), epsilon);
  }
  __device__ static Pair backward_at(Pair gradient, Pair input) {
    const Vector zero = Half<T>::round(make_float2(0, 0));
    return gradient & __hge2_mask(reinterpret_cast<const Vector&>(input), zero);
  }
};

// float16 has five bits of exponent, and a product that is rounded to it may leave its range though the
// result does not. So rows of queries are multiplied by a power of two, which changes no digit, and the
// results are divided by it in float32. bfloat16 has the range of float32 and needs none of this.
template <class T>
constexpr bool kScalesRows = std::is_same_v<T, __half>;

__device__ inline int exponent_of(float x) {
  return static_cast<int>(__float_as_uint(x) >> 23 & 255) - 127;
}
__device__ inline float power_of_two(int exponent) {
  return __int_as_float((exponent + 127) << 23);
}
// Of the largest magnitude in a row, as float16 has exponents.
__device__ inline int row_exponent(float largest) {
  return min(max(exponent_of(largest), -14), 15);
}

// Forward, linear: M_ij <q_i, k_j> is rounded before it is divided by D_i. With the largest channel of every
// q_i near 1/8 it is of the size of M_ij <1, k_j>.
__device__ inline float forward_row_scale(float largest_query) {
  return power_of_two(-3 - row_exponent(largest_query));
}

// Backward: what row i adds to grad_k is rounded in two factors, the gradient of a dot product, over this
// scale, and q_i times it. Both get the square root of the product's size, which is about
// |grad_out_i| |q_i| / D_i, whatever M and v are.
__device__ inline float backward_row_scale(float largest_query, float largest_grad, float inverse) {
  const int own = row_exponent(largest_query);
  const int balanced = (exponent_of(largest_grad * fabsf(inverse)) - own) >> 1;
  // Channels far below the largest must not be lost, and the largest must not overflow.
  return power_of_two(min(max(balanced, max(-8 - own, -14)), min(14 - own, 15)));
}

// The largest magnitude of eight numbers, NaN left out.
template <class T>
__device__ float largest_of(const uint4& x) {
  using Vector = typename Half<T>::Vector;
  const auto magnitude = [](Pair p) { return __habs2(reinterpret_cast<const Vector&>(p)); };
  const Vector both =
      __hmax2(__hmax2(magnitude(x.x), magnitude(x.y)), __hmax2(magnitude(x.z), magnitude(x.w)));
  const float2 two = Half<T>::unpack(reinterpret_cast<const Pair&>(both));
  return fmaxf(two.x, two.y);
}

template <class T>
__device__ Pair scaled(Pair x, float factor) {
  const auto y = __hmul2(reinterpret_cast<const typename Half<T>::Vector&>(x),
                         Half<T>::round(make_float2(factor, factor)));
  return reinterpret_cast<const Pair&>(y);
}
template <class T>
__device__ uint4 scaled(const uint4& x, float factor) {
  return {scaled<T>(x.x, factor), scaled<T>(x.y, factor), scaled<T>(x.z, factor), scaled<T>(x.w, factor)};
}

// 2^x without the detour for denormal results; -inf gives 0.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The same number, about which the compiler may assume nothing: what is computed from it is computed where it
// is used. Otherwise offsets that hold for a whole loop are kept in registers that the accumulators need, and
// the loop's own state goes to memory.
__device__ inline int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

__device__ inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

__device__ inline void load_block(Pair (&x)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}

__device__ inline void load_block_transposed(Pair (&x)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}

// 16 x 16 blocks of a packed mask, row by row: 8 numbers of each lane, in the order of a left operand.
struct PackedMask {
  const uint4* blocks;
  int side;

  __host__ __device__ static int blocks_per_side(int num_nodes) {
    return (num_nodes + kMaskPad - 1) / kMaskPad * (kMaskPad / 16);
  }
  __device__ PackedMask(const void* packed, int head, int num_nodes) : side(blocks_per_side(num_nodes)) {
    blocks = static_cast<const uint4*>(packed) + static_cast<std::int64_t>(head) * side * side * 32;
  }
  __device__ const uint4* at(int row, int column) const {
    return blocks + (static_cast<std::int64_t>(row) * side + column) * 32;
  }
  // kPassing: past the L1 cache, which then keeps what it has.
  template <bool kPassing>
  __device__ static void load(Pair (&m)[4], const uint4* from) {
    if constexpr (kPassing) {
      asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                   : "l"(from));
    } else {
      const uint4 x = __ldg(from);
      m[0] = x.x;
      m[1] = x.y;
      m[2] = x.z;
      m[3] = x.w;
    }
  }
};

}  // namespace topomask::dense
