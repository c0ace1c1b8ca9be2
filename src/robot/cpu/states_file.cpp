// An episode as a safetensors file.
#include <algorithm>
#include <charconv>
#include <cstring>

#include "core/check.h"
#include "io/files.h"
#include "io/safetensors_header.h"
#include "io/text.h"
#include "robot/cpu/arm.h"
#include "robot/cpu/checks.h"

namespace topomask {
namespace {

constexpr std::string_view kFormat = "topomask robot episode 1";

template <class Value>
constexpr std::string_view dtype_of() {
  if constexpr (std::is_same_v<Value, float>) return "F32";
  if constexpr (std::is_same_v<Value, std::int32_t>) return "I32";
  return "U8";
}

class Writer {
 public:
  template <class Value>
  void add(const std::string& name, std::vector<std::int64_t> shape, const std::vector<Value>& values) {
    const std::uint64_t begin = data_.size(), bytes = values.size() * sizeof(Value);
    header_.entries[name] = {std::string(dtype_of<Value>()), std::move(shape), begin, begin + bytes};
    data_.append(reinterpret_cast<const char*>(values.data()), bytes);
  }
  void note(const std::string& key, std::string value) { header_.metadata[key] = std::move(value); }
  std::string bytes() const { return format_safetensors_header(header_) + data_; }

 private:
  SafetensorsHeader header_;
  std::string data_;
};

class Reader {
 public:
  Reader(std::string_view content, const std::string& name)
      : name_(name), header_(parse_safetensors(content, name)) {
    std::uint64_t data = 0;
    for (const auto& [key, entry] : header_.entries) data = std::max(data, entry.end);
    data_ = content.substr(content.size() - data);
    check(note("format") == kFormat, "'{}' is no episode of the robot: expected the format '{}', got {}",
          name, kFormat, quoted(note("format")));
  }

  // A number for each -1 of the shape is taken as it is.
  template <class Value>
  std::vector<Value> take(const std::string& key, std::vector<std::int64_t> shape) const {
    const SafetensorsEntry& entry = find(key);
    bool fits = entry.dtype == dtype_of<Value>() && entry.shape.size() == shape.size();
    for (std::size_t i = 0; fits && i < shape.size(); ++i) fits = shape[i] < 0 || entry.shape[i] == shape[i];
    check(fits, "'{}': expected tensor '{}' to be {} {}, got {} {}", name_, key, dtype_of<Value>(),
          text(shape), entry.dtype, text(entry.shape));
    std::vector<Value> values((entry.end - entry.begin) / sizeof(Value));
    if (!values.empty())
      std::memcpy(values.data(), data_.data() + entry.begin, values.size() * sizeof(Value));
    return values;
  }
  std::int64_t size(const std::string& key, std::size_t axis) const {
    const SafetensorsEntry& entry = find(key);
    check(axis < entry.shape.size(), "'{}': expected tensor '{}' to have more than {} axes", name_, key,
          axis);
    check(entry.shape[axis] <= (1 << 20), "'{}': tensor '{}' is too large", name_, key);
    return entry.shape[axis];
  }
  std::string note(const std::string& key) const {
    const auto found = header_.metadata.find(key);
    return found == header_.metadata.end() ? "" : found->second;
  }
  template <class Number>
  Number number(const std::string& key) const {
    const std::string value = note(key);
    Number result{};
    const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), result);
    check(status == std::errc() && end == value.data() + value.size(),
          "'{}': expected a number as '{}', got {}", name_, key, quoted(value));
    return result;
  }

 private:
  const SafetensorsEntry& find(const std::string& key) const {
    const auto found = header_.entries.find(key);
    check(found != header_.entries.end(), "'{}' is no whole episode of the robot: tensor '{}' is missing",
          name_, key);
    return found->second;
  }
  static std::string text(const std::vector<std::int64_t>& shape) {
    std::string result = "[";
    for (const std::int64_t size : shape)
      result += (result.size() > 1 ? ", " : "") + (size < 0 ? std::string("n") : std::to_string(size));
    return result + "]";
  }

