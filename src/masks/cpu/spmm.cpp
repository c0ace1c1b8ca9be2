#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "masks/cpu/spmm.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include <hwy/highway.h>

#include <algorithm>

#include "core/flops.h"
#include "core/parallel.h"
#include "core/vector_math-inl.h"
#include "masks/cpu/spmm.h"

HWY_BEFORE_NAMESPACE();
namespace topomask::HWY_NAMESPACE {

template <class T>
HWY_INLINE void spmm_rows(const SparseRows& matrix, std::int64_t begin, std::int64_t end, const T* value,
                          const T* x, std::int64_t columns, bool accumulate, T* y) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t first = matrix.row_ptr[row];
    const std::int64_t count = matrix.row_ptr[row + 1] - first;
    const std::int32_t* index = matrix.col + first;
    T* out = y + row * columns;
    if (matrix.entry == nullptr) {
      indexed_sum([&](std::int64_t p) { return value[first + p]; }, x, index, count, columns, accumulate,
                  out);
    } else {
      const std::int64_t* entry = matrix.entry + first;
      indexed_sum([&](std::int64_t p) { return value[entry[p]]; }, x, index, count, columns, accumulate, out);
    }
  }
}

template <class T>
HWY_INLINE void dots_rows(const SparseRows& matrix, std::int64_t begin, std::int64_t end, const T* a,
                          const T* b, std::int64_t columns, T* out) {
  constexpr std::int64_t kGroup = 64;
  T sums[kGroup];
  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t p = matrix.row_ptr[row]; p < matrix.row_ptr[row + 1]; p += kGroup) {
      const std::int64_t count = std::min(kGroup, matrix.row_ptr[row + 1] - p);
      indexed_dots(a + row * columns, b, matrix.col + p, count, columns, sums);
      for (std::int64_t i = 0; i < count; ++i)
        out[matrix.entry == nullptr ? p + i : matrix.entry[p + i]] += sums[i];
    }
  }
}

void spmm_float(const SparseRows& matrix, std::int64_t begin, std::int64_t end, const float* value,
                const float* x, std::int64_t columns, bool accumulate, float* y) {
  spmm_rows(matrix, begin, end, value, x, columns, accumulate, y);
}
void spmm_double(const SparseRows& matrix, std::int64_t begin, std::int64_t end, const double* value,
                 const double* x, std::int64_t columns, bool accumulate, double* y) {
  spmm_rows(matrix, begin, end, value, x, columns, accumulate, y);
}
void dots_float(const SparseRows& matrix, std::int64_t begin, std::int64_t end, const float* a,
                const float* b, std::int64_t columns, float* out) {
  dots_rows(matrix, begin, end, a, b, columns, out);
}
void dots_double(const SparseRows& matrix, std::int64_t begin, std::int64_t end, const double* a,
                 const double* b, std::int64_t columns, double* out) {
  dots_rows(matrix, begin, end, a, b, columns, out);
}

}  // namespace topomask::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace topomask {

HWY_EXPORT(spmm_float);
HWY_EXPORT(spmm_double);
HWY_EXPORT(dots_float);
HWY_EXPORT(dots_double);

namespace {

// Runs of rows with equal work, several per thread.
std::int64_t num_pieces(const SparseRows& matrix, std::int64_t columns) {
  constexpr std::int64_t kWorkPerPiece = 1 << 16;
  const std::int64_t work = (matrix.nnz() + matrix.num_rows) * std::max<std::int64_t>(columns, 1);
  return std::clamp<std::int64_t>(work / kWorkPerPiece, 1, 8 * std::int64_t{num_threads()});
}

template <class Run>
void for_pieces(const SparseRows& matrix, std::int64_t columns, const Run& run) {
  if (matrix.num_rows == 0 || columns == 0) return;
  const std::int64_t pieces = num_pieces(matrix, columns);
  parallel_for(pieces, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t piece = first; piece < last; ++piece) {
      run(balanced_row(matrix, piece, pieces), balanced_row(matrix, piece + 1, pieces));
    }
  });
  count_multiply_adds(matrix.nnz() * columns);
}

}  // namespace

std::int64_t balanced_row(const SparseRows& matrix, std::int64_t piece, std::int64_t pieces) {
  const std::int64_t total = matrix.nnz() + matrix.num_rows;
  const std::int64_t wanted = total / pieces * piece + total % pieces * piece / pieces;
  std::int64_t low = 0, high = matrix.num_rows;  // first row with row_ptr[row] + row >= wanted
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (matrix.row_ptr[middle] + middle >= wanted) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return piece == pieces ? matrix.num_rows : low;
}

std::int64_t runs_for_threads(const SparseRows& matrix) {
  constexpr std::int64_t kLeastWork = 2048, kRunsPerThread = 8;
  return std::clamp<std::int64_t>((matrix.nnz() + matrix.num_rows) / kLeastWork, 1,
                                  kRunsPerThread * num_threads());
}

template <>
void spmm(const SparseRows& matrix, const float* value, const float* x, std::int64_t columns, bool accumulate,
          float* y) {
  for_pieces(matrix, columns, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(spmm_float)(matrix, begin, end, value, x, columns, accumulate, y);
  });
}

template <>
void spmm(const SparseRows& matrix, const double* value, const double* x, std::int64_t columns,
          bool accumulate, double* y) {
  for_pieces(matrix, columns, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(spmm_double)(matrix, begin, end, value, x, columns, accumulate, y);
  });
}

template <>
void sampled_dots(const SparseRows& matrix, const float* a, const float* b, std::int64_t columns,
                  float* out) {
  for_pieces(matrix, columns, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(dots_float)(matrix, begin, end, a, b, columns, out);
  });
}

template <>
void sampled_dots(const SparseRows& matrix, const double* a, const double* b, std::int64_t columns,
                  double* out) {
  for_pieces(matrix, columns, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(dots_double)(matrix, begin, end, a, b, columns, out);
  });
}

}  // namespace topomask

#endif  // HWY_ONCE
