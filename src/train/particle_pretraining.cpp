#include "train/particle_pretraining.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "core/check.h"
#include "io/files.h"
#include "io/folder_lock.h"
#include "topomask/hdvpd.h"
#include "train/checkpoint_file.h"
#include "train/particle_description.h"
#include "train/run_state.h"

namespace topomask {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDynamics = "interlacer.";  // before the names of what pretraining leaves alone

bool file_exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Steps done by the checkpoint in a folder.
std::int64_t steps_done(const RunFolder& folder) {
  const std::string path = folder.file(kLastCheckpoint);
  if (!file_exists(path)) return 0;
  const auto metadata = read_checkpoint_metadata(path);
  const auto state = metadata.find(kStateKey);
  check(state != metadata.end(), "{}: not a checkpoint to resume from (it has no state)", path);
  return RunState::from_json(state->second, path).step;
}

// Renders the frames that training will want, one after the other.
class FramesAhead {
 public:
  FramesAhead(const ParticleData& data, bool cached) : frames_(data.frames()), left_(cached) {}
  bool left() const { return left_; }
  void render() {
    frames_.moment(episode_, frame_);
    if (++frame_ < frames_.frames(episode_)) return;
    frame_ = 0;
    left_ = ++episode_ < frames_.episodes();
  }

 private:
  const RgbdData& frames_;
  std::int64_t episode_ = 0, frame_ = 0;
  bool left_;
};

// The folder, once no other process works in it; null if the run should stop before that.
std::unique_ptr<RunFolder> wait_for(const std::string& path, const std::function<bool()>& should_stop,
                                    FramesAhead frames) {
  using Clock = std::chrono::steady_clock;
  while (true) {
    try {
      return std::make_unique<RunFolder>(path, RunStart::either);
    } catch (const FolderInUse&) {
      if (should_stop && should_stop()) return nullptr;
      const auto again = Clock::now() + std::chrono::milliseconds(200);
      while (frames.left() && Clock::now() < again) frames.render();
      std::this_thread::sleep_until(again);
    }
  }
}

// Trains up to the last step of pretraining.
TrainResult pretrain(RunFolder& folder, const ParticleSettings& settings, const ParticleData& data,
                     const TrainCallbacks& callbacks) {
  ParticleDynamics task(data, settings.task_options());
  const RunMetadata description = describe_particles(settings, data);
  const auto trainer =
      open_trainer(&folder, task, settings.train_options(), description, same_episodes(description));
  TrainCallbacks until = callbacks;
  std::int64_t done = 0;
  until.progress = [&](std::int64_t step, std::int64_t steps, const std::string& status) {
    done = step;
    if (callbacks.progress) callbacks.progress(step, steps, status);
  };
  until.should_stop = [&] {
    return done >= settings.task.pretrain || (callbacks.should_stop && callbacks.should_stop());
  };
  return trainer->run(until);
}

// A checkpoint of pretraining as one of `run`: encoder, renderer and what the optimiser knows of them, beside
// an Interlacer as new.
void copy_checkpoint(const std::string& from, const std::string& to, const ParticleSettings& run,
                     const RunMetadata& description) {
  SafetensorsFile file = read_checkpoint(from);
  // What stands before the names of parameters: nothing for weights, and what averages and moments have.
  const std::string known = "encoder.out.bias";
  std::vector<std::string> prefixes;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.ends_with(known)) prefixes.push_back(name.substr(0, name.size() - known.size()));
  }
  check(!prefixes.empty(), "{}: there is no tensor '{}'", from, known);
  std::erase_if(file.tensors,
                [](const auto& item) { return item.first.find(kDynamics) != std::string::npos; });
  const ParticleTaskOptions options = run.task_options();
  const HdVpd fresh(options.model, options.model_seed);
  for (const auto& parameter : fresh->named_parameters()) {
    if (!parameter.key().starts_with(kDynamics)) continue;
    const at::Tensor value = parameter.value().detach();
    for (const std::string& prefix : prefixes) {
      const bool is_weight = prefix.empty() || prefix == kAveragePrefix;
      file.tensors[prefix + parameter.key()] = is_weight ? value : at::zeros_like(value);
    }
  }
  for (const auto& [key, value] : description) file.metadata[key] = value;
  write_safetensors(to, file);
}

}  // namespace

bool shares_pretraining(const ParticleSettings& common, const ParticleSettings& run) {
  if (common.task.pretrain == 0 || common.task.pretrain >= common.steps) return false;
  ParticleSettings alike = run;
  alike.task.model.interlacer = common.task.model.interlacer;
  alike.task.model.interlacer.features = run.task.model.interlacer.features;  // the encoder's, too
  return difference(common, alike).empty();
}

std::optional<TrainResult> start_from_pretraining(RunFolder& folder, const ParticleSettings& run,
                                                  const std::string& shared, const ParticleSettings& common,
                                                  const ParticleData& data, const TrainCallbacks& callbacks) {
  if (file_exists(folder.file(kLastCheckpoint))) return std::nullopt;
  TrainResult stopped;
  stopped.outcome = TrainOutcome::stopped;
  stopped.steps = run.steps;
  const std::unique_ptr<RunFolder> source = wait_for(shared, callbacks.should_stop, {data, run.cache});
  if (source == nullptr) return stopped;
  if (steps_done(*source) < common.task.pretrain) {
    const TrainResult result = pretrain(*source, common, data, callbacks);
    if (result.step < common.task.pretrain) return result;
  }
  const RunMetadata description = describe_particles(run, data);
  const std::string last = source->file(kLastCheckpoint);
  same_episodes(description)(read_checkpoint_metadata(last), last);
  if (file_exists(source->file(kMetricsFile)))
    write_file(folder.file(kMetricsFile), read_file(source->file(kMetricsFile)));
  if (file_exists(source->file(kBestCheckpoint)))
    copy_checkpoint(source->file(kBestCheckpoint), folder.file(kBestCheckpoint), run, description);
  // Last: it says that the run has begun.
  copy_checkpoint(last, folder.file(kLastCheckpoint), run, description);
  return std::nullopt;
}

}  // namespace topomask
