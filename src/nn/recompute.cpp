#include "nn/recompute.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

namespace topomask {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The autocast of a call, for as long as it lives. Weights that were converted without a graph must not be
// met by who wants one: they are not kept.
class SameAutocast {
 public:
  struct State {
    bool enabled = false;
    at::ScalarType dtype = at::kFloat;
  };
  static State now(at::DeviceType device) {
    return {at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)};
  }

  SameAutocast(at::DeviceType device, const State& state)
      : device_(device), before_(now(device)), kept_(at::autocast::is_autocast_cache_enabled()) {
    set(state);
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~SameAutocast() {
    set(before_);
    at::autocast::set_autocast_cache_enabled(kept_);
  }
  SameAutocast(const SameAutocast&) = delete;
  SameAutocast& operator=(const SameAutocast&) = delete;

 private:
  void set(const State& state) const {
    at::autocast::set_autocast_enabled(device_, state.enabled);
    at::autocast::set_autocast_dtype(device_, state.dtype);
  }
  at::DeviceType device_;
  State before_;
  bool kept_;
};

struct RecomputeState : torch::CustomClassHolder {
  TensorsToTensors run;
  std::size_t inputs = 0;
  std::vector<bool> learns;  // inputs and parameters that gradients are wanted of
  at::DeviceType device = at::kCPU;
  SameAutocast::State autocast;
};

class Recompute : public torch::autograd::Function<Recompute> {
 public:
  // tensors: inputs and parameters
  static variable_list forward(AutogradContext* context, at::TensorList tensors,
                               const c10::intrusive_ptr<RecomputeState>& state) {
    context->save_for_backward(tensors.vec());
    context->saved_data["state"] = c10::IValue::make_capsule(state);
    context->set_materialize_grads(false);
    const SameAutocast scope(state->device, state->autocast);
    return state->run(tensors.slice(0, state->inputs).vec());
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const auto state =
        c10::static_intrusive_pointer_cast<RecomputeState>(context->saved_data["state"].toCapsule());
    variable_list inputs, wanted, outputs, directions;
    {
      const at::AutoGradMode with_graph(true);
      for (std::size_t i = 0; i < state->inputs; ++i)
        inputs.push_back(saved[i].defined() ? saved[i].detach().requires_grad_(state->learns[i]) : saved[i]);
      const SameAutocast scope(state->device, state->autocast);
      const variable_list all = state->run(inputs);
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (!grads[i].defined() || !all[i].requires_grad()) continue;
        outputs.push_back(all[i]);
        directions.push_back(grads[i]);
      }
    }
    for (std::size_t i = 0; i < saved.size(); ++i) {
      if (state->learns[i]) wanted.push_back(i < state->inputs ? inputs[i] : saved[i]);
    }
    variable_list found;
    if (!outputs.empty() && !wanted.empty())
      found =
          torch::autograd::grad(outputs, wanted, directions, /*retain_graph=*/false, /*create_graph=*/false,
                                /*allow_unused=*/true);
    variable_list result(saved.size() + 1);  // the last for the state
    std::size_t next = 0;
    for (std::size_t i = 0; i < saved.size() && !found.empty(); ++i) {
      if (state->learns[i]) result[i] = found[next++];
    }
    return result;
  }
};

}  // namespace

std::vector<at::Tensor> recomputed(const TensorsToTensors& run, const std::vector<at::Tensor>& inputs,
                                   const std::vector<at::Tensor>& parameters) {
  auto state = c10::make_intrusive<RecomputeState>();
  state->run = run;
  state->inputs = inputs.size();
  variable_list all = inputs;
  all.insert(all.end(), parameters.begin(), parameters.end());
  bool any = false;
  for (const at::Tensor& x : all) {
    state->learns.push_back(x.requires_grad());
    any = any || x.requires_grad();
  }
  if (!any || !at::GradMode::is_enabled()) return run(inputs);
  state->device = all.front().device().type();
  state->autocast = SameAutocast::now(state->device);
  return Recompute::apply(at::TensorList(all), state);
}

}  // namespace topomask
