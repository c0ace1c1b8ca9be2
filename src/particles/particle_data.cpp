#include "topomask/particle_data.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "core/hash.h"
#include "core/parallel.h"
#include "core/random.h"
#include "topomask/particle_options.h"
#include "topomask/rgbd_geometry.h"

namespace topomask {
namespace {

// Independent streams of random numbers for the parts of a window.
enum class Draw : std::uint64_t { particles, past, rays };

std::uint64_t draw_seed(std::uint64_t seed, std::int64_t window, Draw draw) {
  return derive_seed(derive_seed(seed, static_cast<std::uint64_t>(window)), static_cast<std::uint64_t>(draw));
}

constexpr std::uint32_t kPixelPurpose = 0x7069786c, kRayPurpose = 0x72617973;

// `count` pixels of `total`, with repetition.
at::Tensor draw_rays(std::int64_t total, std::int64_t count, std::uint64_t seed) {
  RandomStream random(seed, kRayPurpose);
  const at::Tensor pixels = at::empty({count}, at::kLong);
  auto* out = pixels.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = static_cast<std::int64_t>(random.next_below(static_cast<std::uint64_t>(total)));
  return pixels;
}

// [C, H, W, ..] -> [C H W, ..], the chosen ones.
at::Tensor at_pixels(const at::Tensor& values, const at::Tensor& pixels) {
  return values.flatten(0, 2).index_select(0, pixels);
}

at::Tensor points_of(const RgbdMoment& moment) {
  return unproject(moment.depth, moment.intrinsics, moment.poses);
}

ParticleGroup group_of(ScenePart part) {
  switch (part) {
    case ScenePart::table:
      return ParticleGroup::table;
    case ScenePart::left_arm:
    case ScenePart::right_arm:
    case ScenePart::brush:
    case ScenePart::pan:
      return ParticleGroup::arm;
    case ScenePart::grain:
      return ParticleGroup::grain;
    default:
      return ParticleGroup::object;
  }
}

// [P] int64: the group of each particle.
at::Tensor particle_groups(const RobotTensors& states, const at::Tensor& shapes) {
  at::Tensor of_shape = states.shape_part.clone();
  auto* values = of_shape.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < of_shape.size(0); ++i)
    values[i] = static_cast<std::int64_t>(group_of(static_cast<ScenePart>(values[i])));
  return of_shape.index_select(0, shapes);
}

void check_known_pixels(std::int64_t known, std::int64_t wanted, const std::string& name) {
  check(
      known >= wanted,
      "{}: {} pixels have a known depth, fewer than the {} particles that are wanted; use fewer particles or "
      "larger frames",
      name, known, wanted);
}

// "'sweep-000003', frame 4"
std::string name_of_frame(const RgbdData& frames, const RgbdPlace& place) {
  return fmt::format("'{}', frame {}", frames.name(place.episode), place.frame);
}

// Pixels of a simulated frame that have a depth, in all cameras.
std::int64_t count_known_pixels(const RgbdData& frames, const RgbdPlace& place) {
  RenderOptions options;
  options.width = options.height = frames.size();
  options.samples = 1;  // colours do not matter
  options.shadows = false;
  std::int64_t known = 0;
  for (std::int64_t camera = 0; camera < frames.cameras(); ++camera) {
    const RgbdImage image = render_robot(*frames.robot(place.episode), static_cast<int>(place.frame),
                                         static_cast<int>(camera), options);
    known += std::count_if(image.depth.begin(), image.depth.end(), [](float depth) { return depth > 0; });
  }
  return known;
}

// Before a training begins: it would stop when it comes to a frame with too few pixels. Frames of a data set
// differ by a tenth, so that a few of them tell, unless there are hardly enough; then all are looked at.
void check_all_known_pixels(const RgbdData& frames, std::int64_t wanted) {
  constexpr std::int64_t kLooks = 32;
  constexpr double kHardly = 1.25;
  std::vector<RgbdPlace> places;  // particles are drawn from all frames but the first
  for (std::int64_t episode = 0; episode < frames.episodes(); ++episode) {
    for (std::int64_t frame = 1; frame < frames.frames(episode); ++frame) places.push_back({episode, frame});
  }
  const auto total = static_cast<std::int64_t>(places.size());
  const auto fewest_of = [&](std::int64_t looks) {
    std::vector<std::int64_t> known(static_cast<std::size_t>(looks));
    for_runs(looks, 1, [&](std::int64_t i, std::int64_t) {
      const RgbdPlace& place = places[static_cast<std::size_t>(i * total / looks)];
      const std::int64_t count = known[static_cast<std::size_t>(i)] = count_known_pixels(frames, place);
      check_known_pixels(count, wanted, name_of_frame(frames, place));
    });
    return *std::min_element(known.begin(), known.end());
  };
  const double fewest = static_cast<double>(fewest_of(std::min(kLooks, total)));
  if (fewest < kHardly * static_cast<double>(wanted)) fewest_of(total);
}

at::Tensor unit_colours(const at::Tensor& colour) {
  return colour.to(at::kFloat) / 255;
}

}  // namespace

