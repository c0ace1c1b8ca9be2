#include "walks/cuda/modulate.h"

#include <algorithm>

#include "core/cuda/lanes.cuh"

namespace topomask::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kHeadsAtOnce = 8;
constexpr std::int64_t kMaxShared = 32 * 1024;

// One thread per entry and up to kHeadsAtOnce heads, so that the deposits are read once for all of them.
// f is in shared memory where it fits.
template <class Scalar, int kHeads>
__global__ void modulate_entries(DepositView deposits, const Scalar* f, std::int64_t heads,
                                 std::int64_t terms, Scalar* values, bool f_in_shared) {
  extern __shared__ __align__(16) char shared[];
  const std::int64_t first_head = static_cast<std::int64_t>(blockIdx.y) * kHeads;
  const int here = static_cast<int>(heads - first_head < kHeads ? heads - first_head : kHeads);
  const Scalar* f_here = f + first_head * terms;
  if (f_in_shared) {
    auto* copy = reinterpret_cast<Scalar*>(shared);
    for (std::int64_t i = threadIdx.x; i < here * terms; i += kThreads) copy[i] = f_here[i];
    __syncthreads();
    f_here = copy;
  }
  const std::int64_t entry = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (entry >= deposits.nnz) return;
  Scalar sum[kHeads] = {};
  const std::int64_t end = deposits.deposit_ptr[entry + 1];
  for (std::int64_t i = deposits.deposit_ptr[entry]; i < end; ++i) {
    const int hop = deposits.hop[i];
    if (hop >= terms) continue;
    const auto load = static_cast<Scalar>(deposits.load[i]);
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (h < here) sum[h] += load * f_here[h * terms + hop];
    }
  }
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (h < here) values[(first_head + h) * deposits.nnz + entry] = sum[h];
  }
}

constexpr int kTermsAtOnce = 16;
constexpr std::int64_t kMaxRuns = 1024, kMinEntriesPerRun = 256;

std::int64_t entries_per_run(std::int64_t nnz) {
  return std::max(kMinEntriesPerRun, (nnz + kMaxRuns - 1) / kMaxRuns);
}

// One block a run of entries, a head and kTermsAtOnce hops. Every thread adds up its entries in a column of
// its own, so that nothing is added atomically; the columns are added in a fixed order.
template <class Scalar>
__global__ void __launch_bounds__(kThreads)
    modulate_partial(DepositView deposits, const Scalar* grad_values, std::int64_t terms,
                     std::int64_t per_run, double* partial) {
  __shared__ double column[kTermsAtOnce][kThreads];
  const std::int64_t run = blockIdx.x, head = blockIdx.y;
  const int first_term = static_cast<int>(blockIdx.z) * kTermsAtOnce;
  const int here = static_cast<int>(terms - first_term < kTermsAtOnce ? terms - first_term : kTermsAtOnce);
  const int thread = static_cast<int>(threadIdx.x);
  for (int k = 0; k < here; ++k) column[k][thread] = 0;
  const std::int64_t begin = run * per_run;
  const std::int64_t end = begin + per_run < deposits.nnz ? begin + per_run : deposits.nnz;
  for (std::int64_t entry = begin + thread; entry < end; entry += kThreads) {
    const double grad = grad_values[head * deposits.nnz + entry];
    const std::int64_t last = deposits.deposit_ptr[entry + 1];
    for (std::int64_t i = deposits.deposit_ptr[entry]; i < last; ++i) {
      const int k = deposits.hop[i] - first_term;
      if (k >= 0 && k < here) column[k][thread] += static_cast<double>(deposits.load[i]) * grad;
    }
  }
  __syncthreads();
  const int lane = thread % kWarpSize;
  for (int k = thread / kWarpSize; k < here; k += kThreads / kWarpSize) {
    double sum = 0;
#pragma unroll
    for (int t = 0; t < kThreads; t += kWarpSize) sum += column[k][t + lane];
    sum = sum_lanes(sum);
    if (lane == 0) partial[(head * terms + first_term + k) * gridDim.x + run] = sum;
  }
}

