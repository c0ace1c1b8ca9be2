// The renderer of particles and the Interlacer on a GPU, against float64 on the CPU.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compare.h"
#include "gpu.h"
#include "nn/row_copies.h"
#include "particles/gpu.h"
#include "particles/ray_samples.h"
#include "particles/ring_features.h"
#include "topomask/interlacer.h"
#include "topomask/particle_renderer.h"
#include "topomask/particle_training.h"
#include "train/autocast.h"

namespace topomask::testing {
namespace {

// Numbers that float32 holds, so that both devices see the same.
at::Tensor normal(at::IntArrayRef sizes, std::uint64_t seed) {
  at::manual_seed(seed);
  return at::randn(sizes, at::kFloat).to(at::kDouble);
}
at::Tensor uniform(at::IntArrayRef sizes, std::uint64_t seed) {
  at::manual_seed(seed);
  return at::rand(sizes, at::kFloat).to(at::kDouble);
}

// `run` in float64 on the CPU against float32 and float64 on the GPU, there twice.
void compare(const std::vector<at::Tensor>& values, const Run& run) {
  const Outcome expected = differentiate(run, leaves_on(values, at::kCPU, at::kDouble));
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    SCOPED_TRACE(c10::toString(dtype));
    const Outcome actual = differentiate(run, leaves_on(values, at::kCUDA, dtype));
    expect_close(actual, expected, tolerance_of(dtype));
    expect_identical(actual, differentiate(run, leaves_on(values, at::kCUDA, dtype)));
  }
}

// Particles around the origin and rays from about (1, 0, 0), most of which meet some.
struct Clouds {
  at::Tensor positions, features, origins, directions;
  Clouds(std::int64_t clouds, std::int64_t particles, std::int64_t rays, std::int64_t width,
         double spread = .1)
      : positions(spread * normal({clouds, particles, 3}, 1)),
        features(normal({clouds, particles, width}, 2)),
        origins(at::tensor({1., 0., 0.}, at::kDouble) + .05 * normal({clouds, rays, 3}, 3)),
        directions(.15 * normal({clouds, rays, 3}, 4) - origins) {
    positions = positions.to(at::kFloat).to(at::kDouble);
    if (rays > 2) directions.select(1, rays - 1).neg_();
    directions = directions / directions.norm(2, {-1}, true);
  }
};

TEST(CudaRaySamples, AreThoseOfTheCpu) {
  TOPOMASK_NEEDS_GPU();
  RendererOptions options;
  for (const std::int64_t limit : {1, 7, 32, 50}) {
    for (const std::int64_t particles : {0, 1, 40, 3000}) {
      for (const double spread : {.1, 3e4}) {  // metres: the second is beyond the grid's last cell
        SCOPED_TRACE(::testing::Message() << limit << " of " << particles << ", " << spread);
        options.samples = limit;
        Clouds scene(3, particles, 70, 1, spread);
        if (particles > 3) scene.positions[1][2].fill_(std::numeric_limits<double>::quiet_NaN());
        const RaySamples expected = ray_samples(scene.positions, scene.origins, scene.directions, options);
        for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
          const RaySamples got = ray_samples(scene.positions.to(at::kCUDA, dtype).contiguous(),
                                             scene.origins.to(at::kCUDA).contiguous(),
                                             scene.directions.to(at::kCUDA).contiguous(), options);
          ASSERT_TRUE(got.padded());
          const at::Tensor taken = at::zeros({3 * 70 * limit}, at::kBool).index_fill(0, expected.slot, true);
          EXPECT_TRUE(at::equal(got.count.cpu().to(at::kLong), taken.view({3 * 70, limit}).sum(1)));
          EXPECT_TRUE(at::equal(got.query.cpu().index_select(0, expected.slot), expected.query.to(dtype)));
          EXPECT_TRUE(
              at::equal(got.distance.cpu().index_select(0, expected.slot), expected.distance.to(dtype)));
          EXPECT_TRUE(at::equal(got.query.isnan().any(1).cpu(), taken.logical_not()));
          EXPECT_EQ(got.ptr[3].item<std::int64_t>(), 3 * 70 * limit);
        }
        if (particles == 3000 && spread < 1) {
          EXPECT_GT(expected.slot.size(0), 100);
        }
      }
    }
  }
}

