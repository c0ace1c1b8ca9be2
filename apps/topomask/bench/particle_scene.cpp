#include "bench/particle_scene.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <numbers>

#include "core/check.h"
#include "core/random.h"

namespace topomask::cli {
namespace {

constexpr std::int64_t kCameras = 2, kArms = 2;

at::Generator generator_of(std::uint64_t seed) {
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

// [count, 3]: on an upright cylinder of half a metre.
at::Tensor arm_points(std::int64_t count, double y, const at::Generator& random) {
  const at::Tensor angle = at::rand({count}, random) * (2 * std::numbers::pi);
  return at::stack({angle.cos() * .05 + .2, angle.sin() * .05 + y, at::rand({count}, random) * .5}, 1);
}

at::Tensor ball_points(std::int64_t count, const at::Generator& random) {
  const at::Tensor d = at::randn({count, 3}, random);
  return d / d.norm(2, {1}, true).clamp_min(1e-6) * .05 + at::tensor({.45, 0., .05}).to(at::kFloat);
}

// [clouds, count, 3]
at::Tensor clouds_of(std::int64_t clouds, std::int64_t count, std::uint64_t seed) {
  std::vector<at::Tensor> all;
  for (std::int64_t b = 0; b < clouds; ++b)
    all.push_back(scene_points(count, derive_seed(seed, static_cast<std::uint64_t>(b))));
  return at::stack(all);
}

// [clouds, moments, points, 3]: points on both arms that move by 2 cm in each moment.
at::Tensor robot_of(const HdVpdOptions& model, std::int64_t clouds, std::int64_t moments,
                    const at::Generator& random) {
  const at::Tensor first =
      at::cat({arm_points(model.robot_points, -.27, random), arm_points(model.robot_points, .27, random)});
  const at::Tensor moved = at::arange(moments, at::kFloat).view({1, moments, 1, 1}) * .02;
  return first.view({1, 1, -1, 3}).expand({clouds, moments, -1, 3}) + moved;
}

// [windows, count] int64: pixels without repetition, of `total`.
at::Tensor pixels_of(std::int64_t windows, std::int64_t count, std::int64_t total,
                     const at::Generator& random) {
  std::vector<at::Tensor> all;
  for (std::int64_t b = 0; b < windows; ++b)
    all.push_back(at::randperm(total, random, at::kLong).narrow(0, 0, count));
  return at::stack(all);
}

}  // namespace

at::Tensor scene_points(std::int64_t count, std::uint64_t seed) {
  const at::Generator random = generator_of(seed);
  const std::int64_t table = count * 3 / 5, arm = count * 4 / 25, ball = count - table - kArms * arm;
  at::Tensor flat = at::rand({table, 3}, random) * at::tensor({.8, 1.2, 0.}).to(at::kFloat) -
                    at::tensor({0., .6, 0.}).to(at::kFloat);
  const at::Tensor all =
      at::cat({flat, arm_points(arm, -.27, random), arm_points(arm, .27, random), ball_points(ball, random)});
  return all.index_select(0, at::randperm(count, random, at::kLong))
      .contiguous();  // in random order, as drawn pixels
}

ParticleScene made_scene(const HdVpdOptions& model, std::int64_t clouds, std::uint64_t seed,
                         c10::Device device) {
  const at::Generator random = generator_of(derive_seed(seed, 1));
  const std::int64_t features = model.interlacer.features, past = model.past_particles();
  ParticleScene scene;
  scene.positions = clouds_of(clouds, model.particles, seed).to(device);
  scene.features = at::randn({clouds, model.particles, features}, random).to(device);
  scene.past_positions = clouds_of(clouds, past, derive_seed(seed, 2)).to(device);
  scene.past_features = at::randn({clouds, past, features}, random).to(device);
  scene.robot_positions = robot_of(model, clouds, kRobotMoments, random).to(device);
  scene.robot_features =
      robot_features(scene.robot_positions,
                     at::zeros(scene.robot_positions.sizes().slice(0, 3), scene.robot_positions.options()));
  return scene;
}

ParticleBatch made_batch(const HdVpdOptions& model, const MadeBatch& o, std::uint64_t seed,
                         c10::Device device) {
  const std::int64_t pixels = kCameras * o.size * o.size, moments = kObservedFrames + o.rollout;
  check(model.particles <= pixels, "--train-particles: {} x {} pixels of {} cameras have room for {}, got {}",
        o.size, o.size, kCameras, pixels, model.particles);
  const at::Generator random = generator_of(derive_seed(seed, 3));
  ParticleBatch batch;
  batch.images = at::rand({o.windows, kObservedFrames, kCameras, 3, o.size, o.size}, random);
  batch.pixels = pixels_of(o.windows, model.particles, pixels, random);
  batch.past_pixels = pixels_of(o.windows, model.past_particles(), pixels, random);
  batch.positions = clouds_of(o.windows, model.particles, seed);
  batch.past_positions = clouds_of(o.windows, model.past_particles(), derive_seed(seed, 2));
  batch.shapes = at::zeros({o.windows, model.particles}, at::kLong);
  batch.robot = robot_of(model, o.windows, moments, random);
  batch.grips = at::zeros(batch.robot.sizes().slice(0, 3), at::kFloat);
  // Rays from two cameras to particles; two in five go past them, as many as pixels without depth.
  const at::Tensor target =
      batch.positions.index_select(1, at::randint(model.particles, {o.rollout * o.rays}, random, at::kLong));
  const at::Tensor camera = at::tensor({1., -.42, .62, 1., .42, .62}).to(at::kFloat).view({kCameras, 3});
  const at::Tensor from =
      camera.index_select(0, at::randint(kCameras, {o.windows * o.rollout * o.rays}, random, at::kLong));
  at::Tensor along = target.reshape({-1, 3}) - from;
  const at::Tensor past = at::rand({along.size(0), 1}, random).lt(.4);
  along = at::where(past, at::tensor({-1., 0., 1.}).to(at::kFloat), along);
  along = along / along.norm(2, {1}, true);
  const std::vector<std::int64_t> shape = {o.windows, o.rollout, o.rays, 3};
  batch.origins = from.view(shape);
  batch.directions = along.view(shape);
  batch.colours = at::rand(shape, random);
  return batch.to(device);
}

}  // namespace topomask::cli
