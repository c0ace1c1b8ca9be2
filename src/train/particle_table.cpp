#include "topomask/particle_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "core/check.h"
#include "io/files.h"
#include "io/folder_lock.h"
#include "train/finished_runs.h"
#include "train/json_number.h"
#include "train/particle_pretraining.h"
#include "train/particle_result.h"
#include "train/sample.h"
#include "train/settings.h"
#include "train/table_runs.h"

namespace topomask {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// What a variant cannot change: what its scores are measured on, which rows side by side must share, what its
// name or the table says already, and what changes no result. All else may make a variant: the model, its
// particles among it, how it learns and how it computes (bf16).
const std::vector<std::string> kFixedParticleSettings = {
    "data",   "size", "validation-every", "evaluation-windows", "evaluation-rollout",  // measured on
    "local",  "seed",                                                                  // said already
    "device", "cache"};                                                                // where and how

constexpr const char* kPretrainedFolder = "pretrained";  // not a variant: it never holds results

struct FinishedParticles {
  std::string variant, folder;
  Json result;
};

std::optional<Json> read_particle_result(const std::string& folder) {
  const std::string path = path_inside(folder, kResultFile);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  return parse_particle_result(read_file(path), path);
}

std::vector<FinishedParticles> find_finished_particles(const std::string& folder) {
  std::vector<std::string> variants = particle_table_variants();
  for (const std::string& name : subfolders(folder)) {
    if (std::find(variants.begin(), variants.end(), name) == variants.end()) variants.push_back(name);
  }
  std::vector<FinishedParticles> runs;
  for (const std::string& variant : variants) {
    const std::size_t first = runs.size();
    for (const std::string& seed : subfolders(path_inside(folder, variant))) {
      const std::string below = variant + "/" + seed;
      if (auto result = read_particle_result(path_inside(folder, below)))
        runs.push_back({variant, below, *result});
    }
    std::sort(runs.begin() + static_cast<std::ptrdiff_t>(first), runs.end(),
              [](const FinishedParticles& a, const FinishedParticles& b) {
                return a.result["seed"].get<std::uint64_t>() < b.result["seed"].get<std::uint64_t>();
              });
  }
  return runs;
}

// Mean and standard error over seeds of one row ("model" or "oracle") of several runs, step by step. Runs of
// one seed share data and pretraining, so they count as one number, their mean.
Json mean_steps(const std::vector<const Json*>& results, const char* row) {
  Json steps = Json::array();
  const std::size_t count = (*results[0])["rollout"][row].size();
  for (std::size_t step = 0; step < count; ++step) {
    Json line = {{"step", step + 1}};
    for (const StepScore& score : step_scores()) {
      const std::string key = score.name;
      std::map<std::uint64_t, Sample> of_seeds;
      for (const Json* result : results) {
        const Json value = (*result)["rollout"][row].at(step).value(key, Json());
        if (value.is_number()) of_seeds[(*result)["seed"]].values.push_back(value);
      }
      Sample sample;
      for (const auto& [seed, values] : of_seeds) sample.values.push_back(values.mean());
      line[key + "_mean"] = sample.values.empty() ? Json() : Json(sample.mean());
      line[key + "_se"] = sample.values.empty() ? Json() : sample.standard_error();
    }
    steps.push_back(std::move(line));
  }
  return steps;
}

Json summarise_particles(const std::vector<FinishedParticles>& runs) {
  Json variants = Json::array(), all = Json::array();
  std::vector<const Json*> every;
  for (std::size_t first = 0; first < runs.size();) {
    std::vector<const Json*> own;
    Sample psnr, train_seconds, step_seconds;
    Json seeds = Json::array();
    std::size_t end = first;
    for (; end < runs.size() && runs[end].variant == runs[first].variant; ++end) {
      const Json& result = runs[end].result;
      own.push_back(&result);
      every.push_back(&result);
      psnr.values.push_back(number_or_nan(result["psnr"]));
      train_seconds.values.push_back(result["train_step_seconds"]);
      step_seconds.values.push_back(result["rollout"]["step_seconds"]);
      seeds.push_back(result["seed"]);
      Json run = {{"variant", runs[end].variant}, {"folder", runs[end].folder}};
      for (const char* key :
           {"seed", "psnr", "loss", "best_psnr", "best_epoch", "steps", "seconds", "train_step_seconds"})
        run[key] = result.value(key, Json());
      all.push_back(std::move(run));
    }
    const Json& one = runs[first].result;
    variants.push_back({{"variant", runs[first].variant},
                        {"local", one.value("local", "")},
                        {"seeds", std::move(seeds)},
                        {"parameters", one["parameters"]},
                        {"train_step_seconds", train_seconds.mean()},
                        {"step_seconds", step_seconds.mean()},
                        {"memory_bytes", one["rollout"].value("memory_bytes", Json())},
                        {"psnr_mean", psnr.mean()},
                        {"psnr_se", psnr.standard_error()},
                        {"steps", mean_steps(own, "model")}});
    first = end;
  }
  Json summary = {{"variants", std::move(variants)}, {"runs", std::move(all)}};
  if (every.empty()) return summary;
  summary["copy"] = {{"steps", (*every[0])["rollout"]["copy"]}};
  summary["oracle"] = {{"steps", mean_steps(every, "oracle")}};
  for (const char* key : {"spacing", "contact"})  // of the windows and the number of particles alone
    summary[key] = (*every[0])["rollout"].value(key, Json());
  return summary;
}

void check_particle_settings(const ParticleTable& table) {
  const std::string path = path_inside(table.folder, kConfigFile);
  if (!fs::exists(path)) return;
  const std::string differs = difference(ParticleSettings::from({}, path), table.settings);
  check(differs.empty(), "{}: {}; choose another folder for another experiment", path, differs);
}

void agree_on_particle_settings(const ParticleTable& table) {
  const FolderLock lock(table.folder, FolderLock::Wait::yes);
  remove_leftovers(table.folder, {kConfigFile, kSummaryFile});
  check_particle_settings(table);
  const std::string path = path_inside(table.folder, kConfigFile);
  if (!fs::exists(path)) write_file(path, table.settings.to_toml());
}

// One table must not mix results on different episodes, or rollouts of different lengths.
void check_finished_particles(const ParticleTable& table, std::uint64_t fingerprint) {
  const std::vector<FinishedParticles> runs = find_finished_particles(table.folder);
  const auto steps = [](const FinishedParticles& run) { return run.result["rollout"]["model"].size(); };
  for (const FinishedParticles& run : runs) {
    check(run.result.value("data_fingerprint", Json()) == fmt::format("{:016x}", fingerprint),
          "{}: was trained on other episodes; choose another folder for another experiment",
          path_inside(table.folder, run.folder));
    check(
        steps(run) == steps(runs.front()),
        "{}: was judged by rollouts of {} steps, but {} by rollouts of {}; choose another folder for another "
        "experiment",
        path_inside(table.folder, run.folder), steps(run), runs.front().folder, steps(runs.front()));
  }
}

// One process at a time, or one that looked earlier could replace the results of one that looked later.
std::string merge_particle_results(const ParticleTable& table) {
  const FolderLock lock(table.folder, FolderLock::Wait::yes);
  Json summary = {{"experiment", "particle-table"}, {"data", table.settings.data}};
  summary.update(summarise_particles(find_finished_particles(table.folder)));
  write_file(path_inside(table.folder, kSummaryFile), summary.dump(1) + "\n");
  return summary.dump();
}

}  // namespace

