#include "robot/cpu/index.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "core/check.h"
#include "io/files.h"
#include "io/text.h"
#include "robot/cpu/checks.h"

namespace topomask {
namespace robot {
namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "topomask robot data 1";

const json& member(const json& object, const char* key, const std::string& name) {
  check(object.is_object() && object.contains(key), "'{}': '{}' is missing", name, key);
  return object[key];
}

// A message shows a short, printable beginning of what a file holds.
std::string shown(const json& value) {
  constexpr std::size_t kShown = 80;
  if (value.is_structured()) return value.type_name();
  const std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  return text.size() > kShown ? text.substr(0, kShown) + "..." : text;
}

template <class Number>
Number whole(const json& object, const char* key, const std::string& name) {
  const json& value = member(object, key, name);
  check(value.is_number_unsigned() &&
            value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<Number>::max()),
        "'{}': expected a whole number from 0 as '{}', got {}", name, key, shown(value));
  return value.get<Number>();
}

bool flag(const json& object, const char* key, const std::string& name) {
  const json& value = member(object, key, name);
  check(value.is_boolean(), "'{}': expected true or false as '{}', got {}", name, key, shown(value));
  return value.get<bool>();
}

std::string text(const json& object, const char* key, const std::string& name) {
  const json& value = member(object, key, name);
  check(value.is_string(), "'{}': expected text as '{}', got {}", name, key, shown(value));
  return value.get<std::string>();
}

}  // namespace

std::string episode_file(RobotTask task, std::int64_t number) {
  return fmt::format("{}-{:06}.safetensors", word_of(task), number);
}

std::string format_robot_index(const RobotIndex& index) {
  nlohmann::ordered_json episodes = nlohmann::ordered_json::array();
  for (const RobotEntry& entry : index.entries) {
    episodes.push_back({{"task", word_of(entry.task)},
                        {"number", entry.number},
                        {"file", entry.file},
                        {"success", entry.success},
                        {"measure", entry.measure}});
  }
  nlohmann::ordered_json json = {{"format", kFormat},
                                 {"seed", index.options.seed},
                                 {"frames", index.options.frames},
                                 {"seconds_per_frame", kRobotFrameSeconds},
                                 {"cameras", index.options.cameras},
                                 {"size", index.options.size},
                                 {"simulator", index.simulator},
                                 {"complete", index.complete},
                                 {"episodes", episodes}};
  if (index.simulator.empty()) json.erase("simulator");
  return json.dump(1) + "\n";
}

RobotIndex parse_robot_index(std::string_view content, const std::string& name) {
  const json object = json::parse(content, nullptr, false);
  check(!object.is_discarded(), "'{}' is damaged: it is not JSON", name);
  check(object.is_object() && object.contains("format") && object["format"] == kFormat,
        "'{}' is no index of robot episodes: expected the format '{}'", name, kFormat);
  RobotIndex index;
  index.options.seed = whole<std::uint64_t>(object, "seed", name);
  index.options.frames = whole<int>(object, "frames", name);
  index.options.cameras = whole<int>(object, "cameras", name);
  index.options.size = whole<int>(object, "size", name);
  if (object.contains("simulator")) index.simulator = text(object, "simulator", name);
  index.complete = flag(object, "complete", name);
  const json& episodes = member(object, "episodes", name);
  check(episodes.is_array(), "'{}': expected a list as 'episodes'", name);
  std::set<std::string> files;
  for (const json& episode : episodes) {
    RobotEntry entry;
    const std::string task = text(episode, "task", name);
    const auto known = words<RobotTask>();
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const auto& word) { return word.word == task; });
    check(found != known.end(), "'{}': unknown task {}", name, topomask::quoted(task));
    entry.task = found->value;
    entry.number = whole<std::int64_t>(episode, "number", name);
    entry.file = text(episode, "file", name);
    const std::string expected = episode_file(entry.task, entry.number);
    check(entry.file == expected, "'{}': expected a file of its folder, '{}' for this episode, got {}", name,
          expected, topomask::quoted(entry.file));
    check(files.insert(expected).second, "'{}': lists '{}' twice", name, expected);
    entry.success = flag(episode, "success", name);
    const json& measure = member(episode, "measure", name);
    check(measure.is_number(), "'{}': expected a number as 'measure', got {}", name, shown(measure));
    entry.measure = measure.get<double>();
    index.entries.push_back(entry);
  }
  check_robot_options(index.options);
  return index;
}

}  // namespace robot

std::string simulator_version() {
  return "MuJoCo " TOPOMASK_MUJOCO_VERSION;
}

RobotIndex read_robot_index(const std::string& folder) {
  using namespace robot;
  const std::string path = inside(folder, std::string(kRobotIndexFile));
  std::error_code error;
  check(std::filesystem::is_directory(folder, error),
        "'{}' is not a folder: expected one that 'topomask simulate robot' made", folder);
  check(std::filesystem::exists(path, error),
        "'{}' is missing: '{}' is no folder that 'topomask simulate robot' made", path, folder);
  RobotIndex index = parse_robot_index(read_file(path), path);
  check(index.complete,
        "'{}' is not complete: the simulation was stopped; run the same command again to resume it", folder);
  return index;
}

}  // namespace topomask
