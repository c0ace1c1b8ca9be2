// How well a particle model predicts, step by step of its rollouts, beside copying and beside the true
// motion.
#include <ATen/core/grad_mode.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>

#include "core/random.h"
#include "topomask/image_metrics.h"
#include "topomask/neighbours.h"
#include "topomask/rgbd_geometry.h"
#include "train/particle_task.h"

namespace topomask {
namespace {

// A mean over numbers of which some are undefined.
struct Mean {
  double sum = 0;
  std::int64_t count = 0;
  void add(double value) {
    if (std::isnan(value)) return;
    sum += value;
    ++count;
  }
  void add_all(const at::Tensor& values) {
    const at::Tensor flat = values.to(at::kCPU, at::kDouble).contiguous().view({-1});
    for (std::int64_t i = 0; i < flat.numel(); ++i) add(flat.const_data_ptr<double>()[i]);
  }
  double value() const {
    return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(count);
  }
};

// An object that has truly moved, by its particles.
struct ObjectMotion {
  at::Tensor particles;    // [P] int64: of all N
  at::Tensor from, truth;  // [P, 3]
};

// bodies: [N] int64, the body that a particle lies on; -1: none that is an object. origin, truth: [N, 3].
std::vector<ObjectMotion> moved_objects(const at::Tensor& bodies, const at::Tensor& origin,
                                        const at::Tensor& truth) {
  constexpr std::int64_t kLeastParticles = 16;  // that tell a pose
  const at::Tensor on_cpu = bodies.to(at::kCPU).contiguous();
  const auto* body = on_cpu.const_data_ptr<std::int64_t>();
  std::map<std::int64_t, std::vector<std::int64_t>> particles;
  for (std::int64_t i = 0; i < on_cpu.numel(); ++i) {
    if (body[i] >= 0) particles[body[i]].push_back(i);
  }
  std::vector<ObjectMotion> objects;
  for (const auto& [ignored, own] : particles) {
    if (static_cast<std::int64_t>(own.size()) < kLeastParticles) continue;
    const at::Tensor index = at::tensor(own, at::kLong).to(origin.device());
    ObjectMotion object{index, origin.index_select(0, index), truth.index_select(0, index)};
    const double move = (object.truth - object.from).norm(2, {-1}).mean().item<double>();
    if (move > kLeastMove) objects.push_back(std::move(object));
  }
  return objects;
}

// Sums of ParticleSpacing over windows.
struct SpacingSum {
  Mean nearest, contact;

  // positions: [N, 3]; bodies, groups: [N] int64.
  void add(const at::Tensor& positions, const at::Tensor& bodies, const at::Tensor& groups,
           std::int64_t neighbours) {
    if (positions.size(0) < 2) return;
    const Neighbours near = knn(positions, std::max<std::int64_t>(neighbours, 1));
    nearest.add(near.distance2.select(1, 0).sqrt().median().item<double>());
    const at::Tensor others = bodies.index_select(0, near.index.clamp_min(0).to(at::kLong).view({-1}));
    const at::Tensor touches = (others.view_as(near.index) != bodies.unsqueeze(1))
                                   .logical_and(near.index >= 0)
                                   .any(1)
                                   .to(at::kDouble);
    const at::Tensor movable = (groups == static_cast<std::int64_t>(ParticleGroup::object))
                                   .logical_or(groups == static_cast<std::int64_t>(ParticleGroup::grain));
    contact.add(touches.masked_select(movable).mean().item<double>());  // NaN where there are none
  }
  ParticleSpacing spacing() const { return {nearest.value(), contact.value()}; }
};

// Sums of one step over windows.
struct StepSum {
  Mean ssim, ssim_moving, square, square_moving, chamfer;
  Mean flow[kMovingGroups];
  Mean position, rotation;  // of objects