at::Tensor sample_pixels(const at::Tensor& depth, std::int64_t count, std::uint64_t seed,
                         const std::string& name) {
  check(depth.dim() == 3 && depth.scalar_type() == at::kFloat && depth.is_cpu(),
        "{}: expected depth [C, H, W] in float32 on the CPU", name);
  const at::Tensor flat = depth.contiguous();
  const auto* values = flat.const_data_ptr<float>();
  const std::int64_t height = depth.size(1), width = depth.size(2);
  std::vector<std::int64_t> known;
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    check(
        std::isfinite(values[i]) && values[i] >= 0,
        "{}: the depth of camera {} in row {} and column {} is {}; expected metres, or 0 where it is unknown",
        name, i / (height * width), i / width % height, i % width, values[i]);
    if (values[i] > 0) known.push_back(i);
  }
  check_known_pixels(static_cast<std::int64_t>(known.size()), count, name);
  // The beginning of a random permutation (Fisher and Yates).
  RandomStream random(seed, kPixelPurpose);
  const at::Tensor pixels = at::empty({count}, at::kLong);
  auto* out = pixels.data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    std::swap(known[i], known[i + random.next_below(known.size() - i)]);
    out[i] = known[i];
  }
  return pixels;
}

namespace {

template <class Change>
ParticleBatch with_each(ParticleBatch batch, const Change& change) {
  for (at::Tensor* part : {&batch.images, &batch.pixels, &batch.past_pixels, &batch.positions,
                           &batch.past_positions, &batch.shapes, &batch.robot, &batch.grips, &batch.origins,
                           &batch.directions, &batch.colours, &batch.truth, &batch.groups})
    if (part->defined()) *part = change(*part);
  return batch;
}

}  // namespace

ParticleBatch ParticleBatch::to(c10::Device device) const {
  return with_each(*this, [&](const at::Tensor& x) { return x.to(device, /*non_blocking=*/true); });
}

ParticleBatch ParticleBatch::pinned() const {
  return with_each(*this, [](const at::Tensor& x) { return x.numel() > 0 ? x.pin_memory() : x; });
}

ParticleData::ParticleData(const std::string& folder, const ParticleDataOptions& options)
    : options_(options) {
  RgbdOptions rgbd;
  rgbd.size = options.size;
  rgbd.cache = options.cache;
  frames_ = open_rgbd(folder, rgbd);
  check(frames_->robot(0) != nullptr,
        "'{}' was recorded by a camera and has no states of a robot; particle models want a folder of "
        "'topomask simulate robot'",
        folder);
  const auto count = static_cast<std::size_t>(episodes());
  states_.resize(count);
  robots_.resize(count);
  for_runs(episodes(), 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t episode = begin; episode < end; ++episode) {
      const auto i = static_cast<std::size_t>(episode);
      states_[i] = frames_->robot_tensors(episode);
      robots_[i] =
          robot_points(states_[i], sample_robot_surface(*frames_->robot(episode), options_.robot_points));
    }
  });
  check_all_known_pixels(*frames_, options_.particles);
}

const RobotTensors& ParticleData::states(std::int64_t episode) const {
  return states_.at(static_cast<std::size_t>(episode));
}

std::int64_t ParticleData::windows(std::int64_t episode, std::int64_t rollout) const {
  const std::int64_t frames = frames_->frames(episode);
  check(rollout <= frames - kObservedFrames,
        "'{}' has {} frames; {} are seen, and a rollout of {} needs more", frames_->name(episode), frames,
        kObservedFrames, rollout);
  return frames - kObservedFrames - rollout + 1;
}

std::uint64_t ParticleData::fingerprint() const {
  Hash64 hash;
  for (std::int64_t episode = 0; episode < episodes(); ++episode)
    hash.add(std::string_view(format_robot_episode(*frames_->robot(episode))));
  return hash.value();
}

