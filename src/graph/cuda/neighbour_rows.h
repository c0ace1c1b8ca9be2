// Lists of neighbours to compressed rows on a GPU. Framework-free.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace topomask::cuda {

// Rows to sort by column: row i has row_ptr[i+1] - row_ptr[i] entries, from row_ptr[i] on, or from i * stride
// on where there is a stride. Equal columns keep their order; negative ones, which stand for points that were
// not found, become 0.
struct UnsortedRows {
  std::int64_t num_rows = 0;
  const std::int64_t* row_ptr = nullptr;  // [num_rows+1]
  std::int64_t stride = 0;
  const std::int32_t* col = nullptr;
  const void* value = nullptr;  // float or double, or null
  bool is_double = false;
};
struct SortedRows {
  std::int32_t* col = nullptr;  // [entries]
  void* value = nullptr;        // [entries] like those of the source, or null
  float* weight = nullptr;      // [entries] ones, or null
};
cudaError_t sort_rows(const UnsortedRows& from, const SortedRows& to, cudaStream_t stream);

// i ~ j where either lists the other. `index`: [num_rows, k], the first num_found[i] of a row count (null:
// all).
struct DirectedLists {
  std::int64_t num_rows = 0;
  int k = 0;
  const std::int32_t* index = nullptr;
  const std::int32_t* num_found = nullptr;
};
cudaError_t symmetric_degrees(const DirectedLists& lists, std::int32_t* degree, cudaStream_t stream);
// Fills rows of these degrees, in no particular order. `cursor`: [num_rows] scratch.
cudaError_t symmetric_entries(const DirectedLists& lists, const std::int64_t* row_ptr, std::int32_t* cursor,
                              std::int32_t* col, cudaStream_t stream);

// The lengths of a box go along with the launch: nothing is copied from the host's memory.
constexpr int kMaxBoxAxes = 128;
struct BoxLengths {
  double length[kMaxBoxAxes];
};
cudaError_t store_box(const BoxLengths& lengths, int axes, double* box, cudaStream_t stream);

}  // namespace topomask::cuda
