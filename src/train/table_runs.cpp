#include "train/table_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/check.h"
#include "io/folder_lock.h"

namespace topomask {

ChangedVariant split_changes(const std::string& variant, const std::vector<std::string>& fixed) {
  ChangedVariant result;
  std::size_t end = std::min(variant.find('@'), variant.size());
  result.name = variant.substr(0, end);
  while (end < variant.size()) {
    const std::size_t begin = end + 1;
    end = std::min(variant.find('@', begin), variant.size());
    const std::string change = variant.substr(begin, end - begin);
    const std::size_t equals = change.find('=');
    check(equals != std::string::npos && change.find('/') == std::string::npos,
          "variants: expected NAME@key=value, got '{}'", variant);
    const std::string key = change.substr(0, equals);
    // What all runs of a table share, and what the name says already.
    check(std::find(fixed.begin(), fixed.end(), key) == fixed.end(), "variants: '{}' cannot change {}",
          variant, key);
    const bool again = std::any_of(result.changes.begin(), result.changes.end(),
                                   [&](const auto& earlier) { return earlier.first == key; });
    check(!again, "variants: '{}' changes {} twice", variant, key);
    result.changes.emplace_back(key, change.substr(equals + 1));
  }
  return result;
}

namespace {

template <class Value>
void check_listed_once(const std::vector<Value>& list, const char* what) {
  std::set<Value> seen;
  for (const Value& value : list)
    check(seen.insert(value).second, "{}: '{}' is listed twice; expected each once", what, value);
}

}  // namespace

void check_distinct(const std::vector<std::string>& variants, const std::vector<std::uint64_t>& seeds,
                    const char* name) {
  check(!seeds.empty(), "{}: expected at least one seed", name);
  check_listed_once(variants, "variants");
  check_listed_once(seeds, "seeds");
}

TableResult run_table(const TableWork& work, const TableCallbacks& callbacks) {
  const auto asked_to_stop = [&] { return callbacks.should_stop && callbacks.should_stop(); };
  TableResult result;
  result.total = static_cast<std::int64_t>(work.variants.size() * work.seeds.size());
  TableRun run;
  run.total = result.total;
  bool stopped = false;
  const auto folder_of = [&](const std::string& variant, std::uint64_t seed) {
    return path_inside(work.folder, fmt::format("{}/seed-{}", variant, seed));
  };
  std::set<std::string> left_out;  // folders that other processes work in
  for (const std::uint64_t seed : work.seeds) {
    for (const std::string& variant : work.variants) {
      run = {variant, seed, run.number + 1, run.total};
      const std::string path = folder_of(variant, seed);
      if (work.is_finished(path)) continue;
      stopped = stopped || asked_to_stop();
      if (stopped) continue;
      try {
        RunFolder folder(path, RunStart::either);
        if (work.is_finished(path)) continue;  // by another process, a moment ago
        TrainCallbacks training;
        if (callbacks.training) training = callbacks.training(run);
        training.should_stop = asked_to_stop;
        const TrainResult trained = work.train(folder, run, training);
        stopped = trained.outcome == TrainOutcome::stopped;
        if (stopped) continue;
        if (callbacks.finished) callbacks.finished(run, trained);
      } catch (const FolderInUse&) {
        left_out.insert(path);
        if (callbacks.in_use) callbacks.in_use(run);
        continue;
      } catch (const Diverged& error) {
        result.diverged.push_back(fmt::format("{}/seed-{}: {}", variant, seed, error.what()));
        if (callbacks.diverged) callbacks.diverged(run, error.what());
        continue;
      }
      work.merge();
    }
  }
  // Counted at the end, as results.json is: other processes have finished runs since they were passed by.
  for (const std::uint64_t seed : work.seeds) {
    for (const std::string& variant : work.variants) {
      const std::string path = folder_of(variant, seed);
      if (work.is_finished(path)) {
        ++result.finished;
      } else if (left_out.contains(path)) {
        ++result.in_use;
      }
    }
  }
  result.json = work.merge();
  return result;
}

}  // namespace topomask
