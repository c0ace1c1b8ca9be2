#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "io/files.h"
#include "train/autocast.h"
#include "train/checkpoint_file.h"
#include "train/json_number.h"
#include "train/particle_description.h"
#include "train/particle_result.h"

namespace topomask {
namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

Json steps_json(const std::vector<StepScores>& steps) {
  Json rows = Json::array();
  for (const StepScores& step : steps) {
    Json row = {{"step", rows.size() + 1}};
    for (const StepScore& score : step_scores()) row[score.name] = number_or_null(score.of(step));
    rows.push_back(std::move(row));
  }
  return rows;
}

Json scores_json(const RolloutScores& scores) {
  return {{"model", steps_json(scores.model)},
          {"copy", steps_json(scores.copy)},
          {"oracle", steps_json(scores.oracle)},
          {"windows", scores.windows},
          {"spacing", number_or_null(scores.spacing.nearest)},
          {"contact", number_or_null(scores.spacing.contact)},
          {"step_seconds", scores.step_seconds},
          {"memory_bytes", scores.memory_bytes ? Json(*scores.memory_bytes) : Json()}};
}

bool judges_in_bf16(const ParticleSettings& settings, const TrainOptions& options) {
  return settings.train.bf16 && options.device.is_cuda();
}

// In the middle of a validation episode, where most happens.
void write_rollout(const RunFolder& folder, const ParticleSettings& settings, const ParticleData& data,
                   ParticleDynamics& task) {
  const ParticleWindow window = task.example_window();
  const RolloutPictures pictures = task.pictures(window, settings.task.evaluation_rollout);
  const InterlacerOptions& layers = settings.task.model.interlacer;
  SafetensorsFile file;
  file.tensors = {{"truth", pictures.truth},
                  {"predicted", pictures.predicted},
                  {"points", pictures.points},
                  {"colours", pictures.colours},
                  {"tokens", task.tokens(window, pictures.points)}};
  file.metadata = {{"episode", data.frames().name(window.episode)},
                   {"first", std::to_string(window.first)},
                   {"past_particles", std::to_string(settings.task.model.past_particles())},
                   {"local", std::string(word_of(layers.local))},
                   {"neighbours", std::to_string(layers.neighbours)},
                   {"hops", std::to_string(layers.hops)},
                   {"ensembles", std::string(word_of(layers.ensembles))}};
  write_safetensors(folder.file(kRolloutFile), file);
}

// Result of a finished run; nothing where there is work to do. Throws where the settings are not the run's.
std::optional<RunResult> check_particle_run(const RunFolder& folder, const ParticleSettings& settings) {
  settings.train_options();
  if (const std::optional<RunConfig> config = folder.config()) {
    check_run_kind(*config, kParticlesKind);
    check_same_settings(folder, ParticleSettings::from_toml_text(config->toml, config->path), settings);
  }
  const std::optional<std::string> text = folder.result();
  if (!text) return std::nullopt;
  const Json result = parse_particle_result(*text, folder.file(kResultFile));
  TrainResult training;
  training.step = training.steps = result["steps"];
  training.last.loss = number_or_nan(result["loss"]);
  training.last.accuracy = number_or_nan(result["psnr"]);
  training.seconds = result["seconds"];
  return RunResult{training, result.dump()};
}

}  // namespace

std::string hash_of_episodes(const ParticleData& data) {
  return fmt::format("{:016x}", data.fingerprint());
}

RunMetadata describe_particles(const ParticleSettings& settings, const ParticleData& data) {
  return {{kModelKey, kParticlesKind},
          {kSettingsKey, settings.to_toml()},
          {kDataKey, hash_of_episodes(data)},
          {kFrameSizeKey, std::to_string(data.frames().size())}};
}

MetadataCheck same_episodes(const RunMetadata& description) {
  return [now = description.at(kDataKey), size = description.at(kFrameSizeKey)](const RunMetadata& saved,
                                                                                const std::string& path) {
    const auto before = saved.find(kDataKey), pixels = saved.find(kFrameSizeKey);
    check(before != saved.end() && before->second == now,
          "{}: the run was trained on other episodes; resume it with its own, or choose another folder for a "
          "new run",
          path);
    check(
        pixels == saved.end() || pixels->second == size,
        "{}: the run was trained on frames of {} pixels, got {}; resume it with its own data set, or choose "
        "another folder for a new run",
        path, pixels->second, size);
  };
}

Json parse_particle_result(const std::string& text, const std::string& path) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  check(json.is_object() && json.value("model", Json()) == kParticlesKind,
        "{}: is not the result of 'topomask train particles'; remove it to run again", path);
  const auto check_number = [&](const Json& object, const char* key) {
    check(object.value(key, Json()).is_number(), "{}: expected a number for '{}'; remove it to run again",
          path, key);
  };
  for (const char* key : {"seed", "steps", "parameters", "seconds", "train_step_seconds"})
    check_number(json, key);
  for (const char* key : {"loss", "psnr"})
    check(json.contains(key) && is_number_or_null(json[key]),
          "{}: expected a number for '{}'; remove it to run again", path, key);
  Json rollout = json.value("rollout", Json());
  if (!rollout.is_object()) rollout = Json::object();
  for (const char* row : {"model", "copy", "oracle"}) {
    const Json steps = rollout.value(row, Json());
    check(steps.is_array() && !steps.empty() && steps.size() == rollout["model"].size() &&
              std::all_of(steps.begin(), steps.end(), [](const Json& step) { return step.is_object(); }),
          "{}: expected the steps of '{}' in 'rollout'; remove it to run again", path, row);
  }
  check_number(rollout, "step_seconds");
  return json;
}

