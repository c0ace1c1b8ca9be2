#include "ops/library_call.h"

#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>

#include "core/check.h"
#include "ops/arguments.h"

namespace topomask::ops {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

Tensors new_leaves(const Tensors& inputs) {
  Tensors leaves;
  for (const at::Tensor& x : inputs) leaves.push_back(x.detach());
  return leaves;
}

// Gradients with respect to the leaves that require one; the others' stay undefined.
variable_list gradients(const at::Tensor& out, const Tensors& leaves, const at::Tensor& grad,
                        bool keep_graph) {
  variable_list wanted;
  for (const at::Tensor& leaf : leaves) {
    if (leaf.requires_grad()) wanted.push_back(leaf);
  }
  const variable_list found = torch::autograd::grad({out}, wanted, {grad}, keep_graph, /*create_graph=*/false,
                                                    /*allow_unused=*/true);
  variable_list result(leaves.size());
  for (std::size_t i = 0, next = 0; i < leaves.size(); ++i) {
    if (leaves[i].requires_grad()) result[i] = found[next++];
  }
  return result;
}

// Hands gradients on, and refuses to be differentiated.
class OnceOnly : public torch::autograd::Function<OnceOnly> {
 public:
  static variable_list forward(AutogradContext*, at::TensorList grads, at::TensorList) {
    variable_list result;
    for (const at::Tensor& grad : grads) result.push_back(grad.clone());
    return result;
  }
  static variable_list backward(AutogradContext*, const variable_list&) {
    fail("topomask: attention and sparse products are differentiable once, not twice");
  }
};

}  // namespace

Tensors once_only(Tensors grads, const Tensors& inputs) {
  Tensors defined;
  for (const at::Tensor& grad : grads) {
    if (grad.defined()) defined.push_back(grad);
  }
  const variable_list guarded = OnceOnly::apply(at::TensorList(defined), at::TensorList(inputs));
  std::size_t next = 0;
  for (at::Tensor& grad : grads) {
    if (grad.defined()) grad = guarded[next++];
  }
  return grads;
}

namespace {

struct CallState : torch::CustomClassHolder {
  explicit CallState(LibraryCall c) : call(std::move(c)) {}
  LibraryCall call;
  Tensors leaves;  // the library's own graph from these to `out`, unless traced
  at::Tensor out;
  bool traced = false;
};

class CallFunction : public torch::autograd::Function<CallFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, at::TensorList inputs,
                            const c10::intrusive_ptr<CallState>& state) {
    const Tensors arguments = inputs.vec();
    context->save_for_backward(arguments);
    context->saved_data["state"] = c10::IValue::make_capsule(state);
    state->traced = is_traced(arguments);
    if (state->traced) {
      const at::AutoDispatchBelowADInplaceOrView below;
      return state->call.forward_operator(arguments);
    }
    const at::AutoGradMode with_gradients(true);
    state->leaves = new_leaves(arguments);
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      state->leaves[i].requires_grad_(arguments[i].requires_grad());
    }
    state->out = state->call.run(state->leaves);
    return state->out.detach();
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const Tensors inputs = context->get_saved_variables();  // throws where the graph was freed
    const auto state =
        c10::static_intrusive_pointer_cast<CallState>(context->saved_data["state"].toCapsule());
    variable_list result;
    if (state->traced) {
      std::vector<bool> needs;
      for (std::size_t i = 0; i < inputs.size(); ++i) needs.push_back(context->needs_input_grad(i));
      result = state->call.backward_operator(grads[0], inputs, needs);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (!needs[i]) result[i] = at::Tensor();
      }
    } else {
      const bool keep_graph = torch::autograd::get_current_graph_task_keep_graph();
      result = gradients(state->out, state->leaves, grads[0], keep_graph);
      if (!keep_graph) {
        state->leaves.clear();
        state->out = at::Tensor();
      }
    }
    if (c10::GradMode::is_enabled()) result = once_only(std::move(result), inputs);
    result.emplace_back();  // for the state
    return result;
  }
};

}  // namespace

bool is_learning(const Tensors& inputs) {
  return c10::GradMode::is_enabled() &&
         std::any_of(inputs.begin(), inputs.end(), [](const at::Tensor& x) { return x.requires_grad(); });
}

bool is_traced(const Tensors& inputs) {
  return at::areAnyTensorSubclassLike(inputs);
}

void refuse_forward_mode(const Tensors& inputs) {
  for (const at::Tensor& x : inputs) {
    check(!x._fw_grad(/*level=*/0).defined(),
          "topomask: forward-mode derivatives (jvp, jacfwd) are not supported; use torch.autograd.grad or "
          "backward");
  }
}

WithAutograd::WithAutograd()
    : guard_(c10::impl::tls_local_dispatch_key_set().included_,
             c10::impl::tls_local_dispatch_key_set().excluded_ -
                 c10::autograd_dispatch_keyset_with_ADInplaceOrView) {}

at::Tensor differentiable(const Tensors& inputs, const LibraryCall& call) {
  refuse_forward_mode(inputs);
  if (!is_learning(inputs)) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return is_traced(inputs) ? call.forward_operator(inputs) : without_graph(call.run, inputs);
  }
  return CallFunction::apply(at::TensorList(inputs), c10::make_intrusive<CallState>(call));
}

Tensors filled(Tensors gradients, const Tensors& inputs, const std::vector<bool>& needs) {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    at::Tensor& own = gradients[i];
    if (!needs[i]) {
      own = at::empty({0}, inputs[i].options());
    } else {
      own = own.defined() ? own.detach().to(inputs[i].scalar_type()).contiguous()
                          : at::zeros_like(inputs[i].detach());
    }
  }
  return gradients;
}

Tensors gradients_of(const TensorFunction& run, const Tensors& inputs, const at::Tensor& grad,
                     const std::vector<bool>& needs) {
  const WithAutograd above;
  const at::AutoGradMode with_gradients(true);
  const Tensors leaves = new_leaves(inputs);
  for (std::size_t i = 0; i < leaves.size(); ++i) leaves[i].requires_grad_(needs[i]);
  return filled(gradients(run(leaves), leaves, grad.detach(), /*keep_graph=*/false), inputs, needs);
}

Tensors gradient_shapes(const Tensors& inputs, at::IntArrayRef needs) {
  Tensors gradients;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    gradients.push_back(needs[i] != 0 ? shape_only(inputs[i].sym_sizes(), inputs[i])
                                      : at::empty({0}, inputs[i].options()));
  return gradients;
}

at::Tensor without_graph(const TensorFunction& run, const Tensors& inputs) {
  const at::AutoGradMode without_gradients(false);
  return run(inputs);
}

}  // namespace topomask::ops