  void add_picture(const at::Tensor& picture, const at::Tensor& truth, const at::Tensor& moving) {
    const auto squares = [](const at::Tensor& decibels) { return at::pow(10, decibels * -.1); };
    ssim.add_all(topomask::ssim(picture, truth));
    ssim_moving.add_all(topomask::ssim(picture, truth, moving));
    square.add_all(squares(psnr(picture, truth)));
    square_moving.add_all(squares(psnr(picture, truth, moving)));
  }
  void add_particles(const at::Tensor& points, const at::Tensor& truth, const at::Tensor& moved,
                     const at::Tensor& groups, const at::Tensor& surface) {
    chamfer.add(topomask::chamfer(points, surface).mean().item<double>());
    const at::Tensor error = (points - truth).norm(2, {-1});
    for (std::int64_t group = 0; group < kMovingGroups; ++group) {
      const at::Tensor own = error.masked_select(moved.logical_and(groups == group));
      flow[group].sum += own.sum(at::kDouble).item<double>();
      flow[group].count += own.numel();
    }
  }
  void add_poses(const at::Tensor& points, const std::vector<ObjectMotion>& objects) {
    for (const ObjectMotion& object : objects) {
      const RigidError error =
          rigid_error(object.from, points.index_select(0, object.particles), object.truth);
      position.add(error.position);
      rotation.add(error.rotation);
    }
  }
  double error_of(ParticleGroup group) const { return flow[static_cast<std::int64_t>(group)].value(); }
  StepScores scores() const {
    const auto decibels = [](const Mean& mean) { return -10 * std::log10(mean.value()); };
    return {ssim.value(),
            ssim_moving.value(),
            decibels(square),
            decibels(square_moving),
            chamfer.value(),
            {error_of(ParticleGroup::arm), error_of(ParticleGroup::object), error_of(ParticleGroup::grain)},
            {position.value(), rotation.value()}};
  }
};

std::vector<StepScores> scores_of(const std::vector<StepSum>& sums) {
  std::vector<StepScores> scores;
  for (const StepSum& sum : sums) scores.push_back(sum.scores());
  return scores;
}

at::Tensor unit_picture(const RgbdMoment& moment) {
  return moment.colour.to(at::kFloat) / 255;  // [C, H, W, 3]
}

// Rays of all pixels of all cameras: [1, C H W, 3].
CameraRays frame_rays(const RgbdMoment& moment, c10::Device device) {
  const CameraRays rays =
      camera_rays(moment.intrinsics, moment.poses, moment.depth.size(1), moment.depth.size(2));
  const auto flat = [&](const at::Tensor& x) { return x.reshape({1, -1, 3}).to(device); };
  return {flat(rays.origins), flat(rays.directions), {}};
}

at::Tensor picture_of(HdVpd& model, const ParticleState& state, const CameraRays& rays,
                      at::IntArrayRef shape) {
  return model->render(state, rays.origins, rays.directions).colour.to(at::kFloat).view(shape);
}

// The most memory that a device has held beyond what it held when this was made; counts nothing on a CPU.
class PeakMemory {
 public:
  explicit PeakMemory(c10::Device device) : device_(device) {
    if (device_.is_cpu()) return;
    allocator()->resetPeakStats(index());
    before_ = allocated().current;
  }
  std::optional<std::int64_t> bytes() const {
    if (device_.is_cpu()) return std::nullopt;
    return allocated().peak - before_;
  }

