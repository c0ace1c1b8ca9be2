// A library function as an operator. Eager tensors keep the library's own autograd graph inside one node;
// traced ones record a forward and a backward operator.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <functional>
#include <vector>

namespace topomask::ops {

using Tensors = std::vector<at::Tensor>;
using TensorFunction = std::function<at::Tensor(const Tensors&)>;

struct LibraryCall {
  TensorFunction run;  // the library, differentiable
  TensorFunction forward_operator;
  std::function<Tensors(const at::Tensor& grad, const Tensors&, const std::vector<bool>& needs)>
      backward_operator;
};

// What an autograd kernel asks about its tensors.
bool is_learning(const Tensors& inputs);  // gradients are wanted of one of them
bool is_traced(const Tensors& inputs);    // torch records the call
void refuse_forward_mode(const Tensors& inputs);

// A kernel runs below autograd; within this scope its operations are differentiable again.
class WithAutograd {
 public:
  WithAutograd();

 private:
  c10::impl::ForceDispatchKeyGuard guard_;
};

// Gradients that refuse to be differentiated with respect to the inputs: the kernels know first derivatives
// only.
Tensors once_only(Tensors gradients, const Tensors& inputs);

// Gradients as a backward operator returns them: empty where none is needed, zeros where there is none.
Tensors filled(Tensors gradients, const Tensors& inputs, const std::vector<bool>& needs);

// For the autograd key: the result of the call with its gradient.
at::Tensor differentiable(const Tensors& inputs, const LibraryCall& call);

// For the backward operator: gradients of <grad, run(inputs)> with respect to the inputs that need one, and
// empty tensors for the others.
Tensors gradients_of(const TensorFunction& run, const Tensors& inputs, const at::Tensor& grad,
                     const std::vector<bool>& needs);

// For the Meta key: the shapes of what gradients_of returns.
Tensors gradient_shapes(const Tensors& inputs, at::IntArrayRef needs);

// `needs` as the operators take it.
inline std::vector<bool> wanted(at::IntArrayRef needs) {
  return std::vector<bool>(needs.begin(), needs.end());
}

// For the forward operator: the result without a graph.
at::Tensor without_graph(const TensorFunction& run, const Tensors& inputs);

// The operator of that name, called with the signature of its kernel.
template <class Signature>
auto find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace topomask::ops
