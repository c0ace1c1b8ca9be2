// M = Phi Psi^T by lists of what is multiplied: for every entry of M the pairs (entry of Phi, entry of Psi)
// whose products it sums. Framework-free.
//
// The lists belong to the patterns. With them, values and both gradients are one kernel without any search:
// sums of products of two gathered entries. They take 8 bytes a product and list.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "masks/cpu/spmm.h"

namespace topomask::cuda {

// count[p] = how many products entry p of Phi takes part in.
cudaError_t count_pairs(const SparseRows& query, std::int64_t query_nnz, const SparseRows& key_columns,
                        std::int32_t* count, cudaStream_t stream);

// All products in the order of the entries of Phi, and of the rows of Psi for each.
struct ListPairsArguments {
  SparseRows query, key_columns, product;  // Phi, Psi^T, M
  std::int64_t query_nnz = 0;
  const std::int32_t* query_row = nullptr;  // [nnz(Phi)] the row of each entry
  const std::int64_t* ptr = nullptr;        // [nnz(Phi)+1] offsets of the counts
  std::int32_t* query_entry = nullptr;      // [pairs] out, or null
  std::int32_t* key_entry = nullptr;        // [pairs] out
  std::int32_t* product_entry = nullptr;    // [pairs] out
};
cudaError_t list_pairs(const ListPairsArguments& arguments, cudaStream_t stream);

// out[x, h] = sum over the pairs of x of a[first, h] b[second, h], in their order.
template <class T>
struct PairSumsArguments {
  std::int64_t entries = 0, heads = 0;
  const std::int64_t* ptr = nullptr;     // [entries+1]
  const std::int32_t* first = nullptr;   // [pairs]
  const std::int32_t* second = nullptr;  // [pairs]
  const T* a = nullptr;                  // [., heads]
  const T* b = nullptr;                  // [., heads]
  T* out = nullptr;
  bool heads_first = false;  // out is [heads, entries], else [entries, heads]
};
template <class T>
cudaError_t pair_sums(const PairSumsArguments<T>& arguments, cudaStream_t stream);

}  // namespace topomask::cuda
