// Column products for every type and size, in float32 or float64: what the tensor cores do not take.
#include "attention/cuda/column_attention_device.cuh"
#include "core/cuda/grid.h"

namespace topomask::columns {

namespace {

constexpr int kThreads = 256, kWidth = kColumnWidth, kKeys = 16, kRows = 32;
constexpr int kSide = 4;  // a thread keeps kSide x kSide numbers of Z
static_assert(kThreads * kSide * kSide == kWidth * kWidth);

template <class R>
struct Shared {
  R state[kWidth][kWidth];  // Z_c; before that, tiles of y and z
  R rows[kRows][kWidth + 1];
  R edge[kWidth];

  __device__ R* y() { return &state[0][0]; }                   // [kKeys][kWidth]
  __device__ R* z() { return &state[0][0] + kKeys * kWidth; }  // [kKeys][kWidth]
};
static_assert(2 * kKeys <= kWidth);

// Z_c of the keys of a span, in registers: features kSide * (thread / 16) and on, columns likewise of
// thread % 16. `edge` is left in shared memory.
template <class T>
__device__ void sum_keys(const ColumnPass& p, const PairOf<T>& pair, const Span& keys,
                         Shared<RealOf<T>>& shared, RealOf<T> (&sum)[kSide][kSide]) {
  using R = RealOf<T>;
  const int thread = static_cast<int>(threadIdx.x);
  const auto epsilon = static_cast<R>(p.epsilon);
  const int feature = thread / 16 * kSide, column = thread % 16 * kSide;
  R *const y = shared.y(), *const z = shared.z();
  R edge = 0;
  for (std::int64_t first = keys.begin; first < keys.end; first += kKeys) {
    __syncthreads();
    for (int i = thread; i < kKeys * kWidth; i += kThreads) {
      const int own = i % kWidth;
      const std::int64_t position = first + i / kWidth;
      R y_number = 0, z_number = 0;
      if (position < keys.end) {
        const std::int64_t node = node_at(p.keys, position);
        const R weight = pair.weight(p.keys, position, node);
        if (own < p.features)
          y_number = weight * mapped(to_real(pair.y[node * p.y.rows.node_step + own]), p.y.relu, epsilon);
        if (own < p.value_columns)
          z_number = mapped(to_real(pair.z[node * p.z.rows.node_step + own]), p.z.relu, epsilon);
      }
      y[i] = y_number;
      z[i] = z_number;
    }
    __syncthreads();
#pragma unroll
    for (int key = 0; key < kKeys; ++key) {
      R left[kSide], right[kSide];
#pragma unroll
      for (int i = 0; i < kSide; ++i) {
        left[i] = y[key * kWidth + feature + i];
        right[i] = z[key * kWidth + column + i];
      }
#pragma unroll
      for (int i = 0; i < kSide; ++i) {
#pragma unroll
        for (int j = 0; j < kSide; ++j) sum[i][j] += left[i] * right[j];
      }
    }
    if (p.edge != ColumnEdge::none && thread < kWidth) {
      for (int key = 0; key < kKeys && first + key < keys.end; ++key) {
        if (p.edge == ColumnEdge::ones) {
          edge += y[key * kWidth + thread];
        } else {
          const std::int64_t node = node_at(p.keys, first + key);
          edge += pair.weight(p.keys, first + key, node) * pair.extra_of_y(node) * z[key * kWidth + thread];
        }
      }
    }
  }
  __syncthreads();
  if (thread < kWidth) shared.edge[thread] = edge;
}

template <class R, class Use>
__device__ void for_state(const R (&sum)[kSide][kSide], const Use& use) {
  const int feature = static_cast<int>(threadIdx.x) / 16 * kSide;
  const int column = static_cast<int>(threadIdx.x) % 16 * kSide;
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
#pragma unroll
    for (int j = 0; j < kSide; ++j) use(feature + i, column + j, sum[i][j]);
  }
}

// Rows of a span times Z_c and its edge, both in shared memory.
template <class T>
__device__ void multiply_rows(const ColumnPass& p, const PairOf<T>& pair, std::int64_t pair_of_call,
                              const Span& rows, Shared<RealOf<T>>& shared) {
  using R = RealOf<T>;
  constexpr int kEach = kRows * kWidth / kThreads;  // numbers of a row for a thread
  constexpr int kLanes = kWidth / kEach;            // threads of a row
  const int thread = static_cast<int>(threadIdx.x), own_row = thread / kLanes, own = thread % kLanes;
  const auto epsilon = static_cast<R>(p.epsilon);
  for (std::int64_t first = rows.begin; first < rows.end; first += kRows) {
    __syncthreads();
    for (int i = thread; i < kRows * kWidth; i += kThreads) {
      const std::int64_t position = first + i / kWidth;
      const int feature = i % kWidth;
      R number = 0;
      if (position < rows.end && feature < p.features) {
        const std::int64_t node = node_at(p.rows, position);
        number = mapped(to_real(pair.x[node * p.x.rows.node_step + feature]), p.x.relu, epsilon);
      }
      shared.rows[i / kWidth][feature] = number;
    }
    __syncthreads();
    const std::int64_t position = first + own_row;
    if (position >= rows.end) continue;
    // Columns own, own + kLanes, ...: neighbouring threads read neighbouring numbers of Z.
    R product[kEach] = {}, edge = 0;
    for (int feature = 0; feature < p.features; ++feature) {
      const R x = shared.rows[own_row][feature];
#pragma unroll
      for (int i = 0; i < kEach; ++i) product[i] += x * shared.state[feature][own + i * kLanes];
      edge += x * shared.edge[feature];
    }
    const std::int64_t place = pair_of_call * p.rows.nnz + place_of(p.rows, position);
    const R extra = p.edge == ColumnEdge::extra ? pair.extra_of_x(node_at(p.rows, position)) : R{0};
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int column = own + i * kLanes;
      if (column >= p.value_columns) continue;
      const R beside = p.edge == ColumnEdge::extra ? extra * shared.edge[column] : R{0};
      static_cast<R*>(p.u)[place * p.value_columns + column] = product[i] + beside;
    }
    if (p.edge == ColumnEdge::ones && own == 0) static_cast<R*>(p.u_edge)[place] = edge;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) whole_kernel(const ColumnPass p) {
  extern __shared__ __align__(16) char memory[];
  auto& shared = *reinterpret_cast<Shared<RealOf<T>>*>(memory);
  const std::int64_t column = p.work.whole[blockIdx.x];
  const PairOf<T> pair(p, p.first_pair + blockIdx.y);
  RealOf<T> sum[kSide][kSide] = {};
  sum_keys<T>(p, pair, span_of(p.keys, column), shared, sum);
  for_state(sum, [&](int feature, int z_column, auto number) { shared.state[feature][z_column] = number; });
  multiply_rows<T>(p, pair, blockIdx.y, span_of(p.rows, column), shared);
}

// In the workspace, of every chunk and then of every hub: Z and its edge.
constexpr std::int64_t kStateNumbers = kWidth * kWidth + kWidth;

template <class R>
__device__ R* chunk_state(const ColumnPass& p, std::int64_t pair_of_call, std::int64_t chunk) {
  return static_cast<R*>(p.workspace) + (pair_of_call * p.work.num_key_chunks + chunk) * kStateNumbers;
}
template <class R>
__device__ R* hub_state(const ColumnPass& p, std::int64_t pair_of_call, std::int64_t hub) {
  const std::int64_t chunks = p.num_pairs * p.work.num_key_chunks;
  return static_cast<R*>(p.workspace) + (chunks + pair_of_call * p.work.num_hubs + hub) * kStateNumbers;
}

template <class T>
__global__ void __launch_bounds__(kThreads) hub_keys_kernel(const ColumnPass p) {
  using R = RealOf<T>;
  extern __shared__ __align__(16) char memory[];
  auto& shared = *reinterpret_cast<Shared<R>*>(memory);
  const std::int64_t chunk = blockIdx.x;
  const PairOf<T> pair(p, p.first_pair + blockIdx.y);
  R sum[kSide][kSide] = {};
  sum_keys<T>(p, pair, key_chunk(p, chunk), shared, sum);
  R* const to = chunk_state<R>(p, blockIdx.y, chunk);
  for_state(sum, [&](int feature, int column, R number) { to[feature * kWidth + column] = number; });
  if (threadIdx.x < kWidth) to[kWidth * kWidth + threadIdx.x] = shared.edge[threadIdx.x];
}

template <class R>
__global__ void __launch_bounds__(kThreads) hub_sum_kernel(const ColumnPass p) {
  const std::int64_t hub = blockIdx.x;
  const Span chunks = key_chunks_of(p.work, hub);
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.z) * kThreads + threadIdx.x;
  if (i >= kStateNumbers) return;
  R sum = 0;
  for (std::int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk)
    sum += chunk_state<R>(p, blockIdx.y, chunk)[i];
  hub_state<R>(p, blockIdx.y, hub)[i] = sum;
}

