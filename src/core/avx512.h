// For the few functions that have no portable form worth having (expand, compress): intrinsics, to be called
// only where has_avx512().
#pragma once

#include <hwy/highway.h>
#include <hwy/targets.h>

#if HWY_ARCH_X86_64
// GCC 12 warns about the undefined vectors that its own header makes on purpose (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#define TOPOMASK_AVX512 __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq")))
#endif

namespace topomask {

inline bool has_avx512() {
#if HWY_ARCH_X86_64
  static const bool has = (hwy::SupportedTargets() & HWY_AVX3) != 0;  // slow to ask in a virtual machine
  return has;
#else
  return false;
#endif
}

}  // namespace topomask