TEST(CudaRingSums, AreThoseOfTheCpu) {
  TOPOMASK_NEEDS_GPU();
  const std::vector<double> all_radii = {0, .1, .3, .2, .05}, all_bandwidths = {.1, .2, .3, .1, .1};
  constexpr std::int64_t kSamples = 333, kParticles = 57;
  for (const std::int64_t width : {1, 4, 7, 16, 17, 40}) {
    for (const std::int64_t neighbours : {1, 5, 16, 33}) {
      for (const std::size_t rings : {1, 4, 5}) {
        SCOPED_TRACE(::testing::Message()
                     << width << " features, " << neighbours << " neighbours, " << rings << " rings");
        const std::vector<double> radii(all_radii.begin(),
                                        all_radii.begin() + static_cast<std::ptrdiff_t>(rings));
        const std::vector<double> bandwidths(all_bandwidths.begin(),
                                             all_bandwidths.begin() + static_cast<std::ptrdiff_t>(rings));
        const auto rounded = [](const at::Tensor& y) { return y.to(at::kFloat).to(at::kDouble); };
        const at::Tensor x = rounded(.3 * normal({kParticles, 3}, 1)), f = normal({kParticles, width}, 2);
        const at::Tensor queries = rounded(.3 * normal({kSamples, 3}, 3));
        queries[4].copy_(x[7]);  // distance 0, where the gradient is 0
        // Some are missing, one sample sees nothing, and one particle is seen by all others.
        at::Tensor index = (uniform({kSamples, neighbours}, 4) * (kParticles + 9)).floor().to(at::kInt);
        index = at::where(index.ge(kParticles), -1, index);
        index.select(1, 0).fill_(3);
        index[4][0] = 7;
        index[5].fill_(-1);
        compare({x, f}, [&](const std::vector<at::Tensor>& leaf) {
          const at::Device device = leaf[0].device();
          return ring_features(leaf[0], leaf[1], queries.to(device, leaf[0].scalar_type()),
                               index.to(device, at::kInt), radii, bandwidths);
        });
      }
    }
  }
}

TEST(CudaRingSums, OfWhatIsFarAwayOrNotThere) {
  TOPOMASK_NEEDS_GPU();
  const std::vector<double> radii = {0, .1}, bandwidths = {.1, .2};
  at::Tensor x = normal({20, 3}, 1).to(at::kCUDA, at::kFloat);
  x[7].fill_(1e30f);
  x.requires_grad_();
  const at::Tensor f = normal({20, 5}, 2).to(at::kCUDA, at::kFloat),
                   index = (uniform({33, 6}, 4) * 20).floor().to(at::kCUDA, at::kInt);
  const at::Tensor out =
      ring_features(x, f, normal({33, 3}, 3).to(at::kCUDA, at::kFloat), index, radii, bandwidths);
  const at::Tensor gradient = torch::autograd::grad({out.sum()}, {x})[0];
  EXPECT_TRUE(out.isfinite().all().item<bool>());
  EXPECT_TRUE(gradient.isfinite().all().item<bool>());
  EXPECT_EQ(gradient[7].abs().max().item<double>(), 0);
  EXPECT_GT(gradient.abs().max().item<double>(), 0);
  const at::Tensor none = at::empty({0, 3}, x.options()).requires_grad_();
  const at::Tensor nothing =
      ring_features(none, at::empty({0, 5}, f.options()), at::zeros({33, 3}, f.options()),
                    at::full({33, 6}, -1, index.options()), radii, bandwidths);
  EXPECT_EQ(nothing.abs().max().item<double>(), 0);
  EXPECT_EQ(torch::autograd::grad({nothing.sum()}, {none})[0].sizes(), (at::IntArrayRef{0, 3}));
}

// Front to back with ATen, places that are free left out.
at::Tensor composited_plainly(const at::Tensor& density, const at::Tensor& colour, const at::Tensor& distance,
                              const at::Tensor& taken, const RendererOptions& options) {
  const at::Tensor tau = at::where(taken, 100 * options.spacing * at::softplus(density - 1), 0.0);
  const at::Tensor weight = at::exp(tau - tau.cumsum(-1)) * -at::expm1(-tau), through = at::exp(-tau.sum(-1));
  const at::Tensor shown = (weight.unsqueeze(-1) * colour.sigmoid()).sum(-2) + through.unsqueeze(-1);
  const at::Tensor depth = (weight * distance).sum(-1) + through * options.farthest;
  return at::cat({shown, (1 - through).unsqueeze(-1), depth.unsqueeze(-1)}, -1);
}

