#include "topomask/rgbd_data.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>

#include "core/check.h"
#include "core/parallel.h"
#include "io/files.h"
#include "io/memory.h"
#include "robot/cpu/checks.h"
#include "robot/cpu/index.h"

namespace topomask {
namespace {

template <class Value>
at::Tensor rgbd_tensor(const Value* values, std::size_t count, at::IntArrayRef shape, at::ScalarType type) {
  at::Tensor tensor = at::empty(shape, type);
  check(tensor.nbytes() == count * sizeof(Value), "rgbd: expected {} bytes, got {}", tensor.nbytes(),
        count * sizeof(Value));
  std::memcpy(tensor.mutable_data_ptr(), values, count * sizeof(Value));
  return tensor;
}

at::Tensor float_tensor(const std::vector<float>& values, at::IntArrayRef shape) {
  return rgbd_tensor(values.data(), values.size(), shape, at::kFloat);
}

class RobotData final : public RgbdData {
 public:
  RobotData(const std::string& folder, const RgbdOptions& options)
      : index_(read_robot_index(folder)), options_(options) {
    if (options_.size == 0) options_.size = index_.options.size;
    check(options_.size >= robot::kLeastPixels && options_.size <= robot::kMostPixels,
          "open_rgbd: size must be {} to {}, got {}", robot::kLeastPixels, robot::kMostPixels, options_.size);
    check(options_.samples >= 1 && options_.samples <= 8, "open_rgbd: samples must be 1 to 8, got {}",
          options_.samples);
    check(!index_.entries.empty(), "'{}' holds no episodes", folder);
    episodes_.resize(index_.entries.size());
    for_runs(episodes(), 16, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        const std::string path = inside(folder, index_.entries[i].file);
        episodes_[i] = read_robot_episode(path);
        check(static_cast<int>(episodes_[i].cameras.size()) == index_.options.cameras,
              "'{}' has {} cameras, but its data set has {}", path, episodes_[i].cameras.size(),
              index_.options.cameras);
        check(episodes_[i].frames == index_.options.frames, "'{}' has {} frames, but its data set has {}",
              path, episodes_[i].frames, index_.options.frames);
      }
    });
    if (!options_.cache) return;
    const std::size_t frames =
        episodes_.size() * static_cast<std::size_t>(index_.options.frames * index_.options.cameras);
    robot::check_frame_cache(static_cast<std::int64_t>(frames), options_.size, available_memory());
    cache_.resize(frames);
  }

  std::int64_t episodes() const override { return static_cast<std::int64_t>(episodes_.size()); }
  std::int64_t frames(std::int64_t episode) const override { return at(episode).frames; }
  std::int64_t cameras() const override { return index_.options.cameras; }
  int size() const override { return options_.size; }
  std::string name(std::int64_t episode) const override {
    const RobotEpisode& states = at(episode);
    const std::string file = robot::episode_file(states.task, states.number);
    return file.substr(0, file.rfind('.'));
  }
  const RobotEpisode* robot(std::int64_t episode) const override { return &at(episode); }

 private:
  RgbdImage image(std::int64_t episode, std::int64_t frame, std::int64_t camera) const override {
    const std::size_t slot =
        static_cast<std::size_t>((episode * index_.options.frames + frame) * index_.options.cameras + camera);
    if (options_.cache) {
      const std::lock_guard lock(mutex_);
      if (cache_[slot]) return *cache_[slot];
    }
    RenderOptions render;
    render.width = render.height = options_.size;
    render.samples = options_.samples;
    RgbdImage result = render_robot(at(episode), static_cast<int>(frame), static_cast<int>(camera), render);
    if (options_.cache) {
      const std::lock_guard lock(mutex_);
      cache_[slot] = result;
    }
    return result;
  }

  const RobotEpisode& at(std::int64_t episode) const {
    check(episode >= 0 && episode < episodes(), "episode must be 0 to {}, got {}", episodes() - 1, episode);
    return episodes_[static_cast<std::size_t>(episode)];
  }

  RobotIndex index_;
  RgbdOptions options_;
  std::vector<RobotEpisode> episodes_;
  mutable std::mutex mutex_;
  mutable std::vector<std::optional<RgbdImage>> cache_;  // [episodes, frames, cameras]; empty without a cache
};

class RecordedData final : public RgbdData {
 public:
  explicit RecordedData(const std::string& folder)
      : folder_(folder), name_(std::filesystem::path(folder).lexically_normal().filename().string()) {
    if (name_.empty())
      name_ = std::filesystem::path(folder).lexically_normal().parent_path().filename().string();
  }

  std::int64_t episodes() const override { return 1; }
  std::int64_t frames(std::int64_t episode) const override {
    check(episode == 0, "episode must be 0, got {}", episode);
    return folder_.frames();
  }
  std::int64_t cameras() const override { return 1; }
  int size() const override { return 0; }
  std::string name(std::int64_t) const override { return name_; }
  const RobotEpisode* robot(std::int64_t) const override { return nullptr; }

