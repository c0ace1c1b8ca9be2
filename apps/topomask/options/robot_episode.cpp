#include "options/robot_episode.h"

#include <charconv>

#include "core/check.h"
#include "core/suggest.h"
#include "io/files.h"
#include "robot/cpu/checks.h"

namespace topomask::cli {

void check_frame_size(int size) {
  check(size >= robot::kLeastPixels && size <= robot::kMostPixels, "--size: expected {} to {}, got {}",
        robot::kLeastPixels, robot::kMostPixels, size);
}

std::string robot_entry_name(const RobotEntry& entry) {
  return entry.file.substr(0, entry.file.rfind('.'));
}

const RobotEntry& find_robot_entry(const RobotIndex& index, const std::string& episode) {
  check(!index.entries.empty(), "the folder holds no episodes");
  std::vector<std::string> names;
  for (const RobotEntry& entry : index.entries) {
    names.push_back(robot_entry_name(entry));
    if (names.back() == episode) return entry;
  }
  std::size_t place = 0;
  const auto [end, status] = std::from_chars(episode.data(), episode.data() + episode.size(), place);
  const bool number = status == std::errc() && end == episode.data() + episode.size();
  check(number, "--episode: no episode is called '{}'{}", episode, did_you_mean(episode, names));
  check(place < index.entries.size(), "--episode: expected 0 to {} or a name such as {}, got {}",
        index.entries.size() - 1, names.front(), episode);
  return index.entries[place];
}

std::string describe_robot_measure(RobotTask task, double measure) {
  switch (task) {
    case RobotTask::sweep:
      return fmt::format("{:.0f} % of the grains in the pan", 100 * measure);
    case RobotTask::lift_can:
      return fmt::format("can {:.0f} cm higher", 100 * measure);
    case RobotTask::move_block:
      return fmt::format("block {:.0f} cm away", 100 * measure);
    default:
      return fmt::format("can fell {:.0f} cm", 100 * measure);
  }
}

RobotEpisode read_robot_entry(const std::string& folder, const RobotEntry& entry) {
  return read_robot_episode(inside(folder, entry.file));
}

}  // namespace topomask::cli
