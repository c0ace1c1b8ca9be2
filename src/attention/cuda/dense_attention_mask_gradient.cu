// dL/dM_ij = sum over the batch of e_ij (<grad_out_i, v_j> - delta_i) / D_i, at the zeros of M as well: those
// of softmax may have scores far above the maximum of their row. Multiplied in two halves, exp(x / 2) each,
// they overflow only where the gradient does.
//
// A block of threads owns a tile of dL/dM in registers and walks a part of the batch, computing scores again:
// adding every entry's share up in global memory would move as many bytes as there are scores. The parts are
// summed afterwards in a fixed order.
#include "attention/cuda/dense_attention_tiles.cuh"
#include "attention/cuda/dense_attention_warpgroup.h"
#include "core/cuda/grid.h"

namespace topomask {

using namespace dense;

namespace {

constexpr int kRowWarps = 4, kColumnWarps = 2;
constexpr int kThreads = kRowWarps * kColumnWarps * 32;

template <int kWidth>
struct GradientShape {
  static constexpr int kSide = kWidth == 128 ? 64 : 128;  // of a tile of the mask
  static constexpr int kRowBlocks = kSide / kRowWarps / 16, kColumnBlocks = kSide / kColumnWarps / 16;
  static constexpr int kTileBytes = kSide * kWidth * 2;
  static constexpr int kStatisticsBytes = 3 * kSide * 4;  // 1/D_i, max_i, delta_i
  static constexpr int kStageBytes = 4 * kTileBytes + kStatisticsBytes;
  static constexpr int kSharedBytes = 2 * kStageBytes;
  static_assert(kSharedBytes <= kMostSharedBytes);
};

template <class T, int kWidth, bool kSoftmax>
__global__ __launch_bounds__(kThreads,
                             1) void mask_gradient_kernel(const __grid_constant__ DenseAttention a,
                                                          const __grid_constant__ DenseMaskGradient b,
                                                          int parts, float* to) {
  using Shape = GradientShape<kWidth>;
  using Layout = Tile<kWidth>;
  constexpr int kGroups = Shape::kSide / Groups<kWidth, kThreads>::kRows;
  constexpr int kRowBlocks = Shape::kRowBlocks, kColumnBlocks = Shape::kColumnBlocks, kSide = Shape::kSide;
  extern __shared__ __align__(1024) unsigned char shared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane >> 2, t = lane & 3;
  const int n = a.num_nodes;
  const int side = (n + kSide - 1) / kSide;
  const int first_row = static_cast<int>(blockIdx.x / side) * kSide;
  const int first_column = static_cast<int>(blockIdx.x % side) * kSide;
  const int mask_head = static_cast<int>(blockIdx.y), part = static_cast<int>(blockIdx.z);
  const int heads_each = a.mask_heads == 1 ? a.heads : 1;
  // Entries of the sum: (batch, head) pairs of this mask.
  const int entries = a.batch * heads_each;
  const int begin = static_cast<int>(static_cast<std::int64_t>(entries) * part / parts);
  const int end = static_cast<int>(static_cast<std::int64_t>(entries) * (part + 1) / parts);
  const float half_scale = a.rule.scale * kLog2e / 2;

  const std::uint32_t base = shared_address(shared);
  const auto tile_of = [&](int stage, int which) {
    return base + stage * Shape::kStageBytes + which * Shape::kTileBytes;
  };
  const auto statistics_of = [&](int stage, int which) {
    return reinterpret_cast<float*>(shared + stage * Shape::kStageBytes + 4 * Shape::kTileBytes) +
           which * kSide;
  };
  // In four parts, so that they can be spread over the computation: issued at once they would hold it up.
  const auto copy_entry = [&](int batch, int head, int stage, int which) {
    const int rows = n - first_row, columns = n - first_column;
    if (which == 0) {
      copy_rows<T, kWidth, kThreads>(tile_of(stage, 0),
                                     row_start<T>(a.q, a.q_strides, batch, head, first_row), a.q_strides.row,
                                     0, kGroups, rows, a.d);
    } else if (which == 1) {
      copy_rows<T, kWidth, kThreads>(tile_of(stage, 1),
                                     row_start<T>(a.k, a.k_strides, batch, head, first_column),
                                     a.k_strides.row, 0, kGroups, columns, a.d);
    } else if (which == 2) {
      copy_rows<T, kWidth, kThreads>(tile_of(stage, 2),
                                     row_start<T>(b.grad_out, b.grad_out_strides, batch, head, first_row),
                                     b.grad_out_strides.row, 0, kGroups, rows, a.d_v);
    } else {
      copy_rows<T, kWidth, kThreads>(tile_of(stage, 3),
                                     row_start<T>(a.v, a.v_strides, batch, head, first_column),
                                     a.v_strides.row, 0, kGroups, columns, a.d_v);
      const int i = opaque(static_cast<int>(threadIdx.x));
      if (i < kSide) {
        const bool valid = i < rows;
        const std::int64_t at =
            (static_cast<std::int64_t>(batch) * a.heads + head) * n + first_row + (valid ? i : 0);
        copy_word(shared_address(statistics_of(stage, 0) + i), b.inverse_normaliser + at, valid);
        if (kSoftmax) copy_word(shared_address(statistics_of(stage, 1) + i), b.row_max + at, valid);
        copy_word(shared_address(statistics_of(stage, 2) + i), b.delta + at, valid);
      }
      finish_issuing_copies();
    }
  };

  const int warp_row = (warp % kRowWarps) * kRowBlocks * 16,
            warp_column = (warp / kRowWarps) * kColumnBlocks * 16;
  const bool active = first_row + warp_row < n && first_column + warp_column < n;

  float sum[kRowBlocks][2 * kColumnBlocks][4] = {};
  int batch = begin / heads_each, head = mask_head + begin % heads_each;  // of the entry to copy next
  if (begin < end) {
#pragma unroll
    for (int which = 0; which < 4; ++which) copy_entry(batch, head, 0, which);
  }
  for (int entry = begin; entry < end; ++entry) {
    const int stage = (entry - begin) & 1;
    wait_for_copies();
    if (a.rule.is_relu()) {
      map_features<T, kWidth, kThreads, false>(tile_of(stage, 0), 0, kGroups, a.d, a.rule.epsilon);
      map_features<T, kWidth, kThreads, false>(tile_of(stage, 1), 0, kGroups, a.d, a.rule.epsilon);
    }
    __syncthreads();
    const bool more = entry + 1 < end;
    if (++head == mask_head + heads_each) {
      head = mask_head;
      ++batch;
    }
    if (!active) {
#pragma unroll
      for (int which = 0; which < 4; ++which) {
        if (more) copy_entry(batch, head, stage ^ 1, which);
      }
      continue;
    }
    const int lane_here = opaque(lane);
    const std::uint32_t by_row = Layout::lane_by_row(lane_here),
                        by_column = Layout::lane_by_column(lane_here);

    const auto of_rows = [&](int which, int m, int half) {
      return statistics_of(stage, which)[warp_row + m * 16 + half * 8 + g];
    };
    const auto product = [&](float(&c)[kRowBlocks][2 * kColumnBlocks][4], std::uint32_t left,
                             std::uint32_t right, int copies) {
#pragma unroll
      for (int k = 0; k < kWidth / 16; ++k) {
        if (more && k < 2) copy_entry(batch, head, stage ^ 1, copies + k);
        Pair rows[kRowBlocks][4];
#pragma unroll
        for (int m = 0; m < kRowBlocks; ++m) {
          load_block(rows[m], Layout::at(left, by_row, warp_row + m * 16, 2 * k));
        }
#pragma unroll
        for (int s = 0; s < kColumnBlocks; ++s) {
          Pair columns[4];
          load_block(columns, Layout::at(right, by_column, warp_column + s * 16, 2 * k));
#pragma unroll
          for (int m = 0; m < kRowBlocks; ++m) {
            Half<T>::multiply(c[m][2 * s], rows[m], columns[0], columns[1]);
            Half<T>::multiply(c[m][2 * s + 1], rows[m], columns[2], columns[3]);
          }
        }
      }
    };

    float score[kRowBlocks][2 * kColumnBlocks][4] = {}, grad_weight[kRowBlocks][2 * kColumnBlocks][4];
    product(score, tile_of(stage, 0), tile_of(stage, 1), 0);
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float delta = of_rows(2, m, e / 2);
#pragma unroll
        for (auto& w : grad_weight[m]) w[e] = -delta;
      }
    }
    product(grad_weight, tile_of(stage, 2), tile_of(stage, 3), 2);
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float inverse = of_rows(0, m, half);
        const float half_max = kSoftmax ? of_rows(1, m, half) * (kLog2e / 2) : 0;
#pragma unroll
        for (int s = 0; s < 2 * kColumnBlocks; ++s) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float x = score[m][s][half * 2 + e];
            const float grad = inverse * grad_weight[m][s][half * 2 + e];
            float& y = sum[m][s][half * 2 + e];
            if (kSoftmax) {
              const float exponent = fmaf(x, half_scale, -half_max);
              const float root = fast_exp2(exponent > 127 ? 127 : exponent);  // NaN stays NaN
              y = fmaf(root * grad, root, y);
            } else {
              y = fmaf(x, grad, y);
            }
          }
        }
      }
    }
  }
  if (!active) return;

  to += (static_cast<std::int64_t>(part) * a.mask_heads + mask_head) * n * n;
