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
  list.add("data", s.data, "Folder written by 'topomask simulate robot'");
  list.add("size", s.size, "Width and height of a frame in pixels; 0: as in the data set");
  list.add("cache", s.cache, "Keep rendered frames in memory",
           "Render frames again whenever they are needed");
  list.add("validation-every", s.task.validation_every,
           "Every N-th episode is for validation; 0: all episodes are for training and for validation");
  list.add("batch", s.task.batch, "Windows of frames per batch");

  list.section("model");
  InterlacerOptions& i = s.task.model.interlacer;
  list.add_choice("local", i.local, "Local layer of the Interlacer");
  list.add("particles", s.task.model.particles, "Particles of the last observed frame");
  list.add("past-share", s.task.model.past_share, "The frame before it has particles / past-share particles");
  list.add("robot-points", s.task.model.robot_points, "Kinematic particles on each arm");
  list.add("features", i.features, "Features per particle");
  list.add("width", i.width, "Width of a token");
  list.add("layers", i.layers, "Layers, each a global block and a local one");
  list.add("heads", i.heads, "Heads of global attention; the number must divide the width");
  list.add("mlp", i.mlp, "Hidden width of the MLPs");
  list.add("neighbours", i.neighbours, "grf, softmax: neighbours per token in the graph");
  list.add("hops", i.hops, "grf: reach of the mask in hops; f has hops + 1 values");
  list.add_choice("ensembles", i.ensembles,
                  "grf: which walks the keys use, on the directed graph if asymmetric (as in the paper), "
                  "else on the undirected one");
  list.add("anchor-every", i.anchor_every, "mp: every N-th token is an anchor");
  list.add("anchor-neighbours", i.anchor_neighbours, "mp: tokens that send messages to an anchor");
  list.add("bands", i.bands, "Octaves in the sin and cos encoding of a position");
  list.add("encoder-width", s.task.model.encoder_width,
           "Channels of the U-Net's first level, a multiple of 8");
  list.add("render-samples", s.task.model.render_samples, "Maximum number of samples along a ray");
  list.add("render-hidden", s.task.model.render_hidden, "Hidden width of the renderer's MLPs");

  list.section("training");
  list.add("seed", s.seed, "Random seed; fixes everything random");
  list.add("steps", s.steps, "Training steps, a multiple of epoch-steps");
  list.add("epoch-steps", s.task.epoch_steps, "Steps between evaluations");
  list.add("rollout", s.task.rollout, "Frames predicted in each training window");
  list.add("pretrain", s.task.pretrain,
           "Initial steps on reconstruction, which train the encoder and the renderer alone");
  list.add("double-every", s.task.double_every,
           "Then train on rollouts of 1, 2, 4, ... frames, each for this many steps; 0: on --rollout frames "
           "at once");
  list.add("rays", s.task.rays, "Rays per predicted frame in the loss");
  list.add(
      "render-loss", s.task.render_loss,
      "Weight of the rays' colours in the loss. 0: the Interlacer learns from --flow-loss alone; encoder and "
      "renderer stay as --pretrain left them");
  list.add("flow-loss", s.task.flow_loss,
           "Weight of the particles' places, as the simulator knows them, in the loss. 0: as in the paper");
  list.add("recompute", s.task.recompute,
           "Recompute predicted steps in the backward pass: memory for one step instead of all, at the cost "
           "of another forward pass",
           "Keep the activations of every predicted step for the backward pass");
  list.add_choice("optimizer", s.train.optimizer, "Optimiser");
  list.add("learning-rate", s.train.learning_rate, "Peak learning rate");
  list.add("final-learning-rate", s.train.final_learning_rate, "Learning rate at the end");
  list.add("mask-learning-rate", s.train.mask_learning_rate,
           "Peak learning rate of f; 0: same as --learning-rate");
  list.add(
      "drop-step", s.train.drop_step,
      "Steps after which the final learning rate begins, counted anew after --pretrain; 0: half a cosine "
      "down to it");
  list.add("warmup-epochs", s.train.warmup_epochs, "Linear warm-up, in units of epoch-steps");
  list_training(list, s.train, s.device, /*epochs=*/false);

  list.section("evaluation");
  list.add("evaluation-windows", s.task.evaluation_windows, "Windows of the validation episodes to evaluate");
  list.add("evaluation-rollout", s.task.evaluation_rollout, "Frames predicted in each window");
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
  check_particle_task_options(task);
  check(task.epoch_steps >= 1 && steps >= 1 && steps % task.epoch_steps == 0,
        "training: steps must be a multiple of epoch-steps ({}), got {}", task.epoch_steps, steps);
  TrainOptions options = train;
  options.epochs = steps / task.epoch_steps;
  options.seed = stream_seed(seed, ParticleSeed::training);
  options.device = parse_device(device);
  if (task.pretrain > 0 && task.pretrain < steps) options.restart_step = task.pretrain;
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