TEST(CudaCompositing, IsThatOfTheCpu) {
  TOPOMASK_NEEDS_GPU();
  const RendererOptions options;
  for (const std::int64_t places : {1, 9, 32}) {
    constexpr std::int64_t kClouds = 2, kRays = 150;
    const at::Tensor count =
        (uniform({kClouds, kRays}, 5) * static_cast<double>(places + 1)).floor().to(at::kInt);
    const at::Tensor taken = at::arange(places, at::kInt).lt(count.unsqueeze(-1));
    const at::Tensor distance = uniform({kClouds, kRays, places}, 6) + .1;
    // From clear to opaque, and some beyond softplus's threshold.
    const std::vector<at::Tensor> values = {3 * normal({kClouds, kRays, places}, 7) - 3,
                                            normal({kClouds, kRays, places, 3}, 8)};
    values[0][0][3].fill_(25);
    const Outcome expected =
        differentiate([&](const auto& x) { return composited_plainly(x[0], x[1], distance, taken, options); },
                      leaves_on(values, at::kCPU, at::kDouble));
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
      SCOPED_TRACE(::testing::Message() << places << " places, " << c10::toString(dtype));
      const at::ScalarType wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
      RaySamples samples;
      samples.distance = distance.to(at::kCUDA, wide);
      samples.count = count.to(at::kCUDA).flatten();
      const testing::Run on_gpu = [&](const std::vector<at::Tensor>& x) {
        const Rendered out = composited_cuda(x[0].to(dtype), x[1].to(dtype), samples, 100, options);
        return at::cat({out.colour, out.opacity.unsqueeze(-1), out.depth.unsqueeze(-1)}, -1);
      };
      const Outcome actual = differentiate(on_gpu, leaves_on(values, at::kCUDA, wide));
      expect_close(actual, expected, tolerance_of(dtype));
      expect_identical(actual, differentiate(on_gpu, leaves_on(values, at::kCUDA, wide)));
    }
  }
}

Rendered rendered_with(const RendererOptions& options, const std::vector<at::Tensor>& x,
                       const Clouds& scene) {
  const c10::Device device = x[0].device();
  return render_particles(x[0], x[1], scene.origins.to(device), scene.directions.to(device),
                          {{x[2], x[3]}, {x[4], x[5]}, {x[6], x[7]}, {x[8], x[9]}, {x[10], x[11]}}, options);
}

std::vector<at::Tensor> renderer_leaves(const RendererOptions& options, const Clouds& scene) {
  std::vector<at::Tensor> values = {scene.positions, scene.features};
  for (const auto& item : ParticleRenderer(options, 3)->named_parameters()) values.push_back(item.value());
  return values;
}

TEST(CudaRenderer, HasTheGradientsOfTheCpu) {
  TOPOMASK_NEEDS_GPU();
  const RendererOptions options;
  const Clouds scene(3, 4000, 90, options.features);
  const std::vector<at::Tensor> values = renderer_leaves(options, scene);
  const testing::Run run = [&](const std::vector<at::Tensor>& x) {
    const Rendered out = rendered_with(options, x, scene);
    return at::cat({out.colour, out.opacity.unsqueeze(-1), out.depth.unsqueeze(-1)}, -1)
        .to(x[0].scalar_type());
  };
  // Samples see their nearest particles, which float32 may order otherwise than float64: on numbers that both
  // hold the queries still differ. Hence the same queries in both, by comparing with the CPU in the same
  // type.
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    SCOPED_TRACE(c10::toString(dtype));
    const Outcome expected = differentiate(run, leaves_on(values, at::kCPU, dtype));
    EXPECT_GT(expected.result.select(-1, 3).mean().item<double>(), .1);
    const Outcome actual = differentiate(run, leaves_on(values, at::kCUDA, dtype));
    expect_close(actual, expected, dtype == at::kFloat ? 1e-4 : 1e-10);
    expect_identical(actual, differentiate(run, leaves_on(values, at::kCUDA, dtype)));
    if (dtype == at::kDouble) continue;
    const testing::Run mixed = [&](const std::vector<at::Tensor>& x) {
      const AutocastScope scope(true);
      return run(x);
    };
    // 0.050 of the gradients of positions was seen, where steep rings and rounded products meet.
    expect_close(differentiate(mixed, leaves_on(values, at::kCUDA, dtype)), expected, 8e-2);
  }
}