#pragma unroll
  for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = first_row + warp_row + m * 16 + half * 8 + g;
      if (i >= n) continue;
      float* row = to + static_cast<std::int64_t>(i) * n;
#pragma unroll
      for (int s = 0; s < 2 * kColumnBlocks; ++s) {
        const int j = first_column + warp_column + s * 8 + t * 2;
        if (j < n) row[j] = sum[m][s][half * 2];
        if (j + 1 < n) row[j + 1] = sum[m][s][half * 2 + 1];
      }
    }
  }
}

__global__ void sum_parts_kernel(const float* part, int parts, std::int64_t size, float* sum) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < size;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    float x = 0;
    for (int p = 0; p < parts; ++p) x += part[p * size + i];
    sum[i] = x;
  }
}

// How many parts the batch is cut into: blocks of threads run in waves of one per multiprocessor, and the
// last wave should be full. Writing a part costs about as much as one entry.
int choose_parts(const DenseAttention& a) {
  const int widest = a.d > a.d_v ? a.d : a.d_v;
  const int tile = widest > 64 ? GradientShape<128>::kSide : GradientShape<64>::kSide;
  const std::int64_t side = (a.num_nodes + tile - 1) / tile;
  const std::int64_t tiles = side * side * a.mask_heads, slots = num_multiprocessors();
  const std::int64_t entries = static_cast<std::int64_t>(a.batch) * (a.mask_heads == 1 ? a.heads : 1);
  int best = 1;
  std::int64_t best_cost = INT64_MAX;
  for (std::int64_t parts = 1; parts <= (entries < 64 ? entries : 64); ++parts) {
    const std::int64_t waves = (tiles * parts + slots - 1) / slots;
    const std::int64_t cost = waves * ((entries + parts - 1) / parts + 2);
    if (cost < best_cost) {
      best = static_cast<int>(parts);
      best_cost = cost;
    }
  }
  return best;
}

}  // namespace

