#include "topomask/interlacer.h"

#include <numbers>

#include "core/check.h"
#include "nn/rules.h"

namespace topomask {
namespace {

constexpr double kRobotScale = 10;  // 10 cm become 1
constexpr std::int64_t kTokenKinds = 5;

// f alone: the graph of a cloud is new in every pass.
class CloudMaskModule final : public MaskModule {
 public:
  explicit CloudMaskModule(int hops) { learn("f", f_, initial_f(hops).unsqueeze(0)); }
  MaskPtr mask() const override { fail("Interlacer: its masks belong to a cloud"); }
  // |f| keeps every normaliser positive.
  MaskPtr on(const GrfMask& features) const { return features.with_f(f_.abs()); }

 private:
  at::Tensor f_;  // [1, hops + 1]
};

// x, sin and cos of x at wavelengths 2 m, 1 m, ...: [.., 3] -> [.., 3 + 6 bands]
at::Tensor octaves(const at::Tensor& x, std::int64_t bands) {
  if (bands == 0) return x;
  const at::Tensor scale = at::pow(2, at::arange(bands, x.options())) * std::numbers::pi;
  const at::Tensor angles = (x.unsqueeze(-1) * scale).flatten(-2);  // [.., 3 bands]
  return at::cat({x, angles.sin(), angles.cos()}, -1);
}

void check_cloud(const char* what, const at::Tensor& positions, const at::Tensor& features,
                 std::int64_t clouds, std::int64_t channels) {
  check(positions.defined() && features.defined() && positions.dim() == 3 && features.dim() == 3 &&
            positions.size(0) == clouds && positions.size(2) == 3 && features.size(0) == clouds &&
            features.size(1) == positions.size(1) && features.size(2) == channels,
        "Interlacer: expected {} positions [B, N, 3] and features [B, N, {}], got [{}] and [{}]", what,
        channels, positions.defined() ? fmt::format("{}", fmt::join(positions.sizes(), ", ")) : "nothing",
        features.defined() ? fmt::format("{}", fmt::join(features.sizes(), ", ")) : "nothing");
}

void check_scene(const ParticleScene& scene, const InterlacerOptions& o) {
  check(scene.positions.defined() && scene.positions.dim() == 3,
        "Interlacer: expected positions [B, N, 3] of particles");
  const std::int64_t clouds = scene.positions.size(0);
  for (const at::Tensor& x : {scene.positions, scene.features}) {
    check(
        !x.defined() || !x.is_cpu() || x.scalar_type() != at::kHalf,
        "Interlacer: expected float32, float64, bfloat16 or, on a GPU, float16, got {} on {}; convert model "
        "and particles",
        c10::toString(x.scalar_type()), x.device().str());
  }
  check_cloud("particle", scene.positions, scene.features, clouds, o.features);
  if (scene.past_positions.defined())
    check_cloud("past", scene.past_positions, scene.past_features, clouds, o.features);
  if (!scene.robot_positions.defined()) return;
  const at::Tensor &points = scene.robot_positions, &features = scene.robot_features;
  check(points.dim() == 4 && points.size(0) == clouds && points.size(1) == kRobotMoments &&
            points.size(3) == 3 && features.defined() && features.dim() == 4 && features.size(0) == clouds &&
            features.size(1) == kRobotMoments && features.size(2) == points.size(2) &&
            features.size(3) == kRobotChannels,
        "Interlacer: expected robot positions [{0}, {1}, K, 3] and features [{0}, {1}, K, {2}], got [{3}] "
        "and [{4}]",
        clouds, kRobotMoments, kRobotChannels, fmt::join(points.sizes(), ", "),
        features.defined() ? fmt::format("{}", fmt::join(features.sizes(), ", ")) : "nothing");
}

// All clouds as one row of tokens, as masks of packed batches want them, and back.
void reshape_stream(ResidualStream& stream, std::int64_t clouds) {
  const auto reshaped = [&](const at::Tensor& x) {
    return x.defined() ? x.reshape({clouds, -1, x.size(-1)}) : x;
  };
  stream.x = reshaped(stream.x);
  stream.pending.values = reshaped(stream.pending.values);
}

}  // namespace

at::Tensor robot_features(const at::Tensor& points, const at::Tensor& grips) {
  check(points.dim() == 4 && points.size(1) == kRobotMoments && points.size(3) == 3 && grips.dim() == 3 &&
            grips.sizes() == points.sizes().slice(0, 3),
        "robot_features: expected points [B, {}, K, 3] and grips of the same sizes but the last, got [{}] "
        "and [{}]",
        kRobotMoments, fmt::join(points.sizes(), ", "), fmt::join(grips.sizes(), ", "));
  const at::Tensor steps = points.diff(1, 1);  // [B, 2, K, 3]
  const at::Tensor first = steps.narrow(1, 0, 1), second = steps.narrow(1, 1, 1);
  return kRobotScale * at::cat({at::cat({first, first, second}, 1), at::cat({first, second, second}, 1),
                                grips.unsqueeze(-1)},
                               -1);
}

InterlacerImpl::InterlacerImpl(const InterlacerOptions& options) : options_(options) {
  const InterlacerOptions& o = options_;
  check_interlacer_options(o);
  const std::int64_t place = 3 + 6 * o.bands;
  const auto linear = [this](const char* name, std::int64_t inputs, std::int64_t outputs) {
    return register_module(name, torch::nn::Linear(inputs, outputs));
  };
  visual1_ = linear("visual1", o.features + place, o.width);
  visual2_ = linear("visual2", o.width, o.width);
  robot1_ = linear("robot1", kRobotChannels + place, o.width);
  robot2_ = linear("robot2", o.width, o.width);
  kind_embedding_ = register_parameter("kind_embedding", at::zeros({kTokenKinds, o.width}));
  global_ = register_module("global_blocks", torch::nn::ModuleList());
  local_ = register_module("local_blocks", torch::nn::ModuleList());
  const auto unmasked = [&] {
    SelfAttention attention(o.width, o.heads, AttentionVariant::linear, nullptr, 0);
    return TransformerBlock(o.width, o.mlp, 0.0, attention);
  };
  for (std::int64_t layer = 0; layer < o.layers; ++layer) {
    global_->push_back(unmasked());
    switch (o.local) {
      case LocalLayer::grf: {
        SelfAttention attention(o.width, 1, AttentionVariant::grf_asymmetric,
                                std::make_shared<CloudMaskModule>(o.hops), 0);
        local_->push_back(TransformerBlock(o.width, o.mlp, 0.0, attention));
        break;
      }
      case LocalLayer::softmax: {
        SelfAttention attention(o.width, o.heads, AttentionVariant::softmax_grf, nullptr, 0);
        local_->push_back(TransformerBlock(o.width, o.mlp, 0.0, attention));
        break;
      }
      case LocalLayer::message_passing:
        local_->push_back(MessagePassingBlock(o.width, o.mlp));
        break;
      case LocalLayer::none:
        local_->push_back(unmasked());
        break;
    }
  }
  norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({o.width})));
  head_ = linear("head", o.width, 3 + o.features);
  initialise_fan_in(*this, o.seed);
  const at::NoGradGuard no_grad;
  head_->weight.zero_();
  head_->bias.zero_();
}