TEST(CudaRenderer, OfNothing) {
  TOPOMASK_NEEDS_GPU();
  const RendererOptions options;
  for (const auto& [particles, rays] : {std::pair(0, 5), {5, 0}, {1, 1}}) {
    SCOPED_TRACE(::testing::Message() << particles << " particles, " << rays << " rays");
    const Clouds scene(2, particles, rays, options.features);
    const std::vector<at::Tensor> x = leaves_on(renderer_leaves(options, scene), at::kCUDA, at::kFloat);
    const Rendered out = rendered_with(options, x, scene);
    EXPECT_EQ(out.colour.sizes(), (at::IntArrayRef{2, rays, 3}));
    if (particles == 0) {
      EXPECT_EQ(out.colour.min().item<double>(), 1);
    }
    EXPECT_EQ(torch::autograd::grad({out.colour.sum()}, {x[0]})[0].sizes(), x[0].sizes());
  }
  // What is not finite is not seen.
  Clouds scene(1, 50, 40, options.features);
  const auto colours = [&] {
    const at::NoGradGuard no_grad;
    return rendered_with(options, leaves_on(renderer_leaves(options, scene), at::kCUDA, at::kFloat), scene)
        .colour;
  };
  scene.positions = at::cat({scene.positions, 100 + scene.positions.narrow(1, 0, 2)}, 1);
  scene.features = at::cat({scene.features, scene.features.narrow(1, 0, 2)}, 1);
  const at::Tensor plain = colours();
  scene.positions.narrow(1, 50, 2).fill_(std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(at::equal(colours(), plain));
}

TEST(CudaRenderer, ManyRaysInParts) {
  TOPOMASK_NEEDS_GPU();
  const RendererOptions options;
  const Clouds scene(2, 500, 20000, options.features);
  const std::vector<at::Tensor> x = leaves_on(renderer_leaves(options, scene), at::kCUDA, at::kFloat);
  const at::Tensor whole = rendered_with(options, x, scene).colour.detach();
  const at::NoGradGuard no_grad;  // in parts
  EXPECT_LE(relative_error(rendered_with(options, x, scene).colour, whole), 1e-6);
}

// One row is copied often, others never.
TEST(CudaRowCopies, HaveTheGradientsOfTheCpu) {
  TOPOMASK_NEEDS_GPU();
  constexpr std::int64_t kRows = 70;
  at::Tensor index = (uniform({40, 50}, 1) * (kRows - 5)).floor().to(at::kLong);
  index.select(1, 7).fill_(3);
  for (const std::int64_t channels : {1, 3, 128, 200}) {
    SCOPED_TRACE(channels);
    const std::vector<at::Tensor> values = {normal({kRows, channels}, 2)};
    const auto run = [&](const std::vector<at::Tensor>& x) {
      return RowCopies(index.to(x[0].device()), kRows).of(x[0]);
    };
    const Outcome expected = differentiate(run, leaves_on(values, at::kCPU, at::kDouble));
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
      const Outcome actual = differentiate(run, leaves_on(values, at::kCUDA, dtype));
      expect_close(actual, expected, tolerance_of(dtype));
      if (dtype != at::kDouble)
        expect_identical(actual, differentiate(run, leaves_on(values, at::kCUDA, dtype)));
    }
  }
}

class CudaInterlacer : public OnGpu<LocalLayer> {};
INSTANTIATE_TEST_SUITE_P(Locals, CudaInterlacer,
                         ::testing::Values(LocalLayer::grf, LocalLayer::message_passing, LocalLayer::none,
                                           LocalLayer::softmax),
                         [](const auto& layer) { return std::string(word_of(layer.param)); });

