// Rows to rows on a GPU: the pieces that transposes and normalisations are made of. Framework-free.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace topomask::cuda {

// row[e] = the row that entry e stands in.
cudaError_t entry_rows(const std::int64_t* row_ptr, std::int64_t num_rows, std::int32_t* row,
                       cudaStream_t stream);

// The entries of a pattern as a sort by columns takes them: row[e], position[e] = e and key[e] = col[e].
// `entries` may be more than row_ptr[num_rows]: those beyond are in no row, and get row 0 and key `behind`.
// col, key and position may be null.
struct EntryLists {
  const std::int64_t* row_ptr = nullptr;  // [num_rows+1]
  const std::int32_t* col = nullptr;      // [entries]
  std::int64_t num_rows = 0, entries = 0;
  std::int32_t behind = 0;
  std::int32_t *row = nullptr, *key = nullptr, *position = nullptr;  // [entries] out
};
cudaError_t list_entries(const EntryLists& lists, cudaStream_t stream);

// sorted_row[i] = row[entry[i]] and wide_entry[i] = entry[i]; wide_entry may be null.
cudaError_t gather_rows(const std::int32_t* row, const std::int32_t* entry, std::int64_t entries,
                        std::int32_t* sorted_row, std::int64_t* wide_entry, cudaStream_t stream);

// row_ptr [num_rows+1] of entries whose rows, `sorted_row` [entries], ascend.
cudaError_t offsets_of_sorted(const std::uint32_t* sorted_row, std::int64_t entries, std::int64_t num_rows,
                              std::int64_t* row_ptr, cudaStream_t stream);

// inverse[i] = 1 / sqrt(sum_j |weight(i, j)|); 0 where the sum is 0.
cudaError_t inverse_root_sums(const std::int64_t* row_ptr, const float* weight, std::int64_t num_rows,
                              double* inverse, cudaStream_t stream);

// scaled(i, j) = weight(i, j) / sum_j |weight(i, j)|, or 0 where the sum is 0.
cudaError_t stochastic_rows(const std::int64_t* row_ptr, const float* weight, std::int64_t num_rows,
                            float* scaled, cudaStream_t stream);

// scaled(i, j) = weight(i, j) * (left[i] * right[j]); a null factor is 1.
cudaError_t scale_entries(const std::int64_t* row_ptr, const std::int32_t* col, const float* weight,
                          std::int64_t num_rows, const double* left, const double* right, float* scaled,
                          cudaStream_t stream);

}  // namespace topomask::cuda