void InterlacerImpl::take_parameters(const ParameterTensors& tensors, const std::string& prefix) {
  kind_embedding_ = tensors.at(prefix + "kind_embedding");
}

at::Tensor InterlacerImpl::embed(const ParticleScene& scene) {
  const auto visual = [&](const at::Tensor& positions, const at::Tensor& features, std::int64_t kind) {
    const at::Tensor inputs = at::cat({features, octaves(positions, options_.bands)}, -1);
    return visual2_(at::gelu(visual1_(inputs))) + kind_embedding_[kind];
  };
  std::vector<at::Tensor> tokens = {visual(scene.positions, scene.features, 0)};
  if (scene.past_positions.defined()) tokens.push_back(visual(scene.past_positions, scene.past_features, 1));
  if (scene.robot_positions.defined()) {
    const at::Tensor inputs =
        at::cat({scene.robot_features, octaves(scene.robot_positions, options_.bands)}, -1);
    const at::Tensor hidden = robot2_(at::gelu(robot1_(inputs)));  // [B, 3, K, width]
    const at::Tensor kinds = kind_embedding_.narrow(0, 2, kRobotMoments).view({1, kRobotMoments, 1, -1});
    tokens.push_back((hidden + kinds).flatten(1, 2));
  }
  return at::cat(tokens, 1);
}

void InterlacerImpl::pass_locally(std::int64_t layer, ResidualStream& stream, const CloudGeometry& geometry) {
  const auto number = static_cast<std::size_t>(layer);
  switch (options_.local) {
    case LocalLayer::none:
      local_->ptr<TransformerBlockImpl>(number)->pass(stream, nullptr);
      return;
    case LocalLayer::message_passing:
      local_->ptr<MessagePassingBlockImpl>(number)->pass(stream, geometry);
      return;
    default:
      break;
  }
  const auto block = local_->ptr<TransformerBlockImpl>(number);
  MaskPtr mask = geometry.neighbours;
  if (options_.local == LocalLayer::grf)
    mask = dynamic_cast<const CloudMaskModule&>(*block->attention()->mask()).on(*geometry.grf);
  reshape_stream(stream, 1);
  block->pass(stream, mask);
  reshape_stream(stream, geometry.clouds);
}

ParticleUpdate InterlacerImpl::forward(const ParticleScene& scene) {
  check_scene(scene, options_);
  std::vector<at::Tensor> places = {scene.positions};
  if (scene.past_positions.defined()) places.push_back(scene.past_positions);
  if (scene.robot_positions.defined()) places.push_back(scene.robot_positions.flatten(1, 2));
  ResidualStream stream{embed(scene)};
  if (scene.positions.size(0) > 0) {  // no clouds: nothing to draw graphs of
    const CloudGeometry geometry(at::cat(places, 1), options_);
    for (std::int64_t layer = 0; layer < options_.layers; ++layer) {
      global_->ptr<TransformerBlockImpl>(static_cast<std::size_t>(layer))->pass(stream, nullptr);
      pass_locally(layer, stream, geometry);
    }
  }
  const at::Tensor normed = stream.normalise(norm_).narrow(1, 0, scene.positions.size(1));
  // In single precision at least: what a rollout adds up must not round to whole millimetres.
  at::Tensor out = head_(normed);
  if (out.scalar_type() != at::kDouble) out = out.to(at::kFloat);
  return {kLargestStep * at::tanh(out.narrow(-1, 0, 3)), out.narrow(-1, 3, options_.features)};
}

}  // namespace topomask
