// The choice between tensor cores and everything else, and the sums over rows.
#include "attention/cuda/column_attention_device.cuh"
#include "core/cuda/grid.h"

namespace topomask {

namespace columns {
namespace {

constexpr int kThreads = 256, kRowsOfBlock = kThreads / kWarpSize, kProductLanes = 8;

__device__ inline float2 load_two(const __nv_bfloat16* from) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(from));
}
__device__ inline float2 load_two(const float* from) {
  return {from[0], from[1]};
}
__device__ inline double2 load_two(const double* from) {
  return {from[0], from[1]};
}

// A warp for a row; a lane has columns 2 lane and 2 lane + 1. U: the type of u.
template <class T, class U>
__global__ void __launch_bounds__(kThreads) row_sum_kernel(const ColumnPass p, const ColumnRows rows) {
  using R = RealOf<T>;
  static_assert(kColumnWidth == 2 * kWarpSize);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.x / kWarpSize;
  if (row >= p.num_nodes) return;
  const std::int64_t pair = p.first_pair + blockIdx.y, batch = pair / p.heads, head = pair % p.heads;
  const std::int64_t begin = rows.row_ptr == nullptr ? row : rows.row_ptr[row];
  const std::int64_t end = rows.row_ptr == nullptr ? row + 1 : rows.row_ptr[row + 1];
  const int column = 2 * lane, columns = p.value_columns;
  const bool has[2] = {column < columns, column + 1 < columns};
  const U* const u = static_cast<const U*>(p.u) + blockIdx.y * p.rows.nnz * columns + column;
  const R* const u_edge = static_cast<const R*>(p.u_edge) + blockIdx.y * p.rows.nnz;
  const R* const value =
      rows.value == nullptr ? nullptr : static_cast<const R*>(rows.value) + head * rows.value_step;
  const bool edged = p.edge == ColumnEdge::ones;
  R* const gradient =
      rows.value_gradient == nullptr ? nullptr : static_cast<R*>(rows.value_gradient) + pair * p.rows.nnz;
  const std::int64_t index = pair * p.num_nodes + row;
  const R row_scale = rows.row_scale == nullptr ? R{1} : static_cast<const R*>(rows.row_scale)[index];

  R along[2] = {0, 0};
  if (gradient != nullptr) {
    const T* const from =
        row_attention::head_rows<T>(rows.along.rows, batch, head) + row * rows.along.rows.node_step + column;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (has[i]) along[i] = row_scale * mapped(to_real(from[i]), rows.along.relu, static_cast<R>(p.epsilon));
    }
  }

  R sum[2] = {0, 0}, edge = 0;
  if (!rows.first) {
    const R* const before = static_cast<const R*>(rows.sums) + index * columns + column;
#pragma unroll
    for (int i = 0; i < 2; ++i) sum[i] = has[i] ? before[i] : R{0};
    if (edged) edge = static_cast<const R*>(rows.edge_sums)[index];
  }
  const bool paired = columns % 2 == 0;
#pragma unroll 4
  for (std::int64_t entry = begin; entry < end; ++entry) {
    const R weight = value == nullptr ? R{1} : value[entry];
    R here[2] = {0, 0};
    if (paired && has[0]) {
      const auto two = load_two(u + entry * columns);
      here[0] = two.x;
      here[1] = two.y;
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) here[i] = has[i] ? to_real(u[entry * columns + i]) : R{0};
    }
    sum[0] += weight * here[0];
    sum[1] += weight * here[1];
    if (edged) edge += weight * u_edge[entry];
    if (gradient != nullptr) {
      const R product = sum_lanes(along[0] * here[0] + along[1] * here[1]);
      if (lane == 0) gradient[entry] = rows.add_to_gradient ? gradient[entry] + product : product;
    }
  }
  if (!rows.last) {
    R* const after = static_cast<R*>(rows.sums) + index * columns + column;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (has[i]) after[i] = sum[i];
    }
    if (edged && lane == 0) static_cast<R*>(rows.edge_sums)[index] = edge;
    return;
  }
  const R scale = finished_scale<R>(rows, index, edge, lane == 0);
  T* const out = row_attention::head_rows<T>(rows.out, batch, head) + row * rows.out.node_step + column;
  const T* const gate = rows.gate.data == nullptr ? nullptr
                                                  : row_attention::head_rows<T>(rows.gate, batch, head) +
                                                        row * rows.gate.node_step + column;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (!has[i]) continue;
    const bool passes = gate == nullptr || to_real(gate[i]) >= 0;
    out[i] = from_real<T>(passes ? scale * sum[i] : R{0});
  }
}

