#include <fmt/format.h>

#include "core/check.h"
#include "topomask/device.h"
#include "topomask/particle_runs.h"
#include "train/settings.h"

namespace topomask {
namespace {

// What each seed is for.
enum class ParticleSeed { weights, data, training };

}  // namespace

ParticleSettings::ParticleSettings() {
  train.learning_rate = 3e-4;
  train.final_learning_rate = 1e-4;
  train.drop_step = 1000;
  train.warmup_epochs = 0;
  train.weight_decay = 1e-3;
  train.beta2 = 0.999;
  train.clip_norm = 0.01;
}

Settings list_settings(ParticleSettings& s) {
  Settings list;
  list.section("data");
  list.add("data", s.data, "Folder of 'topomask simulate robot'");
  list.add("size", s.size, "Pixels of a frame, both ways; 0: as the data set says");
  list.add("cache", s.cache, "Keep rendered frames in memory", "Render frames anew each time");
  list.add("validation-every", s.task.validation_every,
           "One episode in so many is for validation; 0: all are for training and validation");
  list.add("batch", s.task.batch, "Windows in a batch");

  list.section("model");
  InterlacerOptions& i = s.task.model.interlacer;
  list.add_choice("local", i.local, "Local layer of the Interlacer");
  list.add("particles", s.task.model.particles, "Particles of the last frame that is seen");
  list.add("past-share", s.task.model.past_share, "The frame before has one particle for so many");
  list.add("robot-points", s.task.model.robot_points, "Kinematic particles on each arm");
  list.add("features", i.features, "Features of a particle");
  list.add("width", i.width, "Width of a token");
  list.add("layers", i.layers, "Layers, each a global block and a local one");
  list.add("heads", i.heads, "Heads of global attention; their number must divide the width");
  list.add("mlp", i.mlp, "Width inside the MLPs");
  list.add("neighbours", i.neighbours, "grf, softmax: neighbours of a token in the graph");
  list.add("hops", i.hops, "grf: reach of the mask; f has hops + 1 numbers");
  list.add_choice(
      "ensembles", i.ensembles,
      "grf: asymmetric is the paper's, on the directed graph; the others are on the undirected one");
  list.add("anchor-every", i.anchor_every, "mp: one token in so many is an anchor");
  list.add("anchor-neighbours", i.anchor_neighbours, "mp: tokens that an anchor hears");
  list.add("bands", i.bands, "Octaves of sin and cos of a position");
  list.add("encoder-width", s.task.model.encoder_width,
           "Channels of the U-Net's first level, a multiple of 8");
  list.add("render-samples", s.task.model.render_samples, "Samples along a ray, at most");
  list.add("render-hidden", s.task.model.render_hidden, "Width of the renderer's MLPs");

  list.section("training");
  list.add("seed", s.seed, "Everything random follows from this number");
  list.add("steps", s.steps, "Steps of training, a multiple of epoch-steps");
  list.add("epoch-steps", s.task.epoch_steps, "Steps between evaluations");
  list.add("rollout", s.task.rollout, "Frames that are predicted");
  list.add("pretrain", s.task.pretrain, "First steps, on reconstruction: encoder and renderer alone");
  list.add("double-every", s.task.double_every,
           "Then rollouts of 1, 2, 4, .. frames, each for so many steps; 0: --rollout at once");
  list.add("rays", s.task.rays, "Rays of each predicted frame that the loss looks at");
  list.add(
      "recompute", s.task.recompute,
      "Compute predicted steps again in the backward pass: memory of one step in place of all, for another "
      "forward pass",
      "Keep all of every predicted step for the backward pass");
  list.add_choice("optimizer", s.train.optimizer, "Optimiser");
  list.add("learning-rate", s.train.learning_rate, "Highest learning rate");
  list.add("final-learning-rate", s.train.final_learning_rate, "Learning rate at the end");
  list.add("mask-learning-rate", s.train.mask_learning_rate, "Highest learning rate of f; 0: as the others");
  list.add("drop-step", s.train.drop_step,
           "The final learning rate from this step on; 0: half a cosine down to it");
  list.add("warmup-epochs", s.train.warmup_epochs, "Linear warm-up, in units of epoch-steps");
  list_training(list, s.train, s.device, /*epochs=*/false);

  list.section("evaluation");
  list.add("evaluation-windows", s.task.evaluation_windows, "Windows of the validation episodes");
  list.add("evaluation-rollout", s.task.evaluation_rollout, "Frames that are predicted in each");
  return list;
}

ParticleSettings ParticleSettings::from(const SettingValues& given, const std::string& config_path) {
  ParticleSettings settings;
  list_settings(settings).apply(given, config_path);
  return settings;
}

ParticleSettings ParticleSettings::from_toml_text(const std::string& text, const std::string& name) {
  ParticleSettings settings;
  list_settings(settings).read_toml_text(text, name);
  return settings;
}

std::string ParticleSettings::to_toml() const {
  ParticleSettings copy = *this;
  return list_settings(copy).to_toml();
}

ParticleDataOptions ParticleSettings::data_options() const {
  ParticleDataOptions options;
  options.particles = task.model.particles;
  options.past_particles = task.model.past_particles();
  options.robot_points = task.model.robot_points;
  options.size = size;
  options.cache = cache;
  return options;
}

ParticleTaskOptions ParticleSettings::task_options() const {
  ParticleTaskOptions options = task;
  options.seed = stream_seed(seed, ParticleSeed::data);
  options.model_seed = stream_seed(seed, ParticleSeed::weights);
  options.device = parse_device(device);
  return options;
}

TrainOptions ParticleSettings::train_options() const {
  check_hdvpd_options(task.model);
  check(task.epoch_steps >= 1 && steps >= 1 && steps % task.epoch_steps == 0,
        "training: steps must be a multiple of epoch-steps ({}), got {}", task.epoch_steps, steps);
  TrainOptions options = train;
  options.epochs = steps / task.epoch_steps;
  options.seed = stream_seed(seed, ParticleSeed::training);
  options.device = parse_device(device);
  check_train_options(options);
  return options;
}

std::string ParticleSettings::default_folder() const {
  return fmt::format("runs/particles-{}-seed-{}", word_of(task.model.interlacer.local), seed);
}

std::string difference(const ParticleSettings& saved, const ParticleSettings& now) {
  ParticleSettings before = saved, after = now;
  return first_difference(list_settings(before), list_settings(after),
                          [](const std::string& key, const std::string& left, const std::string& right) {
                            return key == "cache" || key == "data" || key == "recompute" || left == right;
                          });
}

}  // namespace topomask
