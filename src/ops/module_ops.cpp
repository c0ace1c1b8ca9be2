// Modules of the library for Python: C++ modules that compute with the caller's weights.
#include <ATen/Context.h>
#include <ATen/ops/cat.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "core/suggest.h"
#include "core/tensors.h"
#include "ops/arguments.h"
#include "ops/library_call.h"
#include "topomask/data.h"
#include "topomask/hdvpd.h"
#include "topomask/models.h"
#include "topomask/particle_runs.h"
#include "train/settings.h"

namespace topomask {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RendererOptions, features, neighbours, hidden, samples, radii,
                                                bandwidths, nearest, farthest, spacing, cell)

namespace ops {
namespace {

// A module with one result, in the type of its first input. Its own weights are those at the start.
class LibraryModule {
 public:
  virtual ~LibraryModule() = default;
  virtual torch::nn::Module& module() = 0;
  virtual std::string settings() const = 0;  // complete, in the form in which they were given
  virtual at::Tensor run(const Tensors& inputs) = 0;
};

// ---- particles: settings are those of `topomask train particles`, as TOML ----

// What an Interlacer by itself has of them. The others belong to runs: it would ignore them.
Settings interlacer_settings(ParticleSettings& settings) {
  return list_settings(settings).only({"features", "local", "width", "layers", "heads", "mlp", "neighbours",
                                       "hops", "ensembles", "anchor-every", "anchor-neighbours", "bands",
                                       "seed"});
}

class InterlacerModule final : public LibraryModule {
 public:
  explicit InterlacerModule(const std::string& toml) {
    interlacer_settings(settings_).read_toml_text(toml, "interlacer");
    InterlacerOptions options = settings_.task.model.interlacer;
    options.seed = settings_.task_options().model_seed;
    interlacer_ = Interlacer(options);
  }
  torch::nn::Module& module() override { return *interlacer_; }
  std::string settings() const override {
    ParticleSettings copy = settings_;
    return interlacer_settings(copy).to_toml();
  }

  // Positions and features of now and of the past, points and grips of the robot; [0]: none.
  at::Tensor run(const Tensors& x) override {
    ParticleScene scene{x[0], x[1], {}, {}, {}, {}};
    if (x[2].dim() != 1) scene.past_positions = x[2], scene.past_features = x[3];
    if (x[4].dim() != 1) scene.robot_positions = x[4], scene.robot_features = robot_features(x[4], x[5]);
    const ParticleUpdate update = interlacer_->forward(scene);
    return at::cat({update.positions, update.features}, -1);
  }

 private:
  ParticleSettings settings_;
  Interlacer interlacer_ = nullptr;
};

class UNetModule final : public LibraryModule {
 public:
  explicit UNetModule(const std::string& toml) : settings_(ParticleSettings::from_toml_text(toml, "unet")) {
    const ParticleTaskOptions options = settings_.task_options();
    unet_ = UNet(options.model.encoder_width, options.model.interlacer.features, options.model_seed);
  }
  torch::nn::Module& module() override { return *unet_; }
  std::string settings() const override { return settings_.to_toml(); }
  at::Tensor run(const Tensors& x) override { return unet_->forward(x[0]); }

 private:
  ParticleSettings settings_;
  UNet unet_ = nullptr;
};

// Settings: RendererOptions and a seed, as JSON.
class RendererModule final : public LibraryModule {
 public:
  explicit RendererModule(const std::string& json) : settings_(RendererOptions()) {
    settings_["seed"] = 0u;
    const nlohmann::json given = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
    check(given.is_object(), "ParticleRenderer: expected finite numbers, got {}", json);
    for (const auto& [key, value] : given.items()) {
      const std::string& name = key;
      std::vector<std::string> names;
      for (const auto& known : settings_.items()) names.push_back(known.key());
      check(settings_.contains(name), "ParticleRenderer: there is no argument '{}'{}", name,
            did_you_mean(name, names));
      const nlohmann::json& usual = settings_[name];
      const bool fits = usual.is_number_unsigned()  ? value.is_number_unsigned()
                        : usual.is_number_integer() ? value.is_number_integer()
                                                    : value.is_array() == usual.is_array();
      check(fits, "ParticleRenderer: {} cannot be {}", name, value.dump());
      settings_[name] = value;
    }
    try {
      renderer_ = ParticleRenderer(settings_.get<RendererOptions>(), settings_["seed"].get<std::uint64_t>());
    } catch (const nlohmann::json::exception&) {
      fail("ParticleRenderer: expected numbers, got {}", json);
    }
  }
  torch::nn::Module& module() override { return *renderer_; }
  std::string settings() const override { return settings_.dump(); }