// Eight lanes for a row, each with pieces of kEach numbers.
template <class T, int kEach>
__global__ void __launch_bounds__(kThreads)
    row_product_kernel(std::int64_t heads, std::int64_t num_nodes, std::int64_t columns, Rows4 a, Rows4 b,
                       RealOf<T> factor, RealOf<T>* product) {
  struct alignas(kEach * sizeof(T)) Piece {
    T number[kEach];
  };
  const int lane = static_cast<int>(threadIdx.x) % kProductLanes;
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads / kProductLanes) + threadIdx.x / kProductLanes;
  const bool exists = row < num_nodes;
  const std::int64_t batch = blockIdx.y / heads, head = blockIdx.y % heads;
  RealOf<T> sum = 0;
  if (exists) {
    const T* const left = row_attention::head_rows<T>(a, batch, head) + row * a.node_step;
    const T* const right = row_attention::head_rows<T>(b, batch, head) + row * b.node_step;
    for (std::int64_t column = lane * kEach; column < columns; column += kProductLanes * kEach) {
      const Piece x = *reinterpret_cast<const Piece*>(left + column);
      const Piece y = *reinterpret_cast<const Piece*>(right + column);
#pragma unroll
      for (int i = 0; i < kEach; ++i) sum += to_real(x.number[i]) * to_real(y.number[i]);
    }
  }
  sum = sum_lanes<kProductLanes>(sum);
  if (exists && lane == 0) product[blockIdx.y * num_nodes + row] = factor * sum;
}

template <class T>
cudaError_t launch_row_sums(const ColumnPass& p, const ColumnRows& rows, cudaStream_t stream) {
  const dim3 blocks(blocks_for(p.num_nodes, kRowsOfBlock), static_cast<unsigned>(p.num_pairs));
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (columns_on_tensor_cores(p)) {
      row_sum_kernel<T, T><<<blocks, kThreads, 0, stream>>>(p, rows);
      return cudaGetLastError();
    }
  }
  row_sum_kernel<T, RealOf<T>><<<blocks, kThreads, 0, stream>>>(p, rows);
  return cudaGetLastError();
}

}  // namespace
}  // namespace columns

namespace {

// Whether rows are chunks of 16 bytes, `size` numbers each.
bool whole_chunks(const Rows4& rows, int size) {
  return reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 && rows.batch_step % size == 0 &&
         rows.head_step % size == 0 && rows.node_step % size == 0;
}

}  // namespace

bool columns_on_tensor_cores(const ColumnPass& pass) {
  return pass.dtype == Real::bfloat16 && pass.features % 8 == 0 && pass.value_columns % 8 == 0 &&
         whole_chunks(pass.x.rows, 8) && whole_chunks(pass.y.rows, 8) && whole_chunks(pass.z.rows, 8);
}

std::int64_t column_workspace(const ColumnPass& pass) {
  return columns_on_tensor_cores(pass) ? columns::tensor_core_workspace(pass)
                                       : columns::general_workspace(pass);
}

cudaError_t column_products(const ColumnPass& pass, cudaStream_t stream) {
  return columns_on_tensor_cores(pass) ? columns::tensor_core_products(pass, nullptr, stream)
                                       : columns::general_products(pass, stream);
}

cudaError_t unmasked_rows(const ColumnPass& pass, const ColumnRows& rows, cudaStream_t stream) {
  return columns::tensor_core_products(pass, &rows, stream);
}

cudaError_t column_row_sums(const ColumnPass& pass, const ColumnRows& rows, cudaStream_t stream) {
  if (pass.num_nodes == 0) return cudaSuccess;
  return row_attention::with_type(
      pass.dtype, [&](auto type) { return columns::launch_row_sums<decltype(type)>(pass, rows, stream); });
}

cudaError_t row_products(Real dtype, std::int64_t batch, std::int64_t heads, std::int64_t num_nodes,
                         std::int64_t columns, const Rows4& a, const Rows4& b, double factor, void* product,
                         cudaStream_t stream) {
  if (num_nodes == 0) return cudaSuccess;
  return row_attention::with_type(dtype, [&](auto type) {
    using T = decltype(type);
    using R = row_attention::RealOf<T>;
    const dim3 blocks(blocks_for(num_nodes, columns::kThreads / columns::kProductLanes),
                      static_cast<unsigned>(batch * heads));
    const auto launch = [&]<int kEach>() {
      columns::row_product_kernel<T, kEach><<<blocks, columns::kThreads, 0, stream>>>(
          heads, num_nodes, columns, a, b, static_cast<R>(factor), static_cast<R*>(product));
    };
    constexpr int kWhole = 16 / sizeof(T);
    if (columns % kWhole == 0 && whole_chunks(a, kWhole) && whole_chunks(b, kWhole)) {
      launch.template operator()<kWhole>();
    } else {
      launch.template operator()<1>();
    }
    return cudaGetLastError();
  });
}

}  // namespace topomask