ParticleBatch ParticleData::batch(const std::vector<ParticleWindow>& windows, const BatchOptions& options,
                                  std::uint64_t seed) const {
  check(!windows.empty(), "ParticleData: expected at least one window");
  const std::int64_t rollout = options.rollout;
  const std::int64_t each = kObservedFrames + (options.rays > 0 ? rollout : 0);  // frames to render
  std::vector<RgbdPlace> places;
  for (const ParticleWindow& window : windows) {
    check(window.first >= 0 && window.first < this->windows(window.episode, rollout),
          "ParticleData: a window of '{}' must begin at frame 0 to {}, got {}", frames_->name(window.episode),
          this->windows(window.episode, rollout) - 1, window.first);
    for (std::int64_t frame = 0; frame < each; ++frame)
      places.push_back({window.episode, window.first + frame});
  }
  const std::vector<RgbdMoment> moments = frames_->moments(places);

  std::vector<at::Tensor> images, pixels, past_pixels, positions, past_positions, shapes, robot, grips,
      origins, directions, colours, truth, groups;
  for (std::size_t b = 0; b < windows.size(); ++b) {
    const ParticleWindow& window = windows[b];
    const RgbdPlace first{window.episode, window.first}, second{window.episode, window.first + 1};
    const RgbdMoment* own = &moments[b * static_cast<std::size_t>(each)];
    const RgbdMoment &past = own[0], &now = own[1];
    const std::int64_t number = options.first + static_cast<std::int64_t>(b);
    images.push_back(unit_colours(at::stack({past.colour, now.colour})).permute({0, 1, 4, 2, 3}));
    pixels.push_back(sample_pixels(now.depth, options_.particles, draw_seed(seed, number, Draw::particles),
                                   name_of_frame(*frames_, second)));
    past_pixels.push_back(sample_pixels(past.depth, options_.past_particles,
                                        draw_seed(seed, number, Draw::past), name_of_frame(*frames_, first)));
    positions.push_back(at_pixels(points_of(now), pixels.back()));
    past_positions.push_back(at_pixels(points_of(past), past_pixels.back()));
    shapes.push_back(at_pixels(now.segments, pixels.back()).to(at::kLong));

    const RobotPoints& points = robots_[static_cast<std::size_t>(window.episode)];
    const auto seen_then_told = [&](const at::Tensor& measured, const at::Tensor& commanded) {
      return at::cat({measured.narrow(0, window.first, kObservedFrames),
                      commanded.narrow(0, window.first + kObservedFrames, rollout)});
    };
    robot.push_back(seen_then_told(points.measured, points.commanded));
    grips.push_back(seen_then_told(points.grip, points.grip_commanded));

    if (options.truth) {
      const RobotTensors& states = this->states(window.episode);
      const std::int64_t seen = window.first + kObservedFrames - 1;
      const at::Tensor carried = at::empty({rollout, options_.particles, 3});
      for (std::int64_t s = 0; s < rollout; ++s)
        carried[s].copy_(carry_points(states, positions.back(), shapes.back(), seen, seen + 1 + s));
      truth.push_back(carried);
      groups.push_back(particle_groups(states, shapes.back()));
    }

    // Cameras of simulated episodes stand still.
    const CameraRays rays = camera_rays(now.intrinsics, now.poses, now.depth.size(1), now.depth.size(2));
    const std::int64_t total = now.depth.numel(), shown = std::max<std::int64_t>(rollout, 1);
    const at::Tensor chosen = draw_rays(total, shown * options.rays, draw_seed(seed, number, Draw::rays));
    origins.push_back(at_pixels(rays.origins, chosen).view({shown, options.rays, 3}));
    directions.push_back(at_pixels(rays.directions, chosen).view({shown, options.rays, 3}));
    std::vector<at::Tensor> seen;
    for (std::int64_t s = 0; s < shown; ++s) {
      const RgbdMoment& moment = rollout == 0 || options.rays == 0 ? now : own[kObservedFrames + s];
      seen.push_back(
          unit_colours(at_pixels(moment.colour, chosen.narrow(0, s * options.rays, options.rays))));
    }
    colours.push_back(at::stack(seen));
  }
  return {at::stack(images),
          at::stack(pixels),
          at::stack(past_pixels),
          at::stack(positions),
          at::stack(past_positions),
          at::stack(shapes),
          at::stack(robot),
          at::stack(grips),
          at::stack(origins),
          at::stack(directions),
          at::stack(colours),
          options.truth ? at::stack(truth) : at::Tensor(),
          options.truth ? at::stack(groups) : at::Tensor()};
}

}  // namespace topomask