  const std::string& name_;
  SafetensorsHeader header_;
  std::string_view data_;
};

}  // namespace

std::string format_robot_episode(const RobotEpisode& episode) {
  robot::check_robot_episode(episode, "format_robot_episode");
  Writer file;
  const std::int64_t frames = episode.frames, bodies = episode.bodies, robots = episode.robot_bodies,
                     shapes = static_cast<std::int64_t>(episode.shapes.size()),
                     cameras = static_cast<std::int64_t>(episode.cameras.size());
  const std::int64_t arms = kRobotArms, joints = kRobotJoints;
  // Numbers of four bytes come first, so that all are aligned.
  file.add("body.position", {frames, bodies, 3}, episode.body_position);
  file.add("body.rotation", {frames, bodies, 4}, episode.body_rotation);
  file.add("commanded.position", {frames, robots, 3}, episode.commanded_position);
  file.add("commanded.rotation", {frames, robots, 4}, episode.commanded_rotation);
  file.add("joint.position", {frames, arms, joints}, episode.joint_position);
  file.add("joint.velocity", {frames, arms, joints}, episode.joint_velocity);
  file.add("joint.command", {frames, arms, joints}, episode.joint_command);
  file.add("grip.position", {frames, arms}, episode.grip);
  file.add("grip.command", {frames, arms}, episode.grip_command);

  std::vector<float> positions, rotations, views;
  for (const RobotCamera& camera : episode.cameras) {
    positions.insert(positions.end(), camera.position.begin(), camera.position.end());
    rotations.insert(rotations.end(), camera.rotation.begin(), camera.rotation.end());
    views.push_back(camera.field_of_view);
  }
  file.add("camera.position", {cameras, 3}, positions);
  file.add("camera.rotation", {cameras, 3, 3}, rotations);
  file.add("camera.field_of_view", {cameras}, views);

  std::vector<float> sizes, places, turns, colours;
  std::vector<std::int32_t> owners;
  std::vector<std::uint8_t> kinds, parts, patterns;
  for (const RobotShape& shape : episode.shapes) {
    sizes.insert(sizes.end(), shape.size.begin(), shape.size.end());
    places.insert(places.end(), shape.position.begin(), shape.position.end());
    turns.insert(turns.end(), shape.rotation.begin(), shape.rotation.end());
    colours.insert(colours.end(), shape.colour.begin(), shape.colour.end());
    owners.push_back(shape.body);
    kinds.push_back(static_cast<std::uint8_t>(shape.kind));
    parts.push_back(static_cast<std::uint8_t>(shape.part));
    patterns.push_back(static_cast<std::uint8_t>(shape.pattern));
  }
  file.add("shape.size", {shapes, 3}, sizes);
  file.add("shape.position", {shapes, 3}, places);
  file.add("shape.rotation", {shapes, 4}, turns);
  file.add("shape.colour", {shapes, 3}, colours);
  file.add("shape.body", {shapes}, owners);
  file.add("shape.kind", {shapes}, kinds);
  file.add("shape.part", {shapes}, parts);
  file.add("shape.pattern", {shapes}, patterns);

  file.note("format", std::string(kFormat));
  file.note("task", std::string(word_of(episode.task)));
  file.note("number", std::to_string(episode.number));
  file.note("seed", std::to_string(episode.seed));
  file.note("attempts", std::to_string(episode.attempts));
  file.note("success", episode.success ? "true" : "false");
  file.note("measure", fmt::format("{}", episode.measure));
  file.note("seconds_per_frame", fmt::format("{}", kRobotFrameSeconds));
  return file.bytes();
}

