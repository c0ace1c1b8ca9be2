// The `dense` engine on tensor cores: scores never leave the registers. Framework-free.
//
// For every batch entry and head, with the scores e_ij of score_rule.h, those of softmax over exp(max_i),
//   out_i = sum_j M_ij e_ij v_j / D_i,  D_i = sum_j M_ij e_ij,
// where max_i is the largest exponent with M_ij != 0.
// Products run in 16 bits with float32 accumulators. No sum depends on the order in which blocks run, so
// results are identical from run to run.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "attention/score_rule.h"

namespace topomask {

enum class HalfType { bfloat16, float16 };

// Of a [B, H, N, channels] array, in elements; channels are contiguous. All multiples of 8, so that rows can
// be read 16 bytes at a time: [B, N, H, channels] memory from one projection of q, k and v needs no copy.
struct RowStrides {
  std::int64_t batch = 0, head = 0, row = 0;
};

struct DenseAttention {
  HalfType type = HalfType::bfloat16;
  int batch = 0, heads = 0, num_nodes = 0;
  int d = 0, d_v = 0;  // multiples of 8 up to 128
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;  // all 16-byte aligned
  RowStrides q_strides, k_strides, v_strides;
  int mask_heads = 1;  // 1 or heads
  ScoreRuleOf<float> rule;
};

// Whether the current device can run these sizes. Elsewhere, the launches below fail.
bool dense_attention_fits(int d, int d_v);

// The mask, rounded to 16 bits, in the order in which tensor-core fragments hold it, padded with zeros to
// whole tiles. The forward pass takes it as it is, the backward pass transposed.
std::int64_t packed_mask_bytes(int mask_heads, int num_nodes);
// mask: float32, M_hij at h * head_stride + i * row_stride + j * column_stride.
cudaError_t pack_mask(const float* mask, std::int64_t head_stride, std::int64_t row_stride,
                      std::int64_t column_stride, int mask_heads, int num_nodes, HalfType type,
                      bool transposed, void* packed, cudaStream_t stream);

struct DenseForward {
  const void* mask = nullptr;  // packed
  void* out = nullptr;         // [B, H, N, d_v]
  RowStrides out_strides;
  float* inverse_normaliser = nullptr;  // [B, H, N]: 1/D_i, or 0 for a guarded row
  float* row_max = nullptr;             // [B, H, N], softmax only
};
cudaError_t dense_attention_forward(const DenseAttention& a, const DenseForward& f, cudaStream_t stream);

// What the forward pass left, and where gradients go.
struct DenseBackward {
  const void* mask_transposed = nullptr;  // packed
  const void* grad_out = nullptr;         // [B, H, N, d_v]
  const void* out = nullptr;              // [B, H, N, d_v]
  RowStrides grad_out_strides, out_strides;
  const float* inverse_normaliser = nullptr;
  const float* row_max = nullptr;
  void *grad_q = nullptr, *grad_k = nullptr, *grad_v = nullptr;
  RowStrides grad_q_strides, grad_k_strides, grad_v_strides;
  float* delta = nullptr;      // [B, H, N]: <grad_out_i, out_i>, written for the mask's gradient
  float* workspace = nullptr;  // dense_backward_workspace() bytes
};
// A block of keys owns its share of grad_q; more than one block (N > 256) needs somewhere to put the shares.
std::int64_t dense_backward_workspace(const DenseAttention& a);
cudaError_t dense_attention_backward(const DenseAttention& a, const DenseBackward& g, cudaStream_t stream);

// dL/dM, summed over the batch and, where the heads share a mask, over the heads: a block of threads owns a
// tile of it and walks the batch. Runs after dense_attention_backward, whose delta it reads.
struct DenseMaskGradient {
  const void* grad_out = nullptr;
  RowStrides grad_out_strides;
  const float* inverse_normaliser = nullptr;
  const float* row_max = nullptr;
  const float* delta = nullptr;
  float* grad_mask = nullptr;  // [mask_heads, N, N]
  float* workspace = nullptr;  // dense_mask_gradient_workspace() bytes
};
std::int64_t dense_mask_gradient_workspace(const DenseAttention& a);
cudaError_t dense_mask_gradient(const DenseAttention& a, const DenseMaskGradient& g, cudaStream_t stream);

}  // namespace topomask
