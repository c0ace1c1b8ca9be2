// The library's functions are differentiable by themselves, through autograd functions that keep what their
// backward passes need. An operator that torch can trace must state its gradient as another operator instead.
// Both are made here of one call of the library:
//
//   on plain tensors   the library's own graph is kept inside one node: nothing is computed twice;
//   while tracing      the forward and the backward operator are recorded; the latter runs the library's
//   forward
//                      pass again to differentiate it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>
#include <functional>
#include <tuple>
#include <utility>
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

// For the autograd key: the result of the call with its gradient.
at::Tensor differentiable(const Tensors& inputs, const LibraryCall& call);

// For the backward operator: gradients of <grad, run(inputs)> with respect to the inputs that need one, and
// empty tensors for the others.
Tensors gradients_of(const TensorFunction& run, const Tensors& inputs, const at::Tensor& grad,
                     const std::vector<bool>& needs);

template <std::size_t inputs>
auto gradients_of(const TensorFunction& run, const std::array<at::Tensor, inputs>& x, const at::Tensor& grad,
                  const std::array<bool, inputs>& needs) {
  const Tensors gradients =
      gradients_of(run, Tensors(x.begin(), x.end()), grad, std::vector<bool>(needs.begin(), needs.end()));
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    return std::make_tuple(gradients[i]...);
  }
  (std::make_index_sequence<inputs>{});
}

// For the forward operator: the result without a graph.
at::Tensor without_graph(const TensorFunction& run, const Tensors& inputs);

// The operator of that name, called with the signature of its kernel.
template <class Signature>
auto find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// A call whose operators take `inputs` tensors and then the options: forward(x..., options...) and
// backward(grad, x..., options..., needs), the latter as gradients_of. Options are kept by value.
template <std::size_t inputs, class Forward, class Backward, class... Options>
LibraryCall library_call(TensorFunction run, Forward forward, Backward backward, Options... options) {
  const auto unpacked =
      []<std::size_t... i>(const Tensors& x, const auto& function, std::index_sequence<i...>) {
    return function(x[i]...);
  };
  constexpr auto kAll = std::make_index_sequence<inputs>{};
  LibraryCall call;
  call.run = std::move(run);
  call.forward_operator = [=](const Tensors& x) {
    return unpacked(
        x, [&](const auto&... tensor) { return forward.call(tensor..., options...); }, kAll);
  };
  call.backward_operator = [=](const at::Tensor& grad, const Tensors& x, const std::vector<bool>& needs) {
    std::array<bool, inputs> needed;
    std::copy(needs.begin(), needs.end(), needed.begin());
    const auto gradients = unpacked(
        x, [&](const auto&... tensor) { return backward.call(grad, tensor..., options..., needed); }, kAll);
    return std::apply([](const auto&... gradient) { return Tensors{gradient...}; }, gradients);
  };
  return call;
}

}  // namespace topomask::ops
