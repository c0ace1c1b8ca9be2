// Rows to rows on a GPU: the pieces that transposes and normalisations are made of. Framework-free.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace topomask::cuda {

// row[e] = the row that entry e stands in.
cudaError_t entry_rows(const std::int64_t* row_ptr, std::int64_t num_rows, std::int32_t* row,
                       cudaStream_t stream);

// row_ptr [num_rows+1] of entries whose rows, `sorted_row` [entries], ascend.
cudaError_t offsets_of_sorted(const std::uint32_t* sorted_row, std::int64_t entries, std::int64_t num_rows,
                              std::int64_t* row_ptr, cudaStream_t stream);

// inverse[i] = 1 / sum_j |weight(i, j)|, or 1 / sqrt of it; 0 where the sum is 0.
cudaError_t inverse_row_sums(const std::int64_t* row_ptr, const float* weight, std::int64_t num_rows,
                             bool root, double* inverse, cudaStream_t stream);

// scaled(i, j) = weight(i, j) * (left[i] * right[j]); a null factor is 1.
cudaError_t scale_entries(const std::int64_t* row_ptr, const std::int32_t* col, const float* weight,
                          std::int64_t num_rows, const double* left, const double* right, float* scaled,
                          cudaStream_t stream);

}  // namespace topomask::cuda