std::string rollout_scores_json(const RolloutScores& scores) {
  return scores_json(scores).dump();
}

namespace {

// Every rank opens the episodes itself, and all must have the same.
std::unique_ptr<const ParticleData> open_episodes(const Ranks& ranks, const ParticleSettings& settings) {
  std::unique_ptr<const ParticleData> data;
  ranks.together_patiently("the episodes", [&] {
    data = std::make_unique<const ParticleData>(settings.data, settings.data_options());
  });
  const std::string first = ranks.from_first(hash_of_episodes(*data), "hashes of the episodes");
  ranks.together("hashes of the episodes", [&] {
    check(hash_of_episodes(*data) == first, "--data {}: rank {} reads other episodes than rank 0",
          settings.data, ranks.rank());
  });
  return data;
}

RunResult train_on(const RanksPtr& ranks, RunFolder* run_folder, const ParticleSettings& settings,
                   const ParticleData& data, const TrainCallbacks& callbacks) {
  const ParticleSettings own = on_own_device(settings, *ranks);
  ParticleTaskOptions task_options = own.task_options();
  task_options.ranks = ranks;
  ParticleDynamics task(data, task_options);
  const TrainOptions options = own.train_options();
  const RunMetadata description = describe_particles(settings, data);
  const auto trainer = open_trainer(run_folder, task, options, description, same_episodes(description));
  RunResult run{trainer->run(callbacks), ""};
  if (run.training.outcome != TrainOutcome::finished || run_folder == nullptr) return run;
  const RunFolder& folder = *run_folder;
  const AutocastScope scope(judges_in_bf16(settings, options));
  write_rollout(folder, settings, data, task);
  const TrainResult& t = run.training;
  const Json json = {
      {"model", kParticlesKind},
      {"local", word_of(settings.task.model.interlacer.local)},
      {"seed", settings.seed},
      {"data", settings.data},
      {"data_fingerprint", description.at(kDataKey)},
      {"episodes", data.episodes()},
      {"particles", settings.task.model.particles},
      {"loss", t.last.loss},
      {"psnr", t.last.accuracy},
      {"best_psnr", t.best.accuracy},
      {"best_epoch", t.best_epoch},
      {"steps", t.step},
      {"parameters", task.num_parameters()},
      {"seconds", t.seconds},
      {"train_step_seconds", t.seconds / static_cast<double>(std::max<std::int64_t>(t.step, 1))},
      {"device", settings.device},
      {"rollout", scores_json(task.judge())}};
  write_file(folder.file(kResultFile), json.dump(1) + "\n");  // last: it says that all is there
  run.json = json.dump();
  return run;
}

}  // namespace

RunResult train_particles(RunFolder& folder, const ParticleSettings& settings,
                          const TrainCallbacks& callbacks) {
  return train_particles(Ranks::alone(), &folder, settings, callbacks);
}

RunResult train_particles(const RanksPtr& ranks, RunFolder* folder, const ParticleSettings& given,
                          const TrainCallbacks& callbacks) {
  return run_on_ranks("train_particles", *ranks, folder, given, check_particle_run,
                      [&](const ParticleSettings& settings) {
                        return train_on(ranks, folder, settings, *open_episodes(*ranks, settings), callbacks);
                      });
}

RunResult train_particles(RunFolder& folder, const ParticleSettings& settings, const ParticleData& data,
                          const TrainCallbacks& callbacks) {
  if (auto finished = check_particle_run(folder, settings)) return *finished;
  return train_on(Ranks::alone(), &folder, settings, data, callbacks);
}

ParticleCheckpoint read_particle_checkpoint(const std::string& path) {
  const RunConfig config = read_checkpoint_config(path);
  check_run_kind(config, kParticlesKind);
  const SafetensorsFile file = read_checkpoint(path);
  const auto episodes = file.metadata.find(kDataKey);
  ParticleCheckpoint checkpoint{ParticleSettings::from_toml_text(config.toml, path),
                                {},
                                episodes == file.metadata.end() ? "" : episodes->second};
  const std::string prefix = weight_prefix(file);
  for (const auto& [name, tensor] : file.tensors) {
    if (prefix.empty() ? !is_training_state(name) : name.starts_with(prefix))
      checkpoint.weights.emplace(name.substr(prefix.size()), tensor);
  }
  return checkpoint;
}

TrainedParticles::TrainedParticles(const std::string& path, const TrainedParticlesOptions& options) {
  const ParticleCheckpoint checkpoint = read_particle_checkpoint(path);
  settings_ = checkpoint.settings;
  settings_.cache = false;  // few frames are looked at, and hardly any of them twice
  if (!options.data.empty()) settings_.data = options.data;
  if (!options.device.empty()) settings_.device = options.device;
  if (options.windows > 0) settings_.task.evaluation_windows = options.windows;
  if (options.rollout > 0) settings_.task.evaluation_rollout = options.rollout;
  data_ = std::make_unique<ParticleData>(settings_.data, settings_.data_options());
  if (hash_of_episodes(*data_) != checkpoint.episodes) settings_.task.validation_every = 0;
  task_ = std::make_unique<ParticleDynamics>(*data_, settings_.task_options());
  load_parameters(checkpoint.weights, path, "", task_->parameters());
}

RolloutScores TrainedParticles::judge(const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const AutocastScope scope(judges_in_bf16(settings_, settings_.train_options()));
  return task_->judge(progress);
}

RolloutPictures TrainedParticles::pictures(const ParticleWindow& window, std::int64_t steps) {
  const AutocastScope scope(judges_in_bf16(settings_, settings_.train_options()));
  return task_->pictures(window, steps);
}

}  // namespace topomask