const std::vector<std::string>& particle_table_variants() {
  static const std::vector<std::string> names = {"grf", "mp", "none"};
  return names;
}

ParticleSettings particle_table_settings(ParticleSettings settings, const std::string& variant,
                                         std::uint64_t seed) {
  const ChangedVariant changed = split_changes(variant, kFixedParticleSettings);
  settings.task.model.interlacer.local = parse_word<LocalLayer>("variants", changed.name);
  settings.seed = seed;
  list_settings(settings).apply(changed.changes);
  settings.train_options();  // checks them
  return settings;
}

TableResult run_particle_table(const ParticleTable& table, const TableCallbacks& callbacks) {
  TableWork work;
  work.folder = table.folder;
  work.variants = table.variants.empty() ? particle_table_variants() : table.variants;
  work.seeds = table.seeds;
  check_distinct(work.variants, work.seeds, "particle table");
  for (const std::string& variant : work.variants) {
    const ParticleSettings settings = particle_table_settings(table.settings, variant, 0);
    check(
        settings.task.pretrain < settings.steps,
        "particle table: pretrain must be less than the {} steps of '{}', got {}: no local layer would learn",
        settings.steps, variant, settings.task.pretrain);
  }
  check_particle_settings(table);
  const ParticleData data(table.settings.data, table.settings.data_options());
  // What the data cannot give to a later variant is said before the first one is trained.
  for (const std::string& variant : work.variants) {
    const ParticleSettings settings = particle_table_settings(table.settings, variant, 0);
    if (settings.data_options() == table.settings.data_options()) {
      ParticleDynamics(data, settings.task_options());
    } else {
      ParticleDynamics(ParticleData(settings.data, settings.data_options()), settings.task_options());
    }
  }
  agree_on_particle_settings(table);
  check_finished_particles(table, data.fingerprint());
  if (callbacks.started) callbacks.started();
  work.is_finished = [](const std::string& folder) { return read_particle_result(folder).has_value(); };
  work.train = [&](RunFolder& folder, const TableRun& run, const TrainCallbacks& training) {
    const ParticleSettings settings = particle_table_settings(table.settings, run.variant, run.seed);
    // Frames are shared; a variant with other numbers of particles has data of its own.
    if (!(settings.data_options() == table.settings.data_options()))
      return train_particles(folder, settings, training).training;
    const ParticleSettings common = particle_table_settings(table.settings, "none", run.seed);
    if (shares_pretraining(common, settings)) {
      const std::string shared =
          path_inside(table.folder, fmt::format("{}/seed-{}", kPretrainedFolder, run.seed));
      if (const auto stopped = start_from_pretraining(folder, settings, shared, common, data, training))
        return *stopped;
    }
    return train_particles(folder, settings, data, training).training;
  };
  work.merge = [&] { return merge_particle_results(table); };
  return run_table(work, callbacks);
}

}  // namespace topomask
