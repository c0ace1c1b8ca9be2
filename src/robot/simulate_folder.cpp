#include <c10/util/Exception.h>
#include <time.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "core/check.h"
#include "core/parallel.h"
#include "io/files.h"
#include "io/folder_lock.h"
#include "robot/cpu/checks.h"
#include "robot/cpu/index.h"
#include "topomask/robot.h"

namespace topomask {
namespace {

using namespace robot;

using EpisodeKey = std::tuple<RobotTask, std::int64_t>;

// Of the processor, by this thread: what an episode costs, whatever else runs on the machine.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

RobotEntry entry_of(const RobotEpisode& episode) {
  return {episode.task, episode.number, episode.success, episode.measure,
          episode_file(episode.task, episode.number)};
}

// The episode in a file if it is whole and one of these; nothing where it has to be simulated (again).
std::optional<RobotEntry> finished_episode(const std::string& folder, EpisodeKey key,
                                           const RobotOptions& options) {
  const auto [task, number] = key;
  const std::string path = inside(folder, episode_file(task, number));
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  try {
    const RobotEpisode episode = read_robot_episode(path);
    const bool same = episode.task == task && episode.number == number && episode.seed == options.seed &&
                      episode.frames == options.frames &&
                      static_cast<int>(episode.cameras.size()) == options.cameras;
    return same ? std::optional(entry_of(episode)) : std::nullopt;
  } catch (const Error&) {
    return {};
  }
}

// What the folder holds already, after a check that it belongs to the same settings.
RobotIndex previous_index(const std::string& folder, const RobotOptions& options) {
  const std::string path = inside(folder, std::string(kRobotIndexFile));
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {options, simulator_version(), false, {}};
  RobotIndex index = parse_robot_index(read_file(path), path);
  const auto same = [&](const char* what, auto there, auto asked) {
    check(there == asked,
          "{}: holds episodes with {} {}, and cannot be continued with {} {}; choose another folder", folder,
          what, there, what, asked);
  };
  same("seed", index.options.seed, options.seed);
  same("frames", index.options.frames, options.frames);
  same("cameras", index.options.cameras, options.cameras);
  same("size", index.options.size, options.size);
  return index;
}

}  // namespace

std::vector<RobotTaskSummary> simulate_robot_folder(const std::string& folder,
                                                    const std::vector<RobotTask>& tasks, std::int64_t count,
                                                    const RobotOptions& options,
                                                    const RobotProgress& progress) {
  check_robot_options(options);
  check(count >= 1 && count <= 1000000, "simulate_robot_folder: episodes must be 1 to 1000000, got {}",
        count);
  check(!tasks.empty(), "simulate_robot_folder: expected at least one task");
  const std::string problem = why_no_simulator();
  check(problem.empty(), "{}", problem);
  const FolderLock lock(folder, FolderLock::Wait::no);
  check(lock.held(), "{}: another process is simulating there", folder);

  RobotIndex index = previous_index(folder, options);
  std::map<EpisodeKey, RobotEntry> entries;
  for (const RobotEntry& entry : index.entries) entries.emplace(EpisodeKey{entry.task, entry.number}, entry);
  std::vector<EpisodeKey> wanted, missing;
  for (const RobotTask task : tasks) {
    for (std::int64_t number = 0; number < count; ++number) wanted.emplace_back(task, number);
  }
  for (const EpisodeKey& key : wanted) {
    entries.erase(key);
    if (const auto entry = finished_episode(folder, key, options)) {
      entries.emplace(key, *entry);
    } else {
      missing.push_back(key);
    }
  }
  const auto write_index = [&](bool complete) {
    index.complete = complete;
    index.entries.clear();
    for (const auto& [key, entry] : entries) index.entries.push_back(entry);
    write_file(inside(folder, std::string(kRobotIndexFile)), format_robot_index(index));
  };

  std::map<RobotTask, RobotTaskSummary> summaries;
  const auto total = static_cast<std::int64_t>(wanted.size());
  std::int64_t done = total - static_cast<std::int64_t>(missing.size());
  if (!missing.empty()) {
    check(index.simulator.empty() || index.simulator == simulator_version(),
          "{}: holds episodes of {}, and cannot be continued with {}; choose another folder", folder,
          index.simulator, simulator_version());
    write_index(false);
    std::vector<std::string> names;
    for (const auto& [task, number] : missing) names.push_back(episode_file(task, number));
    names.emplace_back(kRobotIndexFile);
    remove_leftovers(folder, names);
    if (progress) progress(done, total);
  }
  std::mutex mutex;
  std::map<std::string, std::string> warned;  // what of: the first episode
  for_runs(static_cast<std::int64_t>(missing.size()), 1, [&](std::int64_t i, std::int64_t) {
    const EpisodeKey& key = missing[static_cast<std::size_t>(i)];
    const auto [task, number] = key;
    const double start = thread_seconds();
    std::vector<std::string> warnings;
    const RobotEpisode episode = simulate_robot(task, number, options, &warnings);
    const double seconds = thread_seconds() - start;
    write_file(inside(folder, episode_file(task, number)), format_robot_episode(episode));
    const std::lock_guard guard(mutex);
    entries[key] = entry_of(episode);
    ++summaries[task].simulated;
    summaries[task].seconds += seconds;
    for (const std::string& warning : warnings) warned.emplace(warning, episode_file(task, number));
    if (progress) progress(++done, total);
  });
  write_index(true);
  for (const auto& [warning, file] : warned) TORCH_WARN(file, ": MuJoCo: ", warning);

  std::vector<RobotTaskSummary> result;
  for (const RobotTask task : tasks) {
    RobotTaskSummary summary = summaries[task];
    summary.task = task;
    for (std::int64_t number = 0; number < count; ++number) {
      const RobotEntry& entry = entries.at({task, number});
      ++summary.episodes;
      summary.succeeded += entry.success;
      summary.measure_mean += entry.measure / static_cast<double>(count);
    }
    result.push_back(summary);
  }
  return result;
}

}  // namespace topomask