template <class T>
__global__ void __launch_bounds__(kThreads) hub_rows_kernel(const ColumnPass p) {
  using R = RealOf<T>;
  extern __shared__ __align__(16) char memory[];
  auto& shared = *reinterpret_cast<Shared<R>*>(memory);
  const std::int64_t chunk = blockIdx.x, hub = hub_of_rows(p.work, chunk);
  const R* const from = hub_state<R>(p, blockIdx.y, hub);
  for (int i = static_cast<int>(threadIdx.x); i < kWidth * kWidth; i += kThreads)
    shared.state[i / kWidth][i % kWidth] = from[i];
  if (threadIdx.x < kWidth) shared.edge[threadIdx.x] = from[kWidth * kWidth + threadIdx.x];
  const PairOf<T> pair(p, p.first_pair + blockIdx.y);
  multiply_rows<T>(p, pair, blockIdx.y, row_chunk(p, chunk), shared);
}

template <class T>
cudaError_t launch(const ColumnPass& p, cudaStream_t stream) {
  using R = RealOf<T>;
  const auto pairs = static_cast<unsigned>(p.num_pairs);
  constexpr std::size_t kBytes = sizeof(Shared<R>);
  // float64 needs more than a kernel has unasked.
  for (const void* kernel :
       {reinterpret_cast<const void*>(whole_kernel<T>), reinterpret_cast<const void*>(hub_keys_kernel<T>),
        reinterpret_cast<const void*>(hub_rows_kernel<T>)}) {
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes));
    if (status != cudaSuccess) return status;
  }
  const auto blocks = [&](std::int64_t count) { return dim3(static_cast<unsigned>(count), pairs); };
  if (p.work.num_whole > 0) whole_kernel<T><<<blocks(p.work.num_whole), kThreads, kBytes, stream>>>(p);
  if (p.work.num_hubs > 0) {
    hub_keys_kernel<T><<<blocks(p.work.num_key_chunks), kThreads, kBytes, stream>>>(p);
    const dim3 slices(static_cast<unsigned>(p.work.num_hubs), pairs, blocks_for(kStateNumbers, kThreads));
    hub_sum_kernel<R><<<slices, kThreads, 0, stream>>>(p);
    hub_rows_kernel<T><<<blocks(p.work.num_row_chunks), kThreads, kBytes, stream>>>(p);
  }
  return cudaGetLastError();
}

}  // namespace

std::int64_t general_workspace(const ColumnPass& pass) {
  const std::int64_t states = pass.num_pairs * (pass.work.num_key_chunks + pass.work.num_hubs);
  return states * kStateNumbers * (pass.dtype == Real::float64 ? 8 : 4);
}

cudaError_t general_products(const ColumnPass& pass, cudaStream_t stream) {
  return row_attention::with_type(pass.dtype,
                                  [&](auto type) { return launch<decltype(type)>(pass, stream); });
}

}  // namespace topomask::columns