std::int64_t dense_mask_gradient_workspace(const DenseAttention& a) {
#ifdef TOPOMASK_WARPGROUP
  if (warpgroup_mask_gradient_fits(a)) return warpgroup_mask_gradient_workspace(a);
#endif
  const std::int64_t parts = choose_parts(a);
  return parts == 1 ? 0 : parts * a.mask_heads * a.num_nodes * a.num_nodes * 4;
}

cudaError_t dense_mask_gradient(const DenseAttention& a, const DenseMaskGradient& b, cudaStream_t stream) {
#ifdef TOPOMASK_WARPGROUP
  if (warpgroup_mask_gradient_fits(a)) return warpgroup_mask_gradient(a, b, stream);
#endif
  const int parts = choose_parts(a);
  const cudaError_t status = dispatch(a, [&]<class T, int kWidth, bool kSoftmax>() {
    using Shape = GradientShape<kWidth>;
    const auto kernel = mask_gradient_kernel<T, kWidth, kSoftmax>;
    const cudaError_t result =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes);
    if (result != cudaSuccess) return result;
    const unsigned side = (a.num_nodes + Shape::kSide - 1) / Shape::kSide;
    const dim3 grid(side * side, a.mask_heads, parts);
    kernel<<<grid, kThreads, Shape::kSharedBytes, stream>>>(a, b, parts,
                                                            parts == 1 ? b.grad_mask : b.workspace);
    return cudaGetLastError();
  });
  if (status != cudaSuccess || parts == 1) return status;
  const std::int64_t size = static_cast<std::int64_t>(a.mask_heads) * a.num_nodes * a.num_nodes;
  sum_parts_kernel<<<num_multiprocessors() * 8, 256, 0, stream>>>(b.workspace, parts, size, b.grad_mask);
  return cudaGetLastError();
}

}  // namespace topomask
