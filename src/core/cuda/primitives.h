// Sorts and scans of whole arrays on a GPU, from CUB. Framework-free.
//
// Each call takes its working memory from the caller: ask for the size with `workspace_bytes`, which launches
// nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace topomask {

// Stable; sorts by bits [0, bits) of the keys. Inputs are kept, outputs must not overlap them.
template <class Key>  // uint32_t or uint64_t
struct SortPairs {
  static std::size_t workspace_bytes(std::int64_t count, int bits);
  static cudaError_t run(const Key* key, const std::int32_t* value, std::int64_t count, int bits,
                         Key* sorted_key, std::int32_t* sorted_value, void* workspace, std::size_t bytes,
                         cudaStream_t stream);
};

// offset[i] = count[0] + ... + count[i - 1] for i = 0 .. n; offset has n + 1 elements.
struct ScanCounts {
  static std::size_t workspace_bytes(std::int64_t n);
  static cudaError_t run(const std::int32_t* count, std::int64_t n, std::int64_t* offset, void* workspace,
                         std::size_t bytes, cudaStream_t stream);
};

// The same for two rows of counts at once: offset[i] = {sum of the first, sum of the second}, n + 1 pairs.
struct OffsetPair {
  std::int64_t first, second;
};
struct ScanCountPairs {
  static std::size_t workspace_bytes(std::int64_t n);
  static cudaError_t run(const std::int32_t* first, const std::int32_t* second, std::int64_t n,
                         OffsetPair* offset, void* workspace, std::size_t bytes, cudaStream_t stream);
};

}  // namespace topomask