  // Positions, features, origins and directions -> [B, R, 5]: colour, opacity, depth.
  at::Tensor run(const Tensors& x) override {
    const Rendered seen = renderer_->forward(x[0], x[1], x[2], x[3]);
    return at::cat({seen.colour, seen.opacity.unsqueeze(-1), seen.depth.unsqueeze(-1)}, -1);
  }

 private:
  nlohmann::json settings_;
  ParticleRenderer renderer_ = nullptr;
};

// ---- vision transformers: settings are those of vit_settings_json ----

// Torch's random numbers on a device, from a seed while this lives: what was drawn can be drawn again.
class SeededScope {
 public:
  SeededScope(c10::Device device, std::uint64_t seed)
      : generator_(at::globalContext().defaultGenerator(device)), before_(generator_.get_state()) {
    generator_.set_current_seed(seed);
  }
  ~SeededScope() { generator_.set_state(before_); }
  SeededScope(const SeededScope&) = delete;
  SeededScope& operator=(const SeededScope&) = delete;

 private:
  at::Generator generator_;
  at::Tensor before_;
};

class VitModule final : public LibraryModule {
 public:
  explicit VitModule(const std::string& json)
      : images_(image_format_from_json(json)), model_(vit_options_from_json(json), images_) {}
  torch::nn::Module& module() override { return *model_; }
  std::string settings() const override { return vit_settings_json(model_->options(), images_); }

  // Images or clips, and the seed of dropout while training, else [0].
  at::Tensor run(const Tensors& x) override {
    const bool training = x[1].numel() > 0;
    model_->train(training);
    if (!training) return model_->forward(x[0]);
    const SeededScope seeded(x[0].device(), static_cast<std::uint64_t>(x[1].item<std::int64_t>()));
    return model_->forward(x[0]);
  }

