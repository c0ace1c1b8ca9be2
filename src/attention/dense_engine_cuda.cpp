#include "attention/gpu.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "attention/cuda/dense_attention.h"
#include "core/cuda_launch.h"
#include "core/flops.h"

namespace topomask {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

struct State : torch::CustomClassHolder {
  bool softmax = false, relu = false;
  double scale = 1, epsilon = 0, guard = 0;
};

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

at::Tensor as_rows(const at::Tensor& x) {
  return has_rows(x) ? x : x.contiguous();
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

DenseAttention describe(const State& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const at::Tensor& mask) {
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
  a.relu = state.relu;
  a.epsilon = static_cast<float>(state.epsilon);
  a.softmax = state.softmax;
  a.scale = static_cast<float>(state.scale);
  a.guard = static_cast<float>(state.guard);
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

class FusedDenseAttention : public torch::autograd::Function<FusedDenseAttention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q_in, const at::Tensor& k_in,
                            const at::Tensor& v_in, const at::Tensor& mask,
                            const c10::intrusive_ptr<State>& state) {
    const at::Tensor q = as_rows(q_in), k = as_rows(k_in), v = as_rows(v_in);
    const CudaLaunch launch(q);
    const DenseAttention a = describe(*state, q, k, v, mask);
    const at::Tensor packed = pack(mask, a, false, launch.stream);
    const at::Tensor out = empty_rows_like(v);
    const auto floats = q.options().dtype(at::kFloat);
    const at::Tensor inverse = at::empty({a.batch, a.heads, a.num_nodes}, floats);
    const at::Tensor row_max = a.softmax ? at::empty_like(inverse) : at::empty({0}, floats);
    DenseForward f;
    f.mask = packed.const_data_ptr();
    f.out = out.mutable_data_ptr();
    f.out_strides = row_strides(out);
    f.inverse_normaliser = inverse.mutable_data_ptr<float>();
    f.row_max = a.softmax ? row_max.mutable_data_ptr<float>() : nullptr;
    check_cuda(dense_attention_forward(a, f, launch.stream), "dense attention");
    count_multiply_adds(num_scores(q) * (a.d + a.d_v));
    context->save_for_backward({q, k, v, mask, out, inverse, row_max});
    context->saved_data["state"] = c10::IValue::make_capsule(state);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &mask = saved[3], &out = saved[4],
                     &inverse = saved[5], &row_max = saved[6];
    const auto state = c10::static_intrusive_pointer_cast<State>(context->saved_data["state"].toCapsule());
    const CudaLaunch launch(q);
    const DenseAttention a = describe(*state, q, k, v, mask);
    const at::Tensor grad_out = as_rows(grads[0]);
    const bool mask_learns = context->needs_input_grad(3);
    const at::Tensor grad_q = empty_rows_like(q), grad_k = empty_rows_like(k), grad_v = empty_rows_like(v);
    const at::Tensor delta = at::empty({mask_learns ? inverse.numel() : 0}, inverse.options());
    at::Tensor packed = pack(mask, a, true, launch.stream);
    const at::Tensor shares = workspace(dense_backward_workspace(a), q);

    DenseBackward b;
    b.mask_transposed = packed.const_data_ptr();
    b.grad_out = grad_out.const_data_ptr();
    b.out = out.const_data_ptr();
    b.grad_out_strides = row_strides(grad_out);
    b.out_strides = row_strides(out);
    b.inverse_normaliser = inverse.const_data_ptr<float>();
    b.row_max = a.softmax ? row_max.const_data_ptr<float>() : nullptr;
    b.grad_q = grad_q.mutable_data_ptr();
    b.grad_k = grad_k.mutable_data_ptr();
    b.grad_v = grad_v.mutable_data_ptr();
    b.grad_q_strides = row_strides(grad_q);
    b.grad_k_strides = row_strides(grad_k);
    b.grad_v_strides = row_strides(grad_v);
    b.delta = mask_learns ? delta.mutable_data_ptr<float>() : nullptr;
    b.workspace = reinterpret_cast<float*>(shares.mutable_data_ptr());
    check_cuda(dense_attention_backward(a, b, launch.stream), "gradient of dense attention");
    count_multiply_adds(num_scores(q) * (3 * a.d + 2 * a.d_v));

    at::Tensor grad_mask;
    if (mask_learns) {
      grad_mask = at::empty(mask.sizes(), mask.options());
      const at::Tensor parts = workspace(dense_mask_gradient_workspace(a), q);
      DenseMaskGradient m;
      if (a.softmax) {
        packed = pack(mask, a, false, launch.stream);
        m.mask = packed.const_data_ptr();
      }
      m.grad_out = b.grad_out;
      m.grad_out_strides = b.grad_out_strides;
      m.inverse_normaliser = b.inverse_normaliser;
      m.row_max = b.row_max;
      m.delta = b.delta;
      m.grad_mask = grad_mask.mutable_data_ptr<float>();
      m.workspace = reinterpret_cast<float*>(parts.mutable_data_ptr());
      check_cuda(dense_mask_gradient(a, m, launch.stream), "gradient of a dense mask");
      count_multiply_adds(num_scores(q) * (a.d + a.d_v));
    }
    return {grad_q, grad_k, grad_v, grad_mask, at::Tensor()};
  }
};

}  // namespace

bool runs_on_tensor_cores(const EngineInputs& inputs) {
  const at::Tensor& q = inputs.q;
  if (!q.is_cuda() || (q.scalar_type() != at::kBFloat16 && q.scalar_type() != at::kHalf)) return false;
  const c10::cuda::CUDAGuard guard(q.device());
  return dense_attention_fits(static_cast<int>(q.size(3)), static_cast<int>(inputs.v.size(3)));
}

at::Tensor run_dense_engine_cuda(const EngineInputs& inputs, const at::Tensor& mask) {
  auto state = c10::make_intrusive<State>();
  state->softmax = inputs.softmax;
  state->relu = inputs.fused_relu;
  state->scale = inputs.scale;
  state->epsilon = inputs.epsilon;
  state->guard = inputs.guard;
  return FusedDenseAttention::apply(inputs.q, inputs.k, inputs.v, mask, state);
}

}  // namespace topomask