// One block a (head, hop), over partial[cells, runs].
template <class Scalar>
__global__ void __launch_bounds__(kThreads)
    modulate_total(const double* partial, std::int64_t runs, Scalar* grad_f) {
  __shared__ double of_warp[kThreads / kWarpSize];
  const std::int64_t cell = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  double sum = 0;
#pragma unroll 4
  for (std::int64_t run = thread; run < runs; run += kThreads) sum += partial[cell * runs + run];
  sum = sum_lanes(sum);
  if (thread % kWarpSize == 0) of_warp[thread / kWarpSize] = sum;
  __syncthreads();
  if (thread >= kWarpSize) return;
  sum = sum_lanes(thread < kThreads / kWarpSize ? of_warp[thread] : 0.0);
  if (thread == 0) grad_f[cell] = static_cast<Scalar>(sum);
}

template <class Scalar, int kHeads>
void launch_modulate(const DepositView& deposits, const Scalar* f, std::int64_t heads, std::int64_t terms,
                     Scalar* values, cudaStream_t stream) {
  const std::int64_t bytes =
      std::min<std::int64_t>(heads, kHeads) * terms * static_cast<std::int64_t>(sizeof(Scalar));
  const bool in_shared = bytes <= kMaxShared;
  const dim3 grid(static_cast<unsigned>((deposits.nnz + kThreads - 1) / kThreads),
                  static_cast<unsigned>((heads + kHeads - 1) / kHeads));
  modulate_entries<Scalar, kHeads>
      <<<grid, kThreads, in_shared ? bytes : 0, stream>>>(deposits, f, heads, terms, values, in_shared);
}

}  // namespace

template <class Scalar>
cudaError_t modulate(const DepositView& deposits, const Scalar* f, std::int64_t heads, std::int64_t terms,
                     Scalar* values, cudaStream_t stream) {
  if (deposits.nnz == 0 || heads == 0) return cudaSuccess;
  if (heads == 1) {
    launch_modulate<Scalar, 1>(deposits, f, heads, terms, values, stream);
  } else {
    launch_modulate<Scalar, kHeadsAtOnce>(deposits, f, heads, terms, values, stream);
  }
  return cudaGetLastError();
}

std::int64_t modulate_backward_runs(std::int64_t nnz) {
  return (nnz + entries_per_run(nnz) - 1) / entries_per_run(nnz);
}

template <class Scalar>
cudaError_t modulate_backward(const DepositView& deposits, const Scalar* grad_values, std::int64_t heads,
                              std::int64_t terms, Scalar* grad_f, double* partial, cudaStream_t stream) {
  const std::int64_t runs = modulate_backward_runs(deposits.nnz), cells = heads * terms;
  if (cells == 0) return cudaSuccess;
  if (runs > 0) {
    const dim3 grid(static_cast<unsigned>(runs), static_cast<unsigned>(heads),
                    static_cast<unsigned>((terms + kTermsAtOnce - 1) / kTermsAtOnce));
    modulate_partial<<<grid, kThreads, 0, stream>>>(deposits, grad_values, terms,
                                                    entries_per_run(deposits.nnz), partial);
  }
  modulate_total<<<static_cast<unsigned>(cells), kThreads, 0, stream>>>(partial, runs, grad_f);
  return cudaGetLastError();
}

template cudaError_t modulate(const DepositView&, const float*, std::int64_t, std::int64_t, float*,
                              cudaStream_t);
template cudaError_t modulate(const DepositView&, const double*, std::int64_t, std::int64_t, double*,
                              cudaStream_t);
template cudaError_t modulate_backward(const DepositView&, const float*, std::int64_t, std::int64_t, float*,
                                       double*, cudaStream_t);
template cudaError_t modulate_backward(const DepositView&, const double*, std::int64_t, std::int64_t, double*,
                                       double*, cudaStream_t);

}  // namespace topomask::cuda