// More tokens than the dense engine takes, so that global attention keeps its sums on chip.
TEST_P(CudaInterlacer, HasTheGradientsOfTheCpu) {
  InterlacerOptions o;
  o.features = 5;
  o.width = 64;
  o.layers = 2;
  o.heads = 2;
  o.mlp = 96;
  o.local = GetParam();
  const auto run_on = [&](c10::Device device, at::ScalarType dtype, bool mixed) {
    Interlacer model(o);
    fill_uniform(model->named_parameters()["head.weight"], .2, 9, "head");
    model->to(device);
    model->to(dtype);
    std::vector<at::Tensor> leaves =
        leaves_on({.3 * normal({2, 900, 3}, 1), normal({2, 900, 5}, 2)}, device, dtype);
    leaves[0] = leaves[0].to(at::kFloat).to(dtype).detach().requires_grad_();
    for (const at::Tensor& parameter : model->parameters()) leaves.push_back(parameter);
    const at::Tensor robot = .3 * uniform({2, 3, 40, 3}, 5).to(device, dtype);
    const ParticleScene fixed = {{},
                                 {},
                                 .3 * normal({2, 200, 3}, 3).to(device, dtype),
                                 normal({2, 200, 5}, 4).to(device, dtype),
                                 robot,
                                 robot_features(robot, uniform({2, 3, 40}, 6).to(device, dtype))};
    return differentiate(
        [&](const std::vector<at::Tensor>& x) {
          ParticleScene scene = fixed;
          scene.positions = x[0];
          scene.features = x[1];
          const AutocastScope scope(mixed);
          const ParticleUpdate update = model->forward(scene);
          return at::cat({10 * update.positions, update.features}, -1);
        },
        leaves);
  };
  const Outcome expected = run_on(at::kCPU, at::kFloat, false);
  expect_close(run_on(at::kCUDA, at::kFloat, false), expected, 2e-3);
  const Outcome mixed = run_on(at::kCUDA, at::kFloat, true);
  expect_close(mixed, expected, 1e-1);
  expect_identical(run_on(at::kCUDA, at::kFloat, true), mixed);
}

// Batches without rays, prepared ahead; scores on the device.
TEST(CudaParticleDynamics, HasTheFlowAndTheScoresOfTheCpu) {
  TOPOMASK_NEEDS_GPU();
  ParticleTaskOptions o;
  o.model.interlacer.width = 32;
  o.model.interlacer.layers = 1;
  o.model.encoder_width = 8;
  o.model.particles = 96;
  o.model.robot_points = 4;
  o.batch = 2;
  o.rollout = 2;
  o.render_loss = 0;
  o.flow_loss = 1;
  o.validation_every = 0;
  o.evaluation_windows = 4;
  o.evaluation_rollout = 2;
  const ParticleData data(
      TOPOMASK_ROBOT_STATES,
      {.particles = 96, .past_particles = o.model.past_particles(), .robot_points = 4, .size = 16});
  struct Found {
    std::vector<double> losses;
    Evaluation evaluation;
    RolloutScores scores;
  };
  const auto run_on = [&](c10::Device device) {
    o.device = device;
    ParticleDynamics task(data, o);
    for (const NamedParameter& parameter : task.parameters()) {
      if (parameter.name == "interlacer.head.weight") fill_uniform(parameter.tensor, .2, 9, "head");
    }
    Found found;
    task.start_epoch(0, 0);
    for (int step = 0; step < 3; ++step) {
      const Task::Loss loss = task.loss();
      loss.loss.backward();
      found.losses.push_back(loss.parts.item<double>());
    }
    const at::NoGradGuard no_grad;
    found.evaluation = task.evaluate();
    found.scores = task.judge();
    return found;
  };
  // Convolutions in TF32, cuDNN's default, move particles by a thousandth; a particle that then has another
  // neighbour goes elsewhere.
  at::Context& torch = at::globalContext();
  const bool tf32 = torch.allowTF32CuDNN();
  torch.setAllowTF32CuDNN(false);
  const Found expected = run_on(at::kCPU), actual = run_on(at::kCUDA);
  torch.setAllowTF32CuDNN(tf32);
  const auto expect_near = [](const char* name, double a, double b) {
    if (std::isnan(a) && std::isnan(b)) return;
    EXPECT_NEAR(a, b, 1e-2 * std::max(1e-3, std::abs(b))) << name;
  };
  for (std::size_t i = 0; i < 3; ++i) expect_near("loss", actual.losses[i], expected.losses[i]);
  expect_near("flow of evaluation", actual.evaluation.parts[0], expected.evaluation.parts[0]);
  expect_near("accuracy", actual.evaluation.accuracy, expected.evaluation.accuracy);
  for (std::size_t i = 0; i < 2; ++i) {
    SCOPED_TRACE(::testing::Message() << "step " << i + 1);
    const StepScores &a = actual.scores.model[i], &b = expected.scores.model[i];
    expect_near("ssim", a.ssim, b.ssim);
    expect_near("psnr_moving", a.psnr_moving, b.psnr_moving);
    expect_near("chamfer", a.chamfer, b.chamfer);
    expect_near("flow.arm", a.flow.arm, b.flow.arm);
    expect_near("flow.object", a.flow.object, b.flow.object);
    expect_near("flow.grain", a.flow.grain, b.flow.grain);
  }
}

}  // namespace
}  // namespace topomask::testing
