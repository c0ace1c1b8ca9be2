#include "attention/cuda/row_attention.h"

#include <algorithm>

#include "attention/cuda/row_attention_device.cuh"
#include "attention/cuda/row_attention_kernels.h"
#include "core/cuda/grid.h"

namespace topomask {

using namespace row_attention;

namespace {

constexpr int kThreads = 128;

struct LongRow {
  std::int64_t pair, batch, head, row, first_segment, last_segment;
};

// One block per long row and pair.
__device__ LongRow long_row_of(const DeviceRows& rows, const RowAttentionShape& shape) {
  LongRow found;
  const std::int64_t which = blockIdx.x % rows.num_long;
  found.pair = blockIdx.x / rows.num_long;
  found.batch = found.pair / shape.heads;
  found.head = found.pair % shape.heads;
  found.row = rows.long_row[which];
  found.first_segment = rows.segment_ptr[which];
  found.last_segment = rows.segment_ptr[which + 1];
  return found;
}

template <class T>
__global__ void combine_forward(const __grid_constant__ RowAttentionForward pass) {
  using R = RealOf<T>;
  const RowAttentionShape& shape = pass.shape;
  const std::int64_t d_v = shape.value_columns, width = d_v + 2;
  const LongRow at = long_row_of(pass.mask, shape);
  const auto segment = [&](std::int64_t s) {
    return segment_row_of<R>(pass.workspace, pass.mask, at.pair, s, width);
  };
  R row_max = -INFINITY;
  if (shape.rule.is_softmax()) {
    for (std::int64_t s = at.first_segment; s < at.last_segment; ++s)
      row_max = max(row_max, segment(s)[d_v + 1]);
    row_max = shift_of(row_max);
  }
  const auto factor = [&](std::int64_t s) {
    return shape.rule.is_softmax() ? exp(segment(s)[d_v + 1] - row_max) : R{1};
  };
  R normaliser = 0;
  for (std::int64_t s = at.first_segment; s < at.last_segment; ++s) normaliser += factor(s) * segment(s)[d_v];
  const R inverse = inverse_of(normaliser, static_cast<R>(shape.rule.guard));
  if (threadIdx.x == 0) {
    static_cast<R*>(pass.inverse)[at.pair * pass.mask.num_rows + at.row] = inverse;
    if (shape.rule.is_softmax())
      static_cast<R*>(pass.row_max)[at.pair * pass.mask.num_rows + at.row] = row_max;
  }
  T* out = head_rows<T>(pass.out, at.batch, at.head) + at.row * pass.out.node_step;
  for (std::int64_t c = threadIdx.x; c < d_v; c += kThreads) {
    R sum = 0;
    for (std::int64_t s = at.first_segment; s < at.last_segment; ++s) sum += factor(s) * segment(s)[c];
    out[c] = from_real<T>(sum * inverse);
  }
}

// result[row, c] = sum over segments of column `first + c`, 0 where a ReLU at `at` passes nothing.
template <class T>
__global__ void combine_sums(DeviceRows rows, RowAttentionShape shape, const void* workspace,
                             std::int64_t width, std::int64_t first, std::int64_t columns, Rows4 features,
                             bool relu, Rows4 result) {
  using R = RealOf<T>;
  const LongRow at = long_row_of(rows, shape);
  T* out = head_rows<T>(result, at.batch, at.head) + at.row * result.node_step;
  const T* x = head_rows<const T>(features, at.batch, at.head) + at.row * features.node_step;
  for (std::int64_t c = threadIdx.x; c < columns; c += kThreads) {
    R sum = 0;
    for (std::int64_t s = at.first_segment; s < at.last_segment; ++s)
      sum += segment_row_of<R>(const_cast<void*>(workspace), rows, at.pair, s, width)[first + c];
    out[c] = from_real<T>(relu && !(to_real(x[c]) >= 0) ? R{0} : sum);
  }
}

constexpr int kSumThreads = 256, kSumEntries = 2;  // of a thread: enough loads in flight

template <class R>
__global__ void __launch_bounds__(kSumThreads)
    add_rows(const R* grad_value, std::int64_t rows, std::int64_t nnz, R* sum) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kSumThreads * kSumEntries + threadIdx.x;
  R own[kSumEntries] = {};
#pragma unroll 8
  for (std::int64_t p = 0; p < rows; ++p) {
#pragma unroll
    for (int e = 0; e < kSumEntries; ++e) {
      const std::int64_t entry = first + e * kSumThreads;
      if (entry < nnz) own[e] += __ldcs(grad_value + p * nnz + entry);
    }
  }
#pragma unroll
  for (int e = 0; e < kSumEntries; ++e) {
    const std::int64_t entry = first + e * kSumThreads;
    if (entry < nnz) sum[entry] = own[e];
  }
}

unsigned long_blocks(const DeviceRows& rows, const RowAttentionShape& shape) {
  return static_cast<unsigned>(rows.num_long * shape.batch * shape.heads);
}

struct Combined {
  std::int64_t width, first, columns;
  Rows4 features;
  bool relu;
  Rows4 result;
};

cudaError_t combine(const RowAttentionBackward& pass, const DeviceRows& rows, const Combined& c,
                    cudaStream_t stream) {
  return with_type(pass.dtype, [&](auto zero) {
    combine_sums<decltype(zero)><<<long_blocks(rows, pass.shape), kThreads, 0, stream>>>(
        rows, pass.shape, pass.workspace, c.width, c.first, c.columns, c.features, c.relu, c.result);
    return cudaGetLastError();
  });
}

std::int64_t element_bytes(Real dtype) {
  return dtype == Real::float64 ? 8 : dtype == Real::float32 ? 4 : 2;
}

bool is_aligned(const Rows4& rows, std::int64_t element) {
  const auto whole = [&](std::int64_t step) { return step * element % 16 == 0; };
  return reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 && whole(rows.batch_step) &&
         whole(rows.head_step) && whole(rows.node_step) && rows.node_step < (std::int64_t{1} << 29);
}

template <class... Rows>
bool fits_vectors(Real dtype, const RowAttentionShape& shape, const Rows&... rows) {
  if (dtype == Real::float64) return false;
  const std::int64_t element = element_bytes(dtype);
  const std::int64_t bytes[2] = {shape.features * element, shape.value_columns * element};
  return std::all_of(bytes, bytes + 2,
                     [](std::int64_t b) { return b > 0 && b % 16 == 0 && b <= kMaxVectorBytes; }) &&
         (is_aligned(rows, element) && ...);
}

// Asked once for both halves: they hand weights over in a format of their own.
bool backward_fits_vectors(const RowAttentionBackward& pass) {
  return fits_vectors(pass.dtype, pass.shape, pass.q, pass.k, pass.v, pass.out, pass.grad_out, pass.grad_q,
                      pass.grad_k, pass.grad_v);
}

cudaError_t launch_forward(const RowAttentionForward& pass, bool segments, cudaStream_t stream) {
  if (!rows_are_vectors(pass)) return launch_general_forward(pass, segments, stream);
  if (pass.dtype == Real::float32) return launch_forward_float32(pass, segments, stream);
  if (pass.dtype == Real::bfloat16) return launch_forward_bfloat16(pass, segments, stream);
  return launch_forward_float16(pass, segments, stream);
}

}  // namespace