 private:
  c10::CachingAllocator::Stat allocated() const {
    constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return allocator()->getDeviceStats(index()).allocated_bytes[kAll];
  }
  at::DeviceAllocator* allocator() const { return at::getDeviceAllocator(device_.type()); }
  c10::DeviceIndex index() const { return device_.has_index() ? device_.index() : c10::DeviceIndex(0); }
  c10::Device device_;
  std::int64_t before_ = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// The rollout of one window, its steps timed where `seconds` is given.
std::vector<ParticleState> timed_rollout(HdVpd& model, ParticleState state, const ParticleBatch& batch,
                                         std::vector<double>* seconds) {
  std::vector<ParticleState> states;
  for (std::int64_t first = 0; first + kRobotMoments <= batch.robot.size(1); ++first) {
    const auto start = std::chrono::steady_clock::now();
    state = model->step(state, batch.robot.narrow(1, first, kRobotMoments),
                        batch.grips.narrow(1, first, kRobotMoments));
    state.positions.sum().item<float>();  // waits for the device
    if (seconds != nullptr)
      seconds->push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    states.push_back(state);
  }
  return states;
}

std::vector<RgbdMoment> true_moments(const ParticleData& data, const ParticleWindow& window,
                                     std::int64_t steps) {
  std::vector<RgbdPlace> places;
  for (std::int64_t step = 0; step <= steps; ++step)
    places.push_back({window.episode, window.first + kObservedFrames - 1 + step});
  return data.frames().moments(places);  // the last that is seen, then those to predict
}

}  // namespace

std::span<const StepScore> step_scores() {
  static constexpr StepScore kScores[] = {
      {"ssim", "SSIM", 1, 3, [](const StepScores& s) { return s.ssim; }},
      {"ssim_moving", "moving", 1, 3, [](const StepScores& s) { return s.ssim_moving; }},
      {"psnr", "PSNR", 1, 2, [](const StepScores& s) { return s.psnr; }},
      {"psnr_moving", "moving", 1, 2, [](const StepScores& s) { return s.psnr_moving; }},
      {"chamfer", "Chamfer mm", 1000, 1, [](const StepScores& s) { return s.chamfer; }},
      {"flow_arm", "arm mm", 1000, 1, [](const StepScores& s) { return s.flow.arm; }},
      {"flow_object", "object mm", 1000, 1, [](const StepScores& s) { return s.flow.object; }},
      {"flow_grain", "grain mm", 1000, 1, [](const StepScores& s) { return s.flow.grain; }},
      {"object_position", "pose mm", 1000, 1, [](const StepScores& s) { return s.object.position; }},
      {"object_rotation", "pose deg", 1, 1, [](const StepScores& s) { return s.object.rotation; }},
  };
  return kScores;
}

RolloutScores ParticleDynamics::judge(const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const at::NoGradGuard no_grad;
  Implementation& self = *implementation_;
  set_training(false);
  const std::vector<ParticleWindow> windows = self.evaluation_windows();
  const std::int64_t steps = self.options.evaluation_rollout;
  const auto count = static_cast<std::size_t>(steps);
  std::vector<StepSum> model(count), copy(count), oracle(count);
  SpacingSum spacing;
  std::vector<double> seconds;
  RolloutScores result;
  for (std::size_t w = 0; w < windows.size(); ++w) {
    const ParticleWindow& window = windows[w];
    const ParticleBatch batch = self.data
                                    .batch({window}, {.rollout = steps, .rays = 0, .truth = true},
                                           derive_seed(self.evaluation_seed(), w))
                                    .to(self.options.device);
    const ParticleState start = self.model->encode(batch);
    const PeakMemory memory(self.options.device);
    const std::vector<ParticleState> states = timed_rollout(self.model, start, batch, &seconds);
    if (w == 0) result.memory_bytes = memory.bytes();
    const std::vector<RgbdMoment> moments = true_moments(self.data, window, steps);
    const CameraRays rays = frame_rays(moments[0], self.options.device);
    const auto there = [&](const at::Tensor& x) { return x.to(self.options.device); };
    const at::Tensor last = there(unit_picture(moments[0]));
    const at::Tensor origin = batch.positions[0], groups = batch.groups[0];  // [N, 3], [N]
    const at::Tensor bodies =
        there(self.data.states(window.episode).shape_body).index_select(0, batch.shapes[0]);
    const at::Tensor object_bodies =
        bodies.masked_fill(groups != static_cast<std::int64_t>(ParticleGroup::object), -1);
    spacing.add(origin, bodies, groups, self.options.model.interlacer.neighbours);
    for (std::size_t s = 0; s < count; ++s) {
      const RgbdMoment& moment = moments[s + 1];
      const at::Tensor truth = there(unit_picture(moment)), moving = moving_pixels(truth, last);
      const at::Tensor carried = batch.truth[0][static_cast<std::int64_t>(s)];
      const at::Tensor moved = (carried - origin).norm(2, {-1}) > kLeastMove;
      const at::Tensor surface = there(unproject(moment.depth, moment.intrinsics, moment.poses)
                                           .view({-1, 3})
                                           .index({known_depth(moment.depth).view({-1})}));
      const std::vector<ObjectMotion> objects = moved_objects(object_bodies, origin, carried);
      const ParticleState told{carried.unsqueeze(0), start.features, {}, {}};
      model[s].add_picture(picture_of(self.model, states[s], rays, truth.sizes()), truth, moving);
      model[s].add_particles(states[s].positions[0], carried, moved, groups, surface);
      model[s].add_poses(states[s].positions[0], objects);
      copy[s].add_picture(last, truth, moving);
      copy[s].add_particles(origin, carried, moved, groups, surface);
      copy[s].add_poses(origin, objects);
      oracle[s].add_picture(picture_of(self.model, told, rays, truth.sizes()), truth, moving);
      oracle[s].add_particles(carried, carried, moved, groups, surface);
      oracle[s].add_poses(carried, objects);
    }
    if (progress) progress(static_cast<std::int64_t>(w) + 1, static_cast<std::int64_t>(windows.size()));
  }
  result.model = scores_of(model);
  result.copy = scores_of(copy);
  result.oracle = scores_of(oracle);
  result.windows = static_cast<std::int64_t>(windows.size());
  result.spacing = spacing.spacing();
  result.step_seconds = median(std::move(seconds));
  return result;
}

RolloutPictures ParticleDynamics::pictures(const ParticleWindow& window, std::int64_t steps) {
  const at::NoGradGuard no_grad;
  Implementation& self = *implementation_;
  set_training(false);
  const ParticleBatch own = self.data.batch({window}, {.rollout = steps, .rays = 0}, self.evaluation_seed());
  const ParticleBatch batch = own.to(self.options.device);
  const std::vector<ParticleState> states =
      timed_rollout(self.model, self.model->encode(batch), batch, nullptr);
  const std::vector<RgbdMoment> moments = true_moments(self.data, window, steps);
  const CameraRays rays = frame_rays(moments[0], self.options.device);
  RolloutPictures result;
  std::vector<at::Tensor> truth, predicted, points;
  for (std::size_t s = 0; s < states.size(); ++s) {
    truth.push_back(moments[s + 1].colour);
    predicted.push_back((picture_of(self.model, states[s], rays, truth.back().sizes()) * 255)
                            .round()
                            .to(at::kCPU, at::kByte));
    points.push_back(states[s].positions[0].to(at::kCPU));
  }
  result.truth = at::stack(truth);
  result.predicted = at::stack(predicted);
  result.points = at::stack(points);
  result.colours = moments[0].colour.view({-1, 3}).index_select(0, own.pixels[0]);
  return result;
}

ParticleWindow ParticleDynamics::example_window() const {
  const std::vector<ParticleWindow> windows = implementation_->evaluation_windows();
  return windows[windows.size() / 2];
}

}  // namespace topomask
