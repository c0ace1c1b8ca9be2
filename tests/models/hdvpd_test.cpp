// HD-VPD against the parts that it is made of, and its checkpoints.
#include "topomask/hdvpd.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "topomask/particle_runs.h"
#include "topomask/safetensors.h"
#include "train/checkpoint_file.h"

namespace topomask {
namespace {

using testing::TemporaryFolder;

constexpr std::int64_t kWindows = 2, kEyes = 2, kPixels = 8, kVisual = 24, kPast = 6, kKinematic = 6,
                       kPredicted = 3;

ParticleSettings tiny_settings(const SettingValues& more = {}) {
  SettingValues values = {{"particles", "24"},     {"past-share", "4"},    {"robot-points", "3"},
                          {"features", "3"},       {"width", "8"},         {"layers", "2"},
                          {"heads", "2"},          {"mlp", "12"},          {"bands", "2"},
                          {"anchor-every", "4"},   {"encoder-width", "8"}, {"anchor-neighbours", "5"},
                          {"render-samples", "6"}, {"render-hidden", "8"}};
  values.insert(values.end(), more.begin(), more.end());
  return ParticleSettings::from(values);
}

at::Tensor uniform(at::IntArrayRef sizes, double bound, const std::string& name) {
  at::Tensor values = at::empty(sizes, at::kFloat);
  fill_uniform(values, bound, 1, name);
  return values;
}

// Two windows of a scene within some decimetres, with three frames to predict.
ParticleBatch tiny_batch() {
  ParticleBatch batch;
  batch.images = uniform({kWindows, kObservedFrames, kEyes, 3, kPixels, kPixels}, .5, "images") + .5;
  const at::Tensor window = at::arange(kWindows).unsqueeze(1);
  const std::int64_t all = kEyes * kPixels * kPixels;
  batch.pixels = (at::arange(kVisual) * 13 + 5 * window).remainder(all);
  batch.past_pixels = (at::arange(kPast) * 29 + 3 * window).remainder(all);
  batch.positions = uniform({kWindows, kVisual, 3}, .1, "positions");
  batch.past_positions = uniform({kWindows, kPast, 3}, .1, "past");
  batch.robot = uniform({kWindows, kObservedFrames + kPredicted, kKinematic, 3}, .1, "robot");
  batch.grips = uniform({kWindows, kObservedFrames + kPredicted, kKinematic}, .02, "grips") + .02;
  // From one side towards particles, so that all rays meet some.
  batch.origins = at::tensor({0.f, 0.f, -.6f}).expand({kWindows, kVisual, 3});
  const at::Tensor ahead = batch.positions - batch.origins;
  batch.directions = ahead / ahead.norm(2, {-1}, true);
  return batch;
}

HdVpd tiny_model(const HdVpdOptions& options, std::uint64_t seed) {
  HdVpd model(options, seed);
  // The Interlacer's head starts at 0: without other weights nothing moves.
  fill_uniform(model->named_parameters()["interlacer.head.weight"], .1, seed, "head");
  return model;
}

void expect_close(const at::Tensor& a, const at::Tensor& b) {
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_TRUE(at::allclose(a, b, 1e-4, 1e-5)) << (a - b).abs().max();
}

class EveryHdVpd : public ::testing::TestWithParam<const char*> {
 protected:
  const HdVpdOptions options = tiny_settings({{"local", GetParam()}}).task.model;
  const ParticleBatch batch = tiny_batch();
};

TEST_P(EveryHdVpd, EncodesThePixelsOfItsParticles) {
  HdVpd model = tiny_model(options, 4);
  UNet encoder(options.encoder_width, options.interlacer.features, 4);
  const ParticleState state = model->encode(batch);
  EXPECT_TRUE(state.positions.equal(batch.positions));
  EXPECT_TRUE(state.past_positions.equal(batch.past_positions));
  ASSERT_EQ(state.features.sizes(), (at::IntArrayRef{kWindows, kVisual, 3}));
  ASSERT_EQ(state.past_features.sizes(), (at::IntArrayRef{kWindows, kPast, 3}));
  for (std::int64_t b = 0; b < kWindows; ++b) {
    for (const bool past : {false, true}) {
      const at::Tensor &pixels = past ? batch.past_pixels : batch.pixels,
                       &features = past ? state.past_features : state.features;
      for (std::int64_t i = 0; i < pixels.size(1); ++i) {
        const std::int64_t pixel = pixels[b][i].item<std::int64_t>(), camera = pixel / (kPixels * kPixels),
                           row = pixel / kPixels % kPixels, column = pixel % kPixels;
        const at::Tensor seen = encoder(batch.images[b][past ? 0 : 1][camera].unsqueeze(0))[0];
        expect_close(features[b][i], seen.select(1, row).select(1, column));
      }
    }
  }
}

// Step by step: the Interlacer's update is added, and the first particles are those of the past.
TEST_P(EveryHdVpd, RollsOutItsInterlacer) {
  HdVpd model = tiny_model(options, 4);
  InterlacerOptions own = options.interlacer;
  own.seed = 4;
  Interlacer interlacer(own);
  fill_uniform(interlacer->named_parameters()["head.weight"], .1, 4, "head");
  ParticleState expected = model->encode(batch);
  const std::vector<ParticleState> states = model->rollout(expected, batch.robot, batch.grips),
                                   thrifty = model->rollout(expected, batch.robot, batch.grips,
                                                            HdVpdImpl::Keep::inputs);
  ASSERT_EQ(states.size(), static_cast<std::size_t>(kPredicted));
  ASSERT_EQ(thrifty.size(), states.size());
  for (std::int64_t step = 0; step < kPredicted; ++step) {
    const at::Tensor robot = batch.robot.narrow(1, step, kRobotMoments),
                     grips = batch.grips.narrow(1, step, kRobotMoments);
    const ParticleUpdate update =
        interlacer->forward({expected.positions, expected.features, expected.past_positions,
                             expected.past_features, robot, robot_features(robot, grips)});
    EXPECT_GT(update.positions.abs().max().item<double>(), 1e-3);
    EXPECT_LE(update.positions.abs().max().item<double>(), kLargestStep);
    expected = {expected.positions + update.positions, expected.features + update.features,
                expected.positions.narrow(1, 0, kPast), expected.features.narrow(1, 0, kPast)};
    for (const auto* found : {&states, &thrifty}) {
      const ParticleState& state = (*found)[static_cast<std::size_t>(step)];
      expect_close(state.positions, expected.positions);
      expect_close(state.features, expected.features);
      expect_close(state.past_positions, expected.past_positions);
      expect_close(state.past_features, expected.past_features);
    }
  }
  EXPECT_TRUE(model->rollout(expected, batch.robot.narrow(1, 0, 2), batch.grips.narrow(1, 0, 2)).empty());
}

TEST_P(EveryHdVpd, RendersWithItsRenderer) {
  HdVpd model = tiny_model(options, 4);
  ParticleRenderer renderer(renderer_options(options), 4);
  const ParticleState state = model->encode(batch);
  const Rendered seen = model->render(state, batch.origins, batch.directions),
                 expected = renderer(state.positions, state.features, batch.origins, batch.directions);
  expect_close(seen.colour, expected.colour);
  expect_close(seen.opacity, expected.opacity);
  expect_close(seen.depth, expected.depth);
  EXPECT_GT(seen.opacity.min().item<double>(), 0);
}

TEST_P(EveryHdVpd, IsAFunctionOfItsSeed) {
  const auto last = [&](std::uint64_t seed) {
    HdVpd model = tiny_model(options, seed);
    const ParticleState state = model->rollout(model->encode(batch), batch.robot, batch.grips).back();
    return at::cat(
        {state.positions, state.features, model->render(state, batch.origins, batch.directions).colour}, -1);
  };
  const at::Tensor one = last(7);
  EXPECT_TRUE(one.equal(last(7)));
  EXPECT_GT((one - last(8)).abs().max().item<double>(), 1e-3);
}

TEST_P(EveryHdVpd, GradientsReachEveryParameter) {
  HdVpd model = tiny_model(options, 4);
  const std::vector<ParticleState> states = model->rollout(model->encode(batch), batch.robot, batch.grips);
  at::Tensor loss = at::zeros({});
  for (const ParticleState& state : states) {
    loss = loss + model->render(state, batch.origins, batch.directions).colour.square().sum();
    loss = loss + (state.positions * uniform(state.positions.sizes(), 1, "weights")).sum();
  }
  loss.backward();
  double encoder = 0, interlacer = 0, renderer = 0;
  std::int64_t count = 0;
  for (const auto& parameter : model->named_parameters()) {
    const at::Tensor gradient = parameter.value().grad();
    ASSERT_TRUE(gradient.defined()) << parameter.key();
    EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << parameter.key();
    double& part = parameter.key().starts_with("encoder.")      ? encoder
                   : parameter.key().starts_with("interlacer.") ? interlacer
                                                                : renderer;
    part += gradient.abs().sum().item<double>();
    count += gradient.numel();
  }
  EXPECT_GT(encoder, 0);
  EXPECT_GT(interlacer, 0);
  EXPECT_GT(renderer, 0);
  EXPECT_EQ(count, model->num_parameters());
}

// A checkpoint as training leaves it, of weights that no seed gives.
SafetensorsFile checkpoint_of(const HdVpd& model, const ParticleSettings& settings) {
  SafetensorsFile file;
  for (const auto& parameter : model->named_parameters()) {
    const at::Tensor weights = uniform(parameter.value().sizes(), .4, parameter.key());
    file.tensors.emplace(parameter.key(), weights);
    file.tensors.emplace("optimizer.mean." + parameter.key(), at::zeros_like(weights));
  }
  file.metadata = {{kModelKey, kParticlesKind}, {kSettingsKey, settings.to_toml()}};
  return file;
}

TEST_P(EveryHdVpd, ComesBackFromItsCheckpoint) {
  const ParticleSettings settings = tiny_settings({{"local", GetParam()}, {"seed", "11"}});
  const HdVpd fresh(settings.task_options().model, settings.task_options().model_seed);
  SafetensorsFile file = checkpoint_of(fresh, settings);
  const TemporaryFolder folder;
  const std::string path = folder / "last.safetensors";
  write_safetensors(path, file);
  HdVpd loaded = load_hdvpd(path), again = load_hdvpd(path);
  EXPECT_FALSE(loaded->is_training());
  EXPECT_EQ(loaded->num_parameters(), fresh->num_parameters());
  EXPECT_EQ(loaded->options().interlacer.local, options.interlacer.local);
  for (const auto& parameter : loaded->named_parameters())
    EXPECT_TRUE(parameter.value().equal(file.tensors.at(parameter.key()))) << parameter.key();
  const at::NoGradGuard no_grad;
  const ParticleState one = loaded->rollout(loaded->encode(batch), batch.robot, batch.grips).back(),
                      two = again->rollout(again->encode(batch), batch.robot, batch.grips).back();
  EXPECT_TRUE(one.positions.equal(two.positions));
  EXPECT_GT((one.positions - batch.positions).abs().max().item<double>(), 0);
  // Where training kept averages, these are the model.
  std::map<std::string, at::Tensor> averages;
  for (const auto& parameter : fresh->named_parameters())
    averages.emplace(parameter.key(),
                     uniform(parameter.value().sizes(), .3, "average of " + parameter.key()));
  for (const auto& [name, tensor] : averages) file.tensors.emplace(kAveragePrefix + name, tensor);
  write_safetensors(path, file);
  for (const auto& parameter : load_hdvpd(path)->named_parameters())
    EXPECT_TRUE(parameter.value().equal(averages.at(parameter.key()))) << parameter.key();
}

INSTANTIATE_TEST_SUITE_P(Locals, EveryHdVpd, ::testing::Values("grf", "mp", "none", "softmax"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(HdVpd, LocalLayersDifferInTheirParametersAlone) {
  std::vector<std::set<std::string>> names;
  for (const char* local : {"grf", "mp", "none"}) {
    names.emplace_back();
    const HdVpd model(tiny_settings({{"local", local}}).task.model, 0);
    for (const auto& parameter : model->named_parameters()) names.back().insert(parameter.key());
  }
  EXPECT_TRUE(names[0].contains("interlacer.local_blocks.1.attention.mask.f"));
  for (const std::string& name : names[0]) {
    if (!name.starts_with("interlacer.local_blocks.")) {
      EXPECT_TRUE(names[1].contains(name) && names[2].contains(name)) << name;
    }
  }
  EXPECT_NE(names[0], names[1]);
  EXPECT_NE(names[0], names[2]);
}

TEST(HdVpd, RefusesOtherCheckpoints) {
  const ParticleSettings settings = tiny_settings({{"local", "grf"}});
  const SafetensorsFile good = checkpoint_of(HdVpd(settings.task.model, 0), settings);
  const TemporaryFolder folder;
  const auto refused = [&](const std::function<void(SafetensorsFile&)>& change,
                           std::initializer_list<const char*> parts) {
    SafetensorsFile file = good;
    change(file);
    write_safetensors(folder / "x.safetensors", file);
    testing::expect_error([&] { load_hdvpd(folder / "x.safetensors"); }, parts);
  };
  const auto settings_of = [](const SettingValues& more) {
    return [more](SafetensorsFile& file) { file.metadata[kSettingsKey] = tiny_settings(more).to_toml(); };
  };
  const char* missing = "(is it of another model?)";
  refused(settings_of({{"local", "mp"}}),
          {"x.safetensors: there is no tensor 'interlacer.local_blocks.0.", missing});
  refused(settings_of({{"layers", "3"}}), {"there is no tensor 'interlacer.", "_blocks.2.", missing});
  refused(settings_of({{"width", "16"}}), {"x.safetensors: tensor 'interlacer.", "the model's is ["});
  refused(settings_of({{"hops", "2"}}),
          {"tensor 'interlacer.local_blocks.0.attention.mask.f' is [1, 4], the model's is [1, 3]"});
  refused([](SafetensorsFile& file) { file.tensors.erase("renderer.trunk1.bias"); },
          {"there is no tensor 'renderer.trunk1.bias'", missing});
  // Averages of some weights alone are not a model.
  refused(
      [](SafetensorsFile& file) {
        file.tensors.emplace("ema.renderer.trunk1.bias", file.tensors.at("renderer.trunk1.bias"));
      },
      {"there is no tensor 'encoder.", missing});
  refused([](SafetensorsFile& file) { file.metadata[kModelKey] = "vit"; },
          {"x.safetensors: is of 'topomask train vit', not of 'topomask train particles'"});
  refused([](SafetensorsFile& file) { file.metadata.clear(); }, {"not a checkpoint of 'topomask train'"});
  refused([](SafetensorsFile& file) { file.metadata[kSettingsKey] = "local = 3"; },
          {"x.safetensors", "local"});
  testing::expect_error([&] { load_hdvpd(folder / "missing.safetensors"); },
                        {"cannot open", "missing.safetensors"});
  folder.write("x.safetensors", "nothing of the kind");
  testing::expect_error([&] { load_hdvpd(folder / "x.safetensors"); }, "expected a safetensors file");
}

TEST(HdVpd, RefusesSizesThatMeanNothing) {
  const auto make = [](const SettingValues& more) { HdVpd{tiny_settings(more).task.model, 0}; };
  testing::expect_error(
      [&] {
        make({{"particles", "15"}});
      },
      "hd-vpd: expected 16 to 4194304 particles, got 15");
  testing::expect_error(
      [&] {
        make({{"past-share", "25"}});
      },
      "past-share must be 1 to the 24 particles, got 25");
  testing::expect_error(
      [&] {
        make({{"render-samples", "0"}});
      },
      "render-samples and render-hidden must be 1 or more");
  testing::expect_error([&] { make({{"bands", "17"}}); }, "bands must be 0 to 16, got 17");
}

}  // namespace
}  // namespace topomask