RobotEpisode parse_robot_episode(std::string_view content, const std::string& name) {
  const Reader file(content, name);
  RobotEpisode episode;
  const auto tasks = words<RobotTask>();
  const std::string task_word = file.note("task");
  const auto task =
      std::find_if(tasks.begin(), tasks.end(), [&](const auto& known) { return known.word == task_word; });
  check(task != tasks.end(), "'{}': unknown task {}", name, quoted(task_word));
  episode.task = task->value;
  episode.number = file.number<std::int64_t>("number");
  episode.seed = file.number<std::uint64_t>("seed");
  episode.attempts = file.number<int>("attempts");
  episode.success = file.note("success") == "true";
  episode.measure = file.number<double>("measure");

  const std::int64_t frames = file.size("body.position", 0), bodies = file.size("body.position", 1),
                     robots = file.size("commanded.position", 1), shapes = file.size("shape.size", 0),
                     cameras = file.size("camera.position", 0);
  const std::int64_t arms = kRobotArms, joints = kRobotJoints;
  episode.frames = static_cast<int>(frames);
  episode.bodies = static_cast<int>(bodies);
  episode.robot_bodies = static_cast<int>(robots);
  episode.body_position = file.take<float>("body.position", {frames, bodies, 3});
  episode.body_rotation = file.take<float>("body.rotation", {frames, bodies, 4});
  episode.commanded_position = file.take<float>("commanded.position", {frames, robots, 3});
  episode.commanded_rotation = file.take<float>("commanded.rotation", {frames, robots, 4});
  episode.joint_position = file.take<float>("joint.position", {frames, arms, joints});
  episode.joint_velocity = file.take<float>("joint.velocity", {frames, arms, joints});
  episode.joint_command = file.take<float>("joint.command", {frames, arms, joints});
  episode.grip = file.take<float>("grip.position", {frames, arms});
  episode.grip_command = file.take<float>("grip.command", {frames, arms});

  const std::vector<float> positions = file.take<float>("camera.position", {cameras, 3}),
                           rotations = file.take<float>("camera.rotation", {cameras, 3, 3}),
                           views = file.take<float>("camera.field_of_view", {cameras});
  for (std::size_t i = 0; i < views.size(); ++i) {
    RobotCamera& camera = episode.cameras.emplace_back();
    std::copy_n(&positions[3 * i], 3, camera.position.begin());
    std::copy_n(&rotations[9 * i], 9, camera.rotation.begin());
    camera.field_of_view = views[i];
  }

  const std::vector<float> sizes = file.take<float>("shape.size", {shapes, 3}),
                           places = file.take<float>("shape.position", {shapes, 3}),
                           turns = file.take<float>("shape.rotation", {shapes, 4}),
                           colours = file.take<float>("shape.colour", {shapes, 3});
  const std::vector<std::int32_t> owners = file.take<std::int32_t>("shape.body", {shapes});
  const std::vector<std::uint8_t> kinds = file.take<std::uint8_t>("shape.kind", {shapes}),
                                  parts = file.take<std::uint8_t>("shape.part", {shapes}),
                                  patterns = file.take<std::uint8_t>("shape.pattern", {shapes});
  for (std::size_t i = 0; i < owners.size(); ++i) {
    RobotShape& shape = episode.shapes.emplace_back();
    shape.kind = static_cast<ShapeKind>(kinds[i]);
    shape.part = static_cast<ScenePart>(parts[i]);
    shape.pattern = static_cast<SurfacePattern>(patterns[i]);
    shape.body = owners[i];
    std::copy_n(&sizes[3 * i], 3, shape.size.begin());
    std::copy_n(&places[3 * i], 3, shape.position.begin());
    std::copy_n(&turns[4 * i], 4, shape.rotation.begin());
    std::copy_n(&colours[3 * i], 3, shape.colour.begin());
  }
  robot::check_robot_episode(episode, fmt::format("'{}'", name));
  return episode;
}

RobotEpisode read_robot_episode(const std::string& path) {
  return parse_robot_episode(read_file(path), path);
}

}  // namespace topomask