bool rows_are_vectors(const RowAttentionForward& pass) {
  return fits_vectors(pass.dtype, pass.shape, pass.q, pass.k, pass.v, pass.out);
}

std::int64_t row_attention_workspace(const DeviceRows& rows, const RowAttentionShape& shape) {
  return shape.batch * shape.heads * rows.num_segments * (shape.features + shape.value_columns + 2);
}

std::int64_t row_attention_summed_heads(const RowAttentionBackward& pass) {
  if (pass.value_step != 0 || !backward_fits_vectors(pass)) return 1;
  const std::int64_t columns = std::max(pass.shape.features, pass.shape.value_columns);
  const int together = heads_of_a_warp(lanes_for(columns * element_bytes(pass.dtype)));
  return pass.shape.heads % together == 0 ? together : 1;
}

cudaError_t row_attention_forward(const RowAttentionForward& pass, cudaStream_t stream) {
  const cudaError_t status = launch_forward(pass, /*segments=*/false, stream);
  return status == cudaSuccess ? long_row_attention_forward(pass, stream) : status;
}

cudaError_t long_row_attention_forward(const RowAttentionForward& pass, cudaStream_t stream) {
  if (pass.mask.num_long == 0) return cudaSuccess;
  const cudaError_t status = launch_forward(pass, /*segments=*/true, stream);
  if (status != cudaSuccess) return status;
  return with_type(pass.dtype, [&](auto zero) {
    combine_forward<decltype(zero)><<<long_blocks(pass.mask, pass.shape), kThreads, 0, stream>>>(pass);
    return cudaGetLastError();
  });
}

