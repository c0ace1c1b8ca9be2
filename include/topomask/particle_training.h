// Video prediction with particles as a task for the training loop, and scores of a trained model (paper, Sec.
// 4 "point clouds", App. C.3).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "topomask/particle_data.h"
#include "topomask/particle_options.h"
#include "topomask/train.h"

namespace topomask {

struct ParticleTaskOptions {
  HdVpdOptions model;
  std::int64_t batch = 16;
  std::int64_t rollout = 6;  // steps that are predicted in training
  std::int64_t rays = 128;   // of each predicted frame
  double render_loss =
      1;  // weight of colours in the loss; 0: encoder and renderer stay as pretraining left them
  double flow_loss = 0;       // weight of the particles' true places in the loss
  bool recompute = false;     // predicted steps again in the backward pass: less memory, more time
  std::int64_t pretrain = 0;  // first steps of training, on reconstruction: encoder and renderer alone
  std::int64_t double_every =
      0;  // then rollouts of 1, 2, 4, .. up to `rollout`, each for this many steps; 0: at once
  std::int64_t epoch_steps = 1000;    // between evaluations
  std::int64_t validation_every = 5;  // every n-th episode is for validation; 0: all are for both
  std::int64_t evaluation_windows = 16;
  std::int64_t evaluation_rollout = 6;
  std::uint64_t seed = 0;        // of windows, particles and rays
  std::uint64_t model_seed = 0;  // of the initial weights
  c10::Device device = c10::Device(c10::kCPU);
  // That share every batch; null: one. Walks of shared or independent ensembles are drawn for places in the
  // batch that a model sees, so of several ranks the grf layer takes asymmetric ones alone.
  RanksPtr ranks;
};
// Throws, in the words of the settings, where a value makes no sense whatever the data are.
void check_particle_task_options(const ParticleTaskOptions& options);

// Mean error of the particles' places, in metres, of those that have truly moved by more than 5 mm; NaN where
// there are none.
struct FlowError {
  double arm = 0, object = 0, grain = 0;
};

// Mean error of the poses of objects that have truly moved by more than 5 mm: of a rigid motion fitted to the
// particles on an object (rigid_error in image_metrics.h). NaN where there are none, or too few particles.
struct PoseError {
  double position = 0, rotation = 0;  // metres, degrees
};

// One step of rollouts: means over windows and cameras. Moving pixels are those whose colour differs from the
// last frame that was seen; NaN where there are none.
struct StepScores {
  double ssim = 0, ssim_moving = 0;
  double psnr = 0, psnr_moving = 0;  // dB
  double chamfer = 0;                // metres, between particles and the points that the cameras truly see
  FlowError flow;
  PoseError object;
};

// The scores of a step, in the order of tables.
struct StepScore {
  const char* name;         // in files: "flow_arm"
  const char* column;       // in tables: "arm mm"
  double shown_factor = 1;  // of the number in a table
  int digits = 3;
  double (*of)(const StepScores&);
};
std::span<const StepScore> step_scores();

// How fine the particles are beside what happens among them: means over windows, of particles where the last
// frame saw them. A graph of neighbours carries a push only where it joins bodies.
struct ParticleSpacing {
  double nearest = 0;  // metres from a particle to its nearest other: the median
  double contact = 0;  // share of object and grain particles with another body among their k neighbours
};

struct RolloutScores {
  std::vector<StepScores> model;   // [steps]
  std::vector<StepScores> copy;    // the last frame that was seen, again
  std::vector<StepScores> oracle;  // the first particles carried by the true motion, rendered
  std::int64_t windows = 0;
  ParticleSpacing spacing;
  double step_seconds = 0;                   // of a predicted step of one window, median
  std::optional<std::int64_t> memory_bytes;  // that a predicted step takes, where the device counts it
};

// A rollout to look at, on the CPU.
struct RolloutPictures {
  at::Tensor truth, predicted;  // [steps, C, H, W, 3] uint8
  at::Tensor points;            // [steps, N, 3] float32
  at::Tensor colours;           // [N, 3] uint8: of the particles where they were seen
};

class ParticleDynamics final : public Task {
 public:
  // The data must live as long as the task.
  ParticleDynamics(const ParticleData& data, const ParticleTaskOptions& options);
  ~ParticleDynamics() override;

  std::vector<NamedParameter> parameters() override;
  std::int64_t batches_per_epoch() const override;
  std::int64_t batch_size() const override;
  RanksPtr ranks() const override;
  void start_epoch(std::int64_t epoch, std::int64_t batch) override;
  Loss loss() override;
  double take_data_seconds() override;
  Evaluation evaluate() override;
  void set_training(bool training) override;
  std::string score_name() const override { return "psnr"; }  // of rays, in dB
  std::string sample_name() const override { return "windows"; }
  // Colours alone say nothing where the flow is learned.
  double merit(const Evaluation& evaluation) const override { return -evaluation.loss; }
  std::vector<std::string> part_names() const override;  // "flow", where it is a part

  std::int64_t num_parameters() const;
  // How many steps are predicted in a step of training; 0: reconstruction.
  std::int64_t rollout_at(std::int64_t step) const;
  // On evaluation_windows windows of the validation episodes.
  RolloutScores judge(const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});
  RolloutPictures pictures(const ParticleWindow& window, std::int64_t steps);
  // [steps, M, 3] float32 on the CPU: the tokens from which each step of that rollout is predicted, in the
  // Interlacer's order: particles at t-1 and at t-2, the robot's points at t-2, t-1 and t. `points` are those
  // of its pictures.
  at::Tensor tokens(const ParticleWindow& window, const at::Tensor& points) const;
  ParticleWindow example_window() const;  // one of those windows

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace topomask
