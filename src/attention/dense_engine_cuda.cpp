#include "attention/gpu.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "attention/cuda/dense_attention.h"
#include "core/cuda_launch.h"
#include "core/flops.h"
#include "core/gpu.h"

namespace topomask {

namespace {

// Whether a kernel can read rows as they lie: whole rows of 16-byte chunks.
bool has_rows(const at::Tensor& x) {
  if (x.stride(3) != 1 || reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % 16 != 0) return false;
  for (std::int64_t axis = 0; axis < 3; ++axis) {
    // Offsets within a tile are 32-bit numbers.
    if (x.size(axis) > 1 && (x.stride(axis) % 8 != 0 || (axis == 2 && x.stride(axis) >= 1 << 22)))
      return false;
  }
  return true;
}

// In the order of x's dimensions in memory, so that what was a slice of [B, N, H, d] stays one.
at::Tensor empty_rows_like(const at::Tensor& x) {
  const at::Tensor like = at::empty_like(x);
  return has_rows(like) ? like : at::empty(x.sizes(), x.options());
}

RowStrides row_strides(const at::Tensor& x) {
  return {x.stride(0), x.stride(1), x.stride(2)};
}

at::Tensor workspace(std::int64_t bytes, const at::Tensor& like) {
  return at::empty({bytes}, like.options().dtype(at::kByte));
}

EngineInputs with_rows(const EngineInputs& given) {
  EngineInputs inputs = given;
  for (at::Tensor* x : {&inputs.q, &inputs.k, &inputs.v}) *x = as_rows(*x);
  return inputs;
}

DenseAttention describe_dense(const EngineInputs& inputs, const at::Tensor& mask) {
  const at::Tensor &q = inputs.q, &k = inputs.k, &v = inputs.v;
  DenseAttention a;
  a.type = q.scalar_type() == at::kHalf ? HalfType::float16 : HalfType::bfloat16;
  a.batch = static_cast<int>(q.size(0));
  a.heads = static_cast<int>(q.size(1));
  a.num_nodes = static_cast<int>(q.size(2));
  a.d = static_cast<int>(q.size(3));
  a.d_v = static_cast<int>(v.size(3));
  a.q = q.const_data_ptr();
  a.k = k.const_data_ptr();
  a.v = v.const_data_ptr();
  a.q_strides = row_strides(q);
  a.k_strides = row_strides(k);
  a.v_strides = row_strides(v);
  a.mask_heads = static_cast<int>(mask.size(0));
  a.rule = inputs.rule.as<float>();
  return a;
}

at::Tensor pack(const at::Tensor& mask, const DenseAttention& a, bool transposed, cudaStream_t stream) {
  at::Tensor packed = workspace(packed_mask_bytes(a.mask_heads, a.num_nodes), mask);
  check_cuda(pack_mask(mask.const_data_ptr<float>(), mask.stride(0), mask.stride(1), mask.stride(2),
                       a.mask_heads, a.num_nodes, a.type, transposed, packed.mutable_data_ptr(), stream),
             "dense attention: packing the mask");
  return packed;
}

std::uint64_t num_scores(const at::Tensor& q) {
  return static_cast<std::uint64_t>(q.size(0) * q.size(1) * q.size(2) * q.size(2));
}

}  // namespace

at::Tensor as_rows(const at::Tensor& x) {
  return has_rows(x) ? x : x.contiguous();
}

bool runs_on_tensor_cores(at::ScalarType dtype, c10::Device device, std::int64_t d, std::int64_t d_v) {
  if (!device.is_cuda() || (dtype != at::kBFloat16 && dtype != at::kHalf)) return false;
  if (num_gpus() == 0) return false;  // a tracer may pretend that there is one
  // Without an index it is the current device.
  c10::cuda::OptionalCUDAGuard guard;
  if (device.has_index()) guard.set_device(device);
  return dense_attention_fits(static_cast<int>(d), static_cast<int>(d_v));
}

EngineResult dense_engine_forward_on_tensor_cores(const EngineInputs& given, const at::Tensor& matrix,
                                                  bool learning) {
  const EngineInputs inputs = with_rows(given);
  const at::Tensor mask = matrix.to(at::kFloat);
  const CudaLaunch launch(inputs.q);
  const DenseAttention a = describe_dense(inputs, mask);
  const at::Tensor packed = pack(mask, a, false, launch.stream);
  const at::Tensor out = empty_rows_like(inputs.v);
  const auto floats = inputs.q.options().dtype(at::kFloat);
  const at::Tensor inverse = at::empty({a.batch, a.heads, a.num_nodes}, floats);
  const at::Tensor row_max = inputs.rule.is_softmax() ? at::empty_like(inverse) : at::empty({0}, floats);
  DenseForward f;
  f.mask = packed.const_data_ptr();
  f.out = out.mutable_data_ptr();
  f.out_strides = row_strides(out);
  f.inverse_normaliser = inverse.mutable_data_ptr<float>();
  f.row_max = inputs.rule.is_softmax() ? row_max.mutable_data_ptr<float>() : nullptr;
  check_cuda(dense_attention_forward(a, f, launch.stream), "dense attention");
  count_multiply_adds(num_scores(inputs.q) * (a.d + a.d_v));
  if (!learning) return {out, {}};
  return {out, {inverse, row_max, at::empty({0}, floats)}};
}

EngineGradients dense_engine_backward_on_tensor_cores(const at::Tensor& given_grad, const EngineInputs& given,
                                                      const at::Tensor& matrix, const EngineResult& result,
                                                      bool mask_learns) {
  const EngineInputs inputs = with_rows(given);
  const at::Tensor &q = inputs.q, &k = inputs.k, &v = inputs.v;
  const at::Tensor mask = matrix.to(at::kFloat);
  const at::Tensor &inverse = result.saved[0], &row_max = result.saved[1];
  const CudaLaunch launch(q);
  const DenseAttention a = describe_dense(inputs, mask);
  const at::Tensor grad_out = as_rows(given_grad), out = as_rows(result.out);
  EngineGradients grads = {empty_rows_like(q), empty_rows_like(k), empty_rows_like(v), {}};
  const at::Tensor delta = at::empty({mask_learns ? inverse.numel() : 0}, inverse.options());
  const at::Tensor packed = pack(mask, a, true, launch.stream);
  const at::Tensor shares = workspace(dense_backward_workspace(a), q);

  DenseBackward b;
  b.mask_transposed = packed.const_data_ptr();
  b.grad_out = grad_out.const_data_ptr();
  b.out = out.const_data_ptr();
  b.grad_out_strides = row_strides(grad_out);
  b.out_strides = row_strides(out);
  b.inverse_normaliser = inverse.const_data_ptr<float>();
  b.row_max = inputs.rule.is_softmax() ? row_max.const_data_ptr<float>() : nullptr;
  b.grad_q = grads.q.mutable_data_ptr();
  b.grad_k = grads.k.mutable_data_ptr();
  b.grad_v = grads.v.mutable_data_ptr();
  b.grad_q_strides = row_strides(grads.q);
  b.grad_k_strides = row_strides(grads.k);
  b.grad_v_strides = row_strides(grads.v);
  b.delta = mask_learns ? delta.mutable_data_ptr<float>() : nullptr;
  b.workspace = reinterpret_cast<float*>(shares.mutable_data_ptr());
  check_cuda(dense_attention_backward(a, b, launch.stream), "gradient of dense attention");
  count_multiply_adds(num_scores(q) * (3 * a.d + 2 * a.d_v));
  if (!mask_learns) return grads;

  const at::Tensor grad_mask = at::empty(mask.sizes(), mask.options());
  const at::Tensor parts = workspace(dense_mask_gradient_workspace(a), q);
  DenseMaskGradient m;
  m.grad_out = b.grad_out;
  m.grad_out_strides = b.grad_out_strides;
  m.inverse_normaliser = b.inverse_normaliser;
  m.row_max = b.row_max;
  m.delta = b.delta;
  m.grad_mask = grad_mask.mutable_data_ptr<float>();
  m.workspace = reinterpret_cast<float*>(parts.mutable_data_ptr());
  check_cuda(dense_mask_gradient(a, m, launch.stream), "gradient of a dense mask");
  count_multiply_adds(num_scores(q) * (a.d + a.d_v));
  grads.mask = {grad_mask.to(matrix.scalar_type())};
  return grads;
}

}  // namespace topomask
