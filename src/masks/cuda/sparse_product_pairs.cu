#include "core/cuda/grid.h"
#include "core/cuda/team.cuh"
#include "masks/cuda/sparse_product_pairs.h"

namespace topomask::cuda {

namespace {

constexpr int kThreads = 256;

__global__ void write_counts(SparseRows query, std::int64_t nnz, SparseRows key_columns,
                             std::int32_t* count) {
  const std::int64_t p = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (p >= nnz) return;
  const std::int32_t q = query.col[p];
  count[p] = static_cast<std::int32_t>(key_columns.row_ptr[q + 1] - key_columns.row_ptr[q]);
}

// Eight lanes an entry of Phi.
constexpr int kListLanes = 8;

__global__ void write_pairs(const __grid_constant__ ListPairsArguments a) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t p = thread / kListLanes;
  if (p >= a.query_nnz) return;
  const std::int64_t row = a.query_row[p], begin = a.product.row_ptr[row];
  const auto entries = static_cast<int>(a.product.row_ptr[row + 1] - begin);
  const std::int64_t first = a.key_columns.row_ptr[a.query.col[p]], at = a.ptr[p], count = a.ptr[p + 1] - at;
  for (std::int64_t t = thread % kListLanes; t < count; t += kListLanes) {
    const int slot = lower_bound(a.product.col + begin, entries, a.key_columns.col[first + t]);
    if (a.query_entry != nullptr) a.query_entry[at + t] = static_cast<std::int32_t>(p);
    a.key_entry[at + t] = static_cast<std::int32_t>(a.key_columns.entry[first + t]);
    a.product_entry[at + t] = static_cast<std::int32_t>(begin + slot);
  }
}

// kHeads lanes per entry, one per head: a gather reads whole sectors.
template <class T, int kHeads>
__global__ void __launch_bounds__(kThreads)
    sum_pairs(const __grid_constant__ PairSumsArguments<T> arguments) {
  constexpr int kEntries = kThreads / kHeads;
  __shared__ T tile[kHeads][kEntries + 1];
  const PairSumsArguments<T>& g = arguments;
  const int slot = static_cast<int>(threadIdx.x) / kHeads, lane = static_cast<int>(threadIdx.x) % kHeads;
  const std::int64_t first_entry = static_cast<std::int64_t>(blockIdx.x) * kEntries,
                     entry = first_entry + slot;
  const std::int64_t first_head = static_cast<std::int64_t>(blockIdx.y) * kHeads, head = first_head + lane;
  T sum = 0;
  if (entry < g.entries && head < g.heads) {
    const std::int64_t end = g.ptr[entry + 1];
    const T* __restrict__ a = g.a + head, * __restrict__ b = g.b + head;
#pragma unroll 4
    for (std::int64_t i = g.ptr[entry]; i < end; ++i) {
      const std::int64_t first = g.first[i], second = g.second[i];
      sum += a[first * g.heads] * b[second * g.heads];
    }
    if (!g.heads_first) g.out[entry * g.heads + head] = sum;
  }
  if (!g.heads_first) return;
  // Turned around in shared memory, so that every head is written in long runs.
  tile[lane][slot] = sum;
  __syncthreads();
  const int h = static_cast<int>(threadIdx.x) / kEntries, s = static_cast<int>(threadIdx.x) % kEntries;
  if (first_head + h < g.heads && first_entry + s < g.entries) {
    g.out[(first_head + h) * g.entries + first_entry + s] = tile[h][s];
  }
}

template <class T, int kHeads>
void launch_sums(const PairSumsArguments<T>& a, cudaStream_t stream) {
  const dim3 grid(blocks_for(a.entries * kHeads, kThreads),
                  static_cast<unsigned>((a.heads + kHeads - 1) / kHeads));
  sum_pairs<T, kHeads><<<grid, kThreads, 0, stream>>>(a);
}

}  // namespace

cudaError_t count_pairs(const SparseRows& query, std::int64_t query_nnz, const SparseRows& key_columns,
                        std::int32_t* count, cudaStream_t stream) {
  if (query_nnz == 0) return cudaSuccess;
  write_counts<<<blocks_for(query_nnz, kThreads), kThreads, 0, stream>>>(query, query_nnz, key_columns,
                                                                         count);
  return cudaGetLastError();
}

cudaError_t list_pairs(const ListPairsArguments& a, cudaStream_t stream) {
  if (a.query_nnz == 0) return cudaSuccess;
  write_pairs<<<blocks_for(a.query_nnz * kListLanes, kThreads), kThreads, 0, stream>>>(a);
  return cudaGetLastError();
}

template <class T>
cudaError_t pair_sums(const PairSumsArguments<T>& a, cudaStream_t stream) {
  if (a.entries == 0 || a.heads == 0) return cudaSuccess;
  if (a.heads == 1) {
    launch_sums<T, 1>(a, stream);
  } else if (a.heads == 2) {
    launch_sums<T, 2>(a, stream);
  } else if (a.heads <= 4) {
    launch_sums<T, 4>(a, stream);
  } else {
    launch_sums<T, 8>(a, stream);
  }
  return cudaGetLastError();
}

template cudaError_t pair_sums(const PairSumsArguments<float>&, cudaStream_t);
template cudaError_t pair_sums(const PairSumsArguments<double>&, cudaStream_t);

}  // namespace topomask::cuda