 private:
  ImageFormat images_;
  VisionTransformer model_;
};

// ---- all of them ----

using SymShape = std::vector<c10::SymInt>;

struct ModuleKind {
  std::string_view name;
  std::size_t inputs;
  std::string_view last_bias;  // as long as the result has channels, but for those that `shape` adds
  std::unique_ptr<LibraryModule> (*make)(const std::string& settings);
  SymShape (*shape)(at::TensorList inputs, const c10::SymInt& channels);
};

template <class Module>
std::unique_ptr<LibraryModule> make_module(const std::string& settings) {
  return std::make_unique<Module>(settings);
}

const ModuleKind& kind_of(std::string_view name) {
  static const ModuleKind kinds[] = {
      {"interlacer", 6, "head.bias", make_module<InterlacerModule>,
       [](at::TensorList x, const c10::SymInt& channels) {
         return SymShape{x[0].sym_size(0), x[0].sym_size(1), channels};
       }},
      {"unet", 1, "out.bias", make_module<UNetModule>,
       [](at::TensorList x, const c10::SymInt& channels) {
         return SymShape{x[0].sym_size(0), channels, x[0].sym_size(2), x[0].sym_size(3)};
       }},
      {"renderer", 4, "colour2.bias", make_module<RendererModule>,
       [](at::TensorList x, const c10::SymInt& channels) {
         return SymShape{x[2].sym_size(0), x[2].sym_size(1), channels + 2};
       }},
      {"vit", 2, "head.bias", make_module<VitModule>,
       [](at::TensorList x, const c10::SymInt& channels) {
         return SymShape{x[0].sym_size(0), channels};
       }},
  };
  for (const ModuleKind& kind : kinds) {
    if (kind.name == name) return kind;
  }
  fail("library_module: there is no '{}'", name);
}

ParameterTensors initial_weights(torch::nn::Module& module) {
  ParameterTensors weights;
  for (const auto& item : module.named_parameters()) weights.emplace(item.key(), item.value().detach());
  return weights;
}

// Building a module draws its weights and samples its walks, so modules are kept, each on a device and in a
// precision. One call at a time has one.
class KeptModules {
 public:
  template <class Use>
  auto use(const ModuleKind& kind, const std::string& settings, const at::TensorOptions& weights, Use&& use) {
    constexpr std::size_t kMostModules = 16;
    const at::ScalarType precision =
        c10::typeMetaToScalarType(weights.dtype()) == at::kDouble ? at::kDouble : at::kFloat;
    const std::string key =
        fmt::format("{}\n{}\n{} {}", kind.name, settings, weights.device().str(), c10::toString(precision));
    const std::lock_guard lock(mutex_);
    auto found = modules_.find(key);
    if (found == modules_.end()) {
      if (modules_.size() >= kMostModules) modules_.clear();
      found = modules_.emplace(key, kind.make(settings)).first;
      found->second->module().to(weights.device(), precision);
    }
    return use(*found->second);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<LibraryModule>> modules_;
};

KeptModules& kept_modules() {
  static KeptModules& modules = *new KeptModules;  // never destroyed: CUDA may end before it
  return modules;
}

// tensors: the weights by their names, then the inputs.
TensorFunction module_function(std::string_view kind_name, std::string_view settings,
                               const std::vector<std::string>& names) {
  return [&kind = kind_of(kind_name), settings = std::string(settings), names](const Tensors& tensors) {
    check(!names.empty() && tensors.size() == names.size() + kind.inputs,
          "run_library_module: expected weights and {} inputs, got {} tensors", kind.inputs, tensors.size());
    const at::Tensor& first = tensors[names.size()];
    check_place("run_library_module", "the first input", first);
    ParameterTensors weights;
    for (std::size_t i = 0; i < names.size(); ++i) weights.emplace(names[i], tensors[i]);
    const Tensors inputs(tensors.end() - static_cast<std::ptrdiff_t>(kind.inputs), tensors.end());
    for (const at::Tensor& input : inputs) {  // a single number is a seed
      check(input.is_floating_point() || input.dim() == 0, "{}: expected floating-point numbers, got {}",
            kind.name, describe(input));
    }
    return kept_modules().use(kind, settings, tensors[0].options(), [&](LibraryModule& own) {
      // Nothing of the caller's is kept, whatever happens.
      struct GiveBack {
        torch::nn::Module& module;
        ~GiveBack() { take_parameters(module, initial_weights(module)); }
      } give_back{own.module()};
      take_parameters(own.module(), weights);
      try {
        return own.run(inputs).to(first.scalar_type());
      } catch (const c10::Error&) {
        const at::ScalarType of_weights = tensors[0].scalar_type();
        check(first.scalar_type() == of_weights,
              "{}: the input is {} and the weights are {}; convert one of them", kind.name,
              c10::toString(first.scalar_type()), c10::toString(of_weights));
        throw;
      }
    });
  };
}

std::tuple<std::string, std::vector<std::string>, Tensors> names_and_tensors(
    std::string settings, const std::map<std::string, at::Tensor>& weights) {
  std::tuple<std::string, std::vector<std::string>, Tensors> result = {std::move(settings), {}, {}};
  for (const auto& [name, tensor] : weights) {
    std::get<1>(result).push_back(name);
    std::get<2>(result).push_back(tensor.clone());
  }
  return result;
}

std::tuple<std::string, std::vector<std::string>, Tensors> library_module(std::string_view kind,
                                                                          std::string_view settings) {
  return kept_modules().use(
      kind_of(kind), std::string(settings), at::TensorOptions(at::kFloat),
      [](LibraryModule& own) { return names_and_tensors(own.settings(), initial_weights(own.module())); });
}

at::Tensor run_library_module(std::string_view kind, std::string_view settings,
                              const std::vector<std::string>& names, at::TensorList tensors) {
  return without_graph(module_function(kind, settings, names), tensors.vec());
}

Tensors run_library_module_backward(const at::Tensor& grad, std::string_view kind, std::string_view settings,
                                    const std::vector<std::string>& names, at::TensorList tensors,
                                    at::IntArrayRef needs) {
  return gradients_of(module_function(kind, settings, names), tensors.vec(), grad, wanted(needs));
}

at::Tensor run_library_module_autograd(std::string_view kind, std::string_view settings,
                                       const std::vector<std::string>& names, at::TensorList tensors) {
  static const auto forward = find_operator<decltype(run_library_module)>("topomask::run_library_module");
  static const auto backward =
      find_operator<decltype(run_library_module_backward)>("topomask::run_library_module_backward");
  LibraryCall call;
  call.run = module_function(kind, settings, names);
  call.forward_operator = [k = std::string(kind), s = std::string(settings), names](const Tensors& in) {
    return forward.call(k, s, names, in);
  };
  call.backward_operator = [k = std::string(kind), s = std::string(settings), names](
                               const at::Tensor& grad, const Tensors& in, const std::vector<bool>& needs) {
    return backward.call(grad, k, s, names, in, std::vector<std::int64_t>(needs.begin(), needs.end()));
  };
  return differentiable(tensors.vec(), call);
}

at::Tensor run_library_module_shape(std::string_view kind_name, std::string_view,
                                    const std::vector<std::string>& names, at::TensorList tensors) {
  const ModuleKind& kind = kind_of(kind_name);
  const auto last = std::find(names.begin(), names.end(), kind.last_bias);
  check(last != names.end(), "run_library_module: there is no tensor '{}'", kind.last_bias);
  const at::TensorList inputs = tensors.slice(names.size());
  const c10::SymInt channels = tensors[static_cast<std::size_t>(last - names.begin())].sym_size(0);
  return shape_only(kind.shape(inputs, channels), inputs[0]);
}

Tensors run_library_module_backward_shapes(const at::Tensor&, std::string_view, std::string_view,
                                           const std::vector<std::string>&, at::TensorList tensors,
                                           at::IntArrayRef needs) {
  return gradient_shapes(tensors.vec(), needs);
}

// ---- trained models ----

std::tuple<std::string, std::vector<std::string>, Tensors> load_vit_op(std::string_view path) {
  const VitCheckpoint checkpoint = read_vit_checkpoint(std::string(path));
  return names_and_tensors(vit_settings_json(checkpoint.model, checkpoint.images), checkpoint.weights);
}

// Settings of the run, then of its Interlacer and of its renderer.
std::tuple<std::string, std::string, std::string, std::vector<std::string>, Tensors> load_hdvpd_op(
    std::string_view path) {
  ParticleCheckpoint checkpoint = read_particle_checkpoint(std::string(path));
  auto [settings, names, tensors] = names_and_tensors(checkpoint.settings.to_toml(), checkpoint.weights);
  const nlohmann::json renderer = renderer_options(checkpoint.settings.task.model);
  return {std::move(settings), interlacer_settings(checkpoint.settings).to_toml(), renderer.dump(),
          std::move(names), std::move(tensors)};
}

at::Tensor normalise_images_op(const at::Tensor& images, at::ArrayRef<double> mean,
                               at::ArrayRef<double> stddev) {
  return normalise_images(images, mean.vec(), stddev.vec());
}

at::Tensor normalise_images_shape(const at::Tensor& images, at::ArrayRef<double>, at::ArrayRef<double>) {
  return shape_only(images.sym_sizes(), images, at::kFloat);
}

}  // namespace

TORCH_LIBRARY_IMPL(topomask, Meta, m) {
  m.impl("run_library_module", run_library_module_shape);
  m.impl("run_library_module_backward", run_library_module_backward_shapes);
  m.impl("normalise_images", normalise_images_shape);
}

TORCH_LIBRARY_IMPL(topomask, CompositeExplicitAutograd, m) {
  m.impl("library_module", library_module);
  m.impl("run_library_module", run_library_module);
  m.impl("run_library_module_backward", run_library_module_backward);
  m.impl("load_vit", load_vit_op);
  m.impl("load_hdvpd", load_hdvpd_op);
  m.impl("normalise_images", normalise_images_op);
}

TORCH_LIBRARY_IMPL(topomask, Autograd, m) {
  m.impl("run_library_module", run_library_module_autograd);
}

}  // namespace ops
}  // namespace topomask
