// Modules of particle models for Python: C++ modules that compute with the caller's weights.
#include <torch/library.h>

#include <map>
#include <mutex>
#include <string>

#include "ops/arguments.h"
#include "ops/library_call.h"
#include "topomask/hdvpd.h"
#include "topomask/particle_runs.h"

namespace topomask::ops {
namespace {

constexpr std::size_t kSceneTensors = 6;

// One part of a particle model. Its own weights are those at the start.
struct ParticleModule {
  Interlacer interlacer = nullptr;
  UNet unet = nullptr;

  ParticleModule(const std::string& kind, const std::string& settings_toml) {
    const ParticleSettings settings = ParticleSettings::from_toml_text(settings_toml, kind);
    ParticleTaskOptions options = settings.task_options();
    options.model.interlacer.seed = options.model_seed;
    check(kind == "interlacer" || kind == "unet", "particle_module: expected interlacer or unet, got '{}'",
          kind);
    if (kind == "interlacer") {
      interlacer = Interlacer(options.model.interlacer);
    } else {
      unet = UNet(options.model.encoder_width, options.model.interlacer.features, options.model_seed);
    }
  }
  torch::nn::Module& module() {
    if (interlacer.is_empty()) return *unet;
    return *interlacer;
  }
  std::size_t inputs() const { return interlacer.is_empty() ? 1 : kSceneTensors; }

  at::Tensor run(const Tensors& x) {
    if (interlacer.is_empty()) return unet->forward(x[0]);
    // Positions and features of now and of the past, points and grips of the robot; [0]: none.
    ParticleScene scene{x[0], x[1], {}, {}, {}, {}};
    if (x[2].dim() != 1) scene.past_positions = x[2], scene.past_features = x[3];
    if (x[4].dim() != 1) scene.robot_positions = x[4], scene.robot_features = robot_features(x[4], x[5]);
    const ParticleUpdate update = interlacer->forward(scene);
    return at::cat({update.positions, update.features}, -1);
  }
};

// Modules are kept, since building one draws all its weights; one call at a time has one.
at::Tensor run_with(const std::string& kind, const std::string& settings,
                    const std::vector<std::string>& names, const Tensors& tensors) {
  static std::mutex mutex;
  static std::map<std::string, ParticleModule> modules;
  const std::lock_guard lock(mutex);
  ParticleModule& module = modules.try_emplace(kind + "\n" + settings, kind, settings).first->second;
  check(tensors.size() == names.size() + module.inputs(),
        "run_particle_module: expected {} weights and {} inputs, got {} tensors", names.size(),
        module.inputs(), tensors.size());
  check_place("run_particle_module", "positions", tensors[names.size()]);
  ParameterTensors weights;
  for (std::size_t i = 0; i < names.size(); ++i) weights.emplace(names[i], tensors[i]);
  take_parameters(module.module(), weights);
  return module.run(Tensors(tensors.begin() + static_cast<std::ptrdiff_t>(names.size()), tensors.end()));
}

std::tuple<std::vector<std::string>, Tensors> particle_module(std::string_view kind,
                                                              std::string_view settings) {
  ParticleModule module((std::string(kind)), std::string(settings));
  std::vector<std::string> names;
  Tensors tensors;
  for (const auto& item : module.module().named_parameters()) {
    names.push_back(item.key());
    tensors.push_back(item.value().detach());
  }
  return {std::move(names), std::move(tensors)};
}

TensorFunction particle_function(std::string_view kind, std::string_view settings,
                                 const std::vector<std::string>& names) {
  return [kind = std::string(kind), settings = std::string(settings), names](const Tensors& tensors) {
    return run_with(kind, settings, names, tensors);
  };
}

at::Tensor run_particle_module(std::string_view kind, std::string_view settings,
                               const std::vector<std::string>& names, at::TensorList tensors) {
  return without_graph(particle_function(kind, settings, names), tensors.vec());
}

Tensors run_particle_module_backward(const at::Tensor& grad, std::string_view kind, std::string_view settings,
                                     const std::vector<std::string>& names, at::TensorList tensors,
                                     at::IntArrayRef needs) {
  return gradients_of(particle_function(kind, settings, names), tensors.vec(), grad, wanted(needs));
}

at::Tensor run_particle_module_autograd(std::string_view kind, std::string_view settings,
                                        const std::vector<std::string>& names, at::TensorList tensors) {
  static const auto forward = find_operator<decltype(run_particle_module)>("topomask::run_particle_module");
  static const auto backward =
      find_operator<decltype(run_particle_module_backward)>("topomask::run_particle_module_backward");
  LibraryCall call;
  call.run = particle_function(kind, settings, names);
  call.forward_operator = [k = std::string(kind), s = std::string(settings), names](const Tensors& in) {
    return forward.call(k, s, names, in);
  };
  call.backward_operator = [k = std::string(kind), s = std::string(settings), names](
                               const at::Tensor& grad, const Tensors& in, const std::vector<bool>& needs) {
    return backward.call(grad, k, s, names, in, std::vector<std::int64_t>(needs.begin(), needs.end()));
  };
  return differentiable(tensors.vec(), call);
}

// The outputs are as many as the last layer has biases.
at::Tensor run_particle_module_shape(std::string_view kind, std::string_view,
                                     const std::vector<std::string>& names, at::TensorList tensors) {
  const at::Tensor& first = tensors[names.size()];
  const std::string last = kind == "interlacer" ? "head.bias" : "out.bias";
  c10::SymInt channels = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == last) channels = tensors[i].sym_size(0);
  }
  if (kind == "interlacer") return shape_only({first.sym_size(0), first.sym_size(1), channels}, first);
  return shape_only({first.sym_size(0), channels, first.sym_size(2), first.sym_size(3)}, first);
}

Tensors run_particle_module_backward_shapes(const at::Tensor&, std::string_view, std::string_view,
                                            const std::vector<std::string>&, at::TensorList tensors,
                                            at::IntArrayRef needs) {
  return gradient_shapes(tensors.vec(), needs);
}

std::tuple<std::string, std::int64_t, std::vector<std::string>, Tensors> load_hdvpd_op(
    std::string_view path) {
  const ParticleCheckpoint checkpoint = read_particle_checkpoint(std::string(path));
  std::vector<std::string> names;
  Tensors tensors;
  for (const auto& [name, tensor] : checkpoint.weights) {
    names.push_back(name);
    tensors.push_back(tensor);
  }
  return {checkpoint.settings.to_toml(), checkpoint.settings.task.model.render_samples, std::move(names),
          std::move(tensors)};
}

}  // namespace

TORCH_LIBRARY_IMPL(topomask, Meta, m) {
  m.impl("run_particle_module", run_particle_module_shape);
  m.impl("run_particle_module_backward", run_particle_module_backward_shapes);
}

TORCH_LIBRARY_IMPL(topomask, CompositeExplicitAutograd, m) {
  m.impl("particle_module", particle_module);
  m.impl("run_particle_module", run_particle_module);
  m.impl("run_particle_module_backward", run_particle_module_backward);
  m.impl("load_hdvpd", load_hdvpd_op);
}

TORCH_LIBRARY_IMPL(topomask, Autograd, m) {
  m.impl("run_particle_module", run_particle_module_autograd);
}

}  // namespace topomask::ops
