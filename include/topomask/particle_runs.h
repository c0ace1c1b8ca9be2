// Training runs of particle models: settings, checkpoints and scores. Folders and locks are those of runs.h.
//
//   ParticleSettings settings = ParticleSettings::from({{"data", "robot"}, {"local", "grf"}});
//   RunFolder folder("runs/grf", RunStart::fresh);
//   train_particles(folder, settings);
//   HdVpd model = load_hdvpd("runs/grf/best.safetensors");  // topomask/hdvpd.h
#pragma once

#include "topomask/particle_training.h"
#include "topomask/runs.h"

namespace topomask {

// Everything that decides a run. The defaults are the paper's.
struct ParticleSettings {
  std::string data = "robot";  // a folder of 'topomask simulate robot'
  int size = 0;                // pixels of a frame; 0: as the data set says
  bool cache = true;
  ParticleTaskOptions task;  // seeds and device come from the fields below
  std::int64_t steps = 100000;
  TrainOptions train;      // epochs follow from steps
  std::uint64_t seed = 0;  // everything random follows from it
  std::string device = "cpu";

  ParticleSettings();
  // Defaults, then the TOML file (none where the path is empty), then the values given.
  static ParticleSettings from(const SettingValues& given, const std::string& config_path = "");
  static ParticleSettings from_toml_text(const std::string& text, const std::string& name);
  std::string to_toml() const;

  ParticleDataOptions data_options() const;
  ParticleTaskOptions task_options() const;
  TrainOptions train_options() const;  // checks them
  std::string default_folder() const;  // runs/particles-LOCAL-seed-SEED
};

// The first setting that two runs differ in among those that a result depends on; "" where there is none.
// Device, cache, recompute, the time of checkpoints and the folder of the data are free.
std::string difference(const ParticleSettings& saved, const ParticleSettings& now);

// A finished run has this file beside those of runs.h: one rollout to look at.
//
//   truth, predicted   [T, C, H, W, 3] uint8: frames of T predicted steps and C cameras
//   points             [T, N, 3] float32, metres: the particles at each predicted step
//   colours            [N, 3] uint8: of the particles where they were seen
//   tokens             [T, M, 3] float32: what each step is predicted from (ParticleDynamics::tokens)
//
// Its metadata say "episode" (a name), "first" (the first frame that was seen), "past_particles" (how many of
// the tokens are particles at t-2), and the settings of the graph of tokens: "local", "neighbours", "hops"
// and "ensembles".
inline constexpr const char* kRolloutFile = "rollout.safetensors";

using ParticleRunResult = RunResult;

// Trains, or resumes the run that the folder holds: with the same settings and the same data, or not at all.
// A finished run is only reported.
RunResult train_particles(RunFolder& folder, const ParticleSettings& settings,
                          const TrainCallbacks& callbacks = {});
// The same on ranks that share every batch, as train_vit (runs.h): the first has the folder, the others none.
// Collective.
RunResult train_particles(const RanksPtr& ranks, RunFolder* folder, const ParticleSettings& settings,
                          const TrainCallbacks& callbacks = {});
// The same with data that are open already, for several runs on them.
RunResult train_particles(RunFolder& folder, const ParticleSettings& settings, const ParticleData& data,
                          const TrainCallbacks& callbacks = {});

// A trained model as plain data. `load_hdvpd` (topomask/hdvpd.h) makes a module of it.
struct ParticleCheckpoint {
  ParticleSettings settings;
  std::map<std::string, at::Tensor> weights;  // by the names of the module; averaged ones where there are any
  std::string episodes;                       // hash of those that it was trained on
};
// Throws one sentence where the file is not a checkpoint of 'topomask train particles'.
ParticleCheckpoint read_particle_checkpoint(const std::string& path);

// A trained model with data to judge it on: of the episodes of its training those for validation, of others
// all. Empty or 0: as in training.
struct TrainedParticlesOptions {
  std::string data = {}, device = {};
  std::int64_t windows = 0, rollout = 0;
};
class TrainedParticles {
 public:
  explicit TrainedParticles(const std::string& checkpoint, const TrainedParticlesOptions& options = {});
  const ParticleSettings& settings() const { return settings_; }
  const ParticleData& data() const { return *data_; }
  RolloutScores judge(const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});
  RolloutPictures pictures(const ParticleWindow& window, std::int64_t steps);

 private:
  ParticleSettings settings_;
  std::unique_ptr<ParticleData> data_;
  std::unique_ptr<ParticleDynamics> task_;
};

// {"model": [{"step", "ssim", "flow_arm", and all other names of step_scores()}, ..], "copy": .., "oracle":
// .., "windows", "spacing", "contact", "step_seconds", "memory_bytes"}; null for what is undefined.
std::string rollout_scores_json(const RolloutScores& scores);

}  // namespace topomask