cudaError_t row_attention_backward(const RowAttentionBackward& pass, cudaStream_t stream) {
  const bool vectors = backward_fits_vectors(pass);
  const auto launch = [&](bool segments) {
    if (!vectors) return launch_general_backward_rows(pass, segments, stream);
    if (pass.dtype == Real::float32) return launch_backward_rows_float32(pass, segments, stream);
    if (pass.dtype == Real::bfloat16) return launch_backward_rows_bfloat16(pass, segments, stream);
    return launch_backward_rows_float16(pass, segments, stream);
  };
  const cudaError_t status = launch(false);
  if (status != cudaSuccess || pass.mask.num_long == 0) return status;
  const cudaError_t long_status = launch(true);
  if (long_status != cudaSuccess) return long_status;
  const std::int64_t m = pass.shape.features;
  return combine(pass, pass.mask, {m, 0, m, pass.q, pass.shape.rule.is_relu(), pass.grad_q}, stream);
}

cudaError_t column_attention_backward(const RowAttentionBackward& pass, cudaStream_t stream) {
  const bool vectors = backward_fits_vectors(pass);
  const auto launch = [&](bool segments) {
    if (!vectors) return launch_general_backward_columns(pass, segments, stream);
    if (pass.dtype == Real::float32) return launch_backward_columns_float32(pass, segments, stream);
    if (pass.dtype == Real::bfloat16) return launch_backward_columns_bfloat16(pass, segments, stream);
    return launch_backward_columns_float16(pass, segments, stream);
  };
  const cudaError_t status = launch(false);
  if (status != cudaSuccess || pass.columns.num_long == 0) return status;
  const cudaError_t long_status = launch(true);
  if (long_status != cudaSuccess) return long_status;
  const std::int64_t m = pass.shape.features, d_v = pass.shape.value_columns, width = m + d_v;
  const cudaError_t key_status =
      combine(pass, pass.columns, {width, 0, m, pass.k, pass.shape.rule.is_relu(), pass.grad_k}, stream);
  if (key_status != cudaSuccess) return key_status;
  return combine(pass, pass.columns, {width, m, d_v, pass.grad_out, false, pass.grad_v}, stream);
}

cudaError_t sum_of_rows(const void* grad_value, Real dtype, std::int64_t rows, std::int64_t nnz, void* sum,
                        cudaStream_t stream) {
  if (nnz == 0) return cudaSuccess;
  const unsigned blocks = blocks_for(nnz, kSumThreads * kSumEntries);
  const auto launch = [&](auto zero) {
    using R = decltype(zero);
    add_rows<<<blocks, kSumThreads, 0, stream>>>(static_cast<const R*>(grad_value), rows, nnz,
                                                 static_cast<R*>(sum));
    return cudaGetLastError();
  };
  return dtype == Real::float64 ? launch(double{}) : launch(float{});
}

}  // namespace topomask
