#include "core/cuda/primitives.h"

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

namespace topomask {

template <class Key>
std::size_t SortPairs<Key>::workspace_bytes(std::int64_t count, int bits) {
  std::size_t bytes = 0;
  cub::DeviceRadixSort::SortPairs(nullptr, bytes, static_cast<const Key*>(nullptr),
                                  static_cast<Key*>(nullptr), static_cast<const std::int32_t*>(nullptr),
                                  static_cast<std::int32_t*>(nullptr), count, 0, bits);
  return bytes;
}

template <class Key>
cudaError_t SortPairs<Key>::run(const Key* key, const std::int32_t* value, std::int64_t count, int bits,
                                Key* sorted_key, std::int32_t* sorted_value, void* workspace,
                                std::size_t bytes, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  return cub::DeviceRadixSort::SortPairs(workspace, bytes, key, sorted_key, value, sorted_value, count, 0,
                                         bits, stream);
}

template struct SortPairs<std::uint32_t>;
template struct SortPairs<std::uint64_t>;

namespace {

// Widens on the way in, and reads one element past the end as 0, so that the scan has n + 1 results.
struct PaddedCount {
  const std::int32_t* count;
  std::int64_t n;

  __host__ __device__ std::int64_t operator()(std::int64_t i) const { return i < n ? count[i] : 0; }
};

auto padded_counts(const std::int32_t* count, std::int64_t n) {
  return thrust::make_transform_iterator(thrust::counting_iterator<std::int64_t>(0), PaddedCount{count, n});
}

struct PaddedCountPair {
  const std::int32_t *first, *second;
  std::int64_t n;

  __host__ __device__ OffsetPair operator()(std::int64_t i) const {
    if (i >= n) return {0, 0};
    return {first[i], second[i]};
  }
};

struct AddPairs {
  __host__ __device__ OffsetPair operator()(const OffsetPair& a, const OffsetPair& b) const {
    return {a.first + b.first, a.second + b.second};
  }
};

auto padded_pairs(const std::int32_t* first, const std::int32_t* second, std::int64_t n) {
  return thrust::make_transform_iterator(thrust::counting_iterator<std::int64_t>(0),
                                         PaddedCountPair{first, second, n});
}

}  // namespace

std::size_t ScanCountPairs::workspace_bytes(std::int64_t n) {
  std::size_t bytes = 0;
  cub::DeviceScan::ExclusiveScan(nullptr, bytes, padded_pairs(nullptr, nullptr, n),
                                 static_cast<OffsetPair*>(nullptr), AddPairs{}, OffsetPair{0, 0}, n + 1);
  return bytes;
}

cudaError_t ScanCountPairs::run(const std::int32_t* first, const std::int32_t* second, std::int64_t n,
                                OffsetPair* offset, void* workspace, std::size_t bytes, cudaStream_t stream) {
  return cub::DeviceScan::ExclusiveScan(workspace, bytes, padded_pairs(first, second, n), offset, AddPairs{},
                                        OffsetPair{0, 0}, n + 1, stream);
}

std::size_t ScanCounts::workspace_bytes(std::int64_t n) {
  std::size_t bytes = 0;
  cub::DeviceScan::ExclusiveSum(nullptr, bytes, padded_counts(nullptr, n),
                                static_cast<std::int64_t*>(nullptr), n + 1);
  return bytes;
}

cudaError_t ScanCounts::run(const std::int32_t* count, std::int64_t n, std::int64_t* offset, void* workspace,
                            std::size_t bytes, cudaStream_t stream) {
  return cub::DeviceScan::ExclusiveSum(workspace, bytes, padded_counts(count, n), offset, n + 1, stream);
}

}  // namespace topomask