 private:
  RgbdImage image(std::int64_t, std::int64_t frame, std::int64_t) const override {
    return folder_.read(frame);
  }

  RgbdFolder folder_;
  std::string name_;
};

RgbdMoment moment_of(const RgbdImage* images, std::size_t cameras) {
  std::vector<at::Tensor> colour, depth, intrinsics, poses, segments;
  for (std::size_t c = 0; c < cameras; ++c) {
    const RgbdImage& image = images[c];
    const std::int64_t h = image.height, w = image.width;
    colour.push_back(rgbd_tensor(image.colour.data(), image.colour.size(), {h, w, 3}, at::kByte));
    depth.push_back(float_tensor(image.depth, {h, w}));
    intrinsics.push_back(rgbd_tensor(image.intrinsics.data(), 4, {4}, at::kFloat));
    poses.push_back(rgbd_tensor(image.pose.data(), 16, {4, 4}, at::kFloat));
    if (!image.segment.empty())
      segments.push_back(rgbd_tensor(image.segment.data(), image.segment.size(), {h, w}, at::kShort));
  }
  RgbdMoment moment{at::stack(colour), at::stack(depth), at::stack(intrinsics), at::stack(poses), {}};
  if (!segments.empty()) moment.segments = at::stack(segments);
  return moment;
}

}  // namespace

void RgbdData::check_place(std::int64_t episode, std::int64_t frame) const {
  check(episode >= 0 && episode < episodes(), "episode must be 0 to {}, got {}", episodes() - 1, episode);
  check(frame >= 0 && frame < frames(episode), "frame must be 0 to {}, got {}", frames(episode) - 1, frame);
}

RgbdMoment RgbdData::moment(std::int64_t episode, std::int64_t frame) const {
  return moments({{episode, frame}}).front();
}

std::vector<RgbdMoment> RgbdData::moments(const std::vector<RgbdPlace>& places) const {
  for (const RgbdPlace& place : places) check_place(place.episode, place.frame);
  const auto count = static_cast<std::int64_t>(places.size()), each = cameras();
  std::vector<RgbdImage> images(static_cast<std::size_t>(count * each));
  for_runs(count * each, 1, [&](std::int64_t i, std::int64_t) {
    const RgbdPlace& place = places[static_cast<std::size_t>(i / each)];
    images[static_cast<std::size_t>(i)] = image(place.episode, place.frame, i % each);
  });
  std::vector<RgbdMoment> result;
  for (std::int64_t i = 0; i < count; ++i)
    result.push_back(moment_of(&images[static_cast<std::size_t>(i * each)], static_cast<std::size_t>(each)));
  return result;
}

RobotTensors RgbdData::robot_tensors(std::int64_t episode) const {
  check_place(episode, 0);
  const RobotEpisode* states = robot(episode);
  check(states != nullptr,
        "robot_tensors: '{}' was recorded by a camera; only simulated episodes have states", name(episode));
  const std::int64_t t = states->frames, b = states->bodies, r = states->robot_bodies, arms = kRobotArms,
                     joints = kRobotJoints;
  std::vector<std::int64_t> owners, parts;
  for (const RobotShape& shape : states->shapes) {
    owners.push_back(shape.body);
    parts.push_back(static_cast<std::int64_t>(shape.part));
  }
  const auto shapes = static_cast<std::int64_t>(owners.size());
  return {float_tensor(states->body_position, {t, b, 3}),
          float_tensor(states->body_rotation, {t, b, 4}),
          float_tensor(states->commanded_position, {t, r, 3}),
          float_tensor(states->commanded_rotation, {t, r, 4}),
          float_tensor(states->joint_position, {t, arms, joints}),
          float_tensor(states->joint_velocity, {t, arms, joints}),
          float_tensor(states->joint_command, {t, arms, joints}),
          float_tensor(states->grip, {t, arms}),
          float_tensor(states->grip_command, {t, arms}),
          rgbd_tensor(owners.data(), owners.size(), {shapes}, at::kLong),
          rgbd_tensor(parts.data(), parts.size(), {shapes}, at::kLong)};
}

std::unique_ptr<RgbdData> open_rgbd(const std::string& folder, const RgbdOptions& options) {
  std::error_code error;
  check(std::filesystem::is_directory(folder, error), "'{}' is not a folder: expected RGB-D data", folder);
  if (std::filesystem::exists(inside(folder, std::string(robot::kRobotIndexFile)), error))
    return std::make_unique<RobotData>(folder, options);
  check(is_rgbd_folder(folder),
        "'{}' holds no RGB-D data: expected index.json of 'topomask simulate robot', or "
        "camera-intrinsics.txt and frames such as "
        "frame-000000.color.png",
        folder);
  return std::make_unique<RecordedData>(folder);
}

}  // namespace topomask
