// `topomask bench particles`: particle models of robot scenes, from a step of the Interlacer to a whole step
// of training (paper, Sec. 4 "point clouds", App. C.3).
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/machine.h"
#include "bench/particle_scene.h"
#include "bench/timing.h"
#include "commands/commands.h"
#include "core/check.h"
#include "core/parallel.h"
#include "options/options.h"
#include "program_version.h"
#include "progress.h"
#include "table.h"
#include "topomask/device.h"
#include "topomask/neighbours.h"
#include "train/adam.h"
#include "train/autocast.h"
#include "train/module_parameters.h"
#include "train/particle_task.h"

namespace topomask::cli {
namespace {

using Json = nlohmann::ordered_json;

// Sizes that were not given are those of the targets on a GPU, and small ones on a CPU.
struct BenchParticlesCommand {
  RunOptions run;
  std::vector<std::int64_t> particles = {};
  std::vector<std::string> locals = {"grf", "mp", "none"};
  std::int64_t train_particles = 0, batch = 0, rollout = 0, queries = 0, size = 0;
  std::int64_t rays = 128, encoder_width = 32;
  InterlacerOptions interlacer;
  int repeats = 0;
  bool float32 = false, no_training = false, recompute = false;
  std::string device_word = "cpu";

  void fill_in(c10::Device device) {
    const auto unless_given = [&](std::int64_t& value, std::int64_t gpu, std::int64_t cpu) {
      if (value == 0) value = device.is_cuda() ? gpu : cpu;
    };
    if (particles.empty())
      particles =
          device.is_cuda() ? std::vector<std::int64_t>{32768, 131072} : std::vector<std::int64_t>{2048};
    unless_given(train_particles, 8192, 512);
    unless_given(batch, 8, 2);
    unless_given(rollout, 6, 2);
    unless_given(queries, 1000000, 20000);
    unless_given(size, 128, 32);
    if (repeats == 0) repeats = device.is_cuda() ? 11 : 3;
  }
};

struct Figure {
  std::string part, local;
  std::int64_t particles = 0;
  std::vector<double> seconds = {};
  std::int64_t bytes = -1;                // the most beyond what was there; -1: not counted
  std::vector<double> host_seconds = {};  // until the calls came back, where that was asked for
};

class ParticleBench {
 public:
  ParticleBench(const BenchParticlesCommand& command, c10::Device device)
      : command_(command), device_(device), progress_("parts", command.run.quiet) {}

  void run() {
    for (const std::int64_t particles : command_.particles) {
      for (const std::string& local : command_.locals) time_interlacer(local, particles);
      for (const std::string& local : command_.locals) time_layer(local, particles);
      time_neighbours(particles);
    }
    if (!command_.no_training) {
      for (const std::string& local : command_.locals) time_training(local);
    }
    erase_progress_line();
  }
  void print() const;

 private:
  HdVpdOptions options(const std::string& local, std::int64_t particles) const {
    HdVpdOptions model;
    model.interlacer = command_.interlacer;
    model.interlacer.local = parse_word<LocalLayer>("--locals", local);
    model.interlacer.seed = command_.run.seed;
    model.encoder_width = command_.encoder_width;
    model.particles = particles;
    check_hdvpd_options(model);
    return model;
  }
  // Parts that are timed on their own.
  std::int64_t total() const {
    const auto locals = static_cast<std::int64_t>(command_.locals.size()),
               with_geometry = locals - std::count(command_.locals.begin(), command_.locals.end(),
                                                   word_of(LocalLayer::none));
    return static_cast<std::int64_t>(command_.particles.size()) * (3 * locals + with_geometry + 1) +
           (command_.no_training ? 0 : locals);
  }
  bool mixed() const { return device_.is_cuda() && !command_.float32; }

  // Its most memory and its times; `work` keeps nothing.
  void add(const std::string& part, const std::string& local, std::int64_t particles,
           const std::function<void()>& work) {
    progress_.update(done_++, total(), fmt::format("{} {}, {} particles", part, local, particles));
    Figure figure{part, local, particles};
    work();  // memory, and what is made once
    synchronise(device_);
    reset_peak_memory(device_);
    const std::int64_t held = peak_memory(device_);
    const PeakMemory resident;
    work();
    synchronise(device_);
    figure.bytes = device_.is_cuda() ? peak_memory(device_) - held : resident.bytes();
    std::vector<TimedWork> timed = {{work, command_.repeats}};
    time_in_turns(device_, timed);
    figure.seconds = timed[0].seconds;
    figures_.push_back(std::move(figure));
  }

  void time_interlacer(const std::string& local, std::int64_t particles);
  void time_layer(const std::string& local, std::int64_t particles);
  void time_neighbours(std::int64_t particles);
  void time_training(const std::string& local);
  Json setting() const;

  const BenchParticlesCommand& command_;
  c10::Device device_;
  Progress progress_;
  std::int64_t done_ = 0;
  std::vector<Figure> figures_;
};

// A predicted step without gradients: neighbours, features, all layers.
void ParticleBench::time_interlacer(const std::string& local, std::int64_t particles) {
  const HdVpdOptions model = options(local, particles);
  Interlacer interlacer(model.interlacer);
  interlacer->to(device_);
  interlacer->eval();
  const ParticleScene scene = made_scene(model, 1, command_.run.seed, device_);
  add("interlacer", local, particles, [&] {
    const at::NoGradGuard no_grad;
    const AutocastScope scope(mixed());
    interlacer->forward(scene);
  });
}

// One local block with its MLP on given tokens, the geometry that it needs, and forward with backward.
void ParticleBench::time_layer(const std::string& local, std::int64_t particles) {
  const HdVpdOptions model = options(local, particles);
  Interlacer interlacer(model.interlacer);
  interlacer->to(device_);
  const ParticleScene scene = made_scene(model, 1, command_.run.seed, device_);
  const at::Tensor places =
      at::cat({scene.positions, scene.past_positions, scene.robot_positions.flatten(1, 2)}, 1);
  const at::Tensor tokens =
      at::randn({1, places.size(1), model.interlacer.width}, places.options()).requires_grad_();
  if (model.interlacer.local != LocalLayer::none) {
    add("geometry", local, particles, [&] {
      const at::NoGradGuard no_grad;
      const CloudGeometry geometry(places, model.interlacer);
    });
  }
  const CloudGeometry geometry(places, model.interlacer);
  const auto layer = [&] {
    const AutocastScope scope(mixed());
    ResidualStream stream{tokens};
    interlacer->pass_locally(0, stream, geometry);
    return stream.total();
  };
  add("layer", local, particles, [&] {
    const at::NoGradGuard no_grad;
    layer();
  });
  const at::Tensor direction = at::randn_like(tokens).detach();
  add("layer, both ways", local, particles, [&] {
    layer().backward(direction);
    tokens.mutable_grad() = at::Tensor();
    interlacer->zero_grad();
  });
}

// Neighbours of points near particles, as the renderer asks for them.
void ParticleBench::time_neighbours(std::int64_t particles) {
  constexpr std::int64_t kNeighbours = 16;
  constexpr double kReach = .025;
  const at::Tensor points = scene_points(particles, command_.run.seed).to(device_);
  at::manual_seed(command_.run.seed);
  NeighbourOptions search;
  search.queries =
      points.index_select(0, at::randint(particles, {command_.queries}, points.options().dtype(at::kLong)));
  search.queries = search.queries + (at::rand_like(search.queries) * 2 - 1) * kReach;
  add(fmt::format("{} neighbours of {}", kNeighbours, format_count(static_cast<double>(command_.queries))),
      "", particles, [&] { knn(points, kNeighbours, search); });
}

// A whole step, then its parts one after the other, each waited for.
void ParticleBench::time_training(const std::string& local) {
  const HdVpdOptions model_options = options(local, command_.train_particles);
  HdVpd model(model_options, command_.run.seed);
  model->to(device_);
  model->train();
  const ParticleBatch batch =
      made_batch(model_options, {command_.batch, command_.rollout, command_.rays, command_.size},
                 command_.run.seed, device_);
  TrainOptions training;
  training.device = device_;
  training.learning_rate = 1e-6;  // the timed work should not change from step to step
  Adam optimizer(module_parameters(model), training);
  const auto update = [&] {
    optimizer.clip_gradients();
    optimizer.step(1);
    optimizer.clear_gradients();
  };
  const auto keep = command_.recompute ? HdVpdImpl::Keep::inputs : HdVpdImpl::Keep::all;
  const auto loss_of = [&] {
    const AutocastScope scope(mixed());
    return colour_error(model, model->rollout(model->encode(batch), batch.robot, batch.grips, keep), batch);
  };
  add("training step", local, command_.train_particles, [&] {
    loss_of().backward();
    update();
  });
  Figure& whole = figures_.back();
  const std::vector<std::string> names = {"encode", "rollout", "render", "backward", "optimizer"};
  std::vector<Figure> parts;
  for (const std::string& name : names) parts.push_back({"  " + name, local, command_.train_particles});
  Figure geometry{"  geometry of the rollout", local, command_.train_particles};
  for (int repeat = 0; repeat < command_.repeats; ++repeat) {
    synchronise(device_);
    auto start = Clock::now();
    loss_of().backward();
    update();
    whole.host_seconds.push_back(seconds_since(start));
    synchronise(device_);
    std::size_t part = 0;
    const auto part_ends = [&] {
      parts[part].host_seconds.push_back(seconds_since(start));
      synchronise(device_);
      parts[part++].seconds.push_back(seconds_since(start));
      start = Clock::now();
    };
    start = Clock::now();
    at::Tensor loss;
    std::vector<ParticleState> states;
    {
      const AutocastScope scope(mixed());
      const ParticleState first = model->encode(batch);
      part_ends();
      states = model->rollout(first, batch.robot, batch.grips, keep);
      part_ends();
      loss = colour_error(model, states, batch);
      part_ends();
    }
    loss.backward();
    part_ends();
    update();
    part_ends();
    const at::NoGradGuard no_grad;
    for (std::int64_t step = 0; step < command_.rollout; ++step) {
      const ParticleState& state = states[static_cast<std::size_t>(step)];
      const CloudGeometry again(at::cat({state.positions, state.past_positions,
                                         batch.robot.narrow(1, step, kRobotMoments).flatten(1, 2)},
                                        1),
                                model_options.interlacer);
    }
    geometry.host_seconds.push_back(seconds_since(start));
    synchronise(device_);
    geometry.seconds.push_back(seconds_since(start));
  }
  for (Figure& figure : parts) figures_.push_back(std::move(figure));
  figures_.push_back(std::move(geometry));
}

Json ParticleBench::setting() const {
  const InterlacerOptions& model = command_.interlacer;
  return {{"layers", model.layers},
          {"width", model.width},
          {"heads", model.heads},
          {"mlp", model.mlp},
          {"neighbours", model.neighbours},
          {"hops", model.hops},
          {"batch", command_.batch},
          {"rollout", command_.rollout},
          {"rays", command_.rays},
          {"size", command_.size},
          {"encoder_width", command_.encoder_width},
          {"recompute", command_.recompute},
          {"numbers", mixed() ? "bfloat16" : "float32"},
          {"device", device_.is_cuda() ? device_name(device_) : cpu_model()},
          {"threads", num_threads()},
          {"repeats", command_.repeats},
          {"version", program_version()}};
}

void ParticleBench::print() const {
  if (command_.run.json) {
    Json json = {{"results", Json::array()}, {"setting", setting()}};
    for (const Figure& figure : figures_) {
      const Timing timing = summarise_times(figure.seconds);
      const std::size_t first = figure.part.find_first_not_of(' ');
      Json row = {{"part", figure.part.substr(first)},
                  {"of_training_step", first > 0 || figure.part == "training step"},
                  {"local", figure.local.empty() ? Json() : Json(figure.local)},
                  {"particles", figure.particles},
                  {"seconds_median", timing.median},
                  {"seconds_spread", timing.spread}};
      if (figure.bytes >= 0) row["peak_bytes"] = figure.bytes;
      if (!figure.host_seconds.empty())
        row["host_seconds_median"] = summarise_times(figure.host_seconds).median;
      json["results"].push_back(std::move(row));
    }
    fmt::print("{}\n", json.dump());
    return;
  }
  if (command_.run.quiet) return;
  Table table({"part", "local", "particles", "median", "spread", "host", "peak memory"});
  for (const Figure& figure : figures_) {
    const Timing timing = summarise_times(figure.seconds);
    table.add_row(
        {figure.part, figure.local, format_count(static_cast<double>(figure.particles)),
         format_seconds(timing.median), format_seconds(timing.spread),
         figure.host_seconds.empty() ? "" : format_seconds(summarise_times(figure.host_seconds).median),
         figure.bytes < 0 ? "" : format_bytes(static_cast<double>(figure.bytes))});
  }
  table.print();
  fmt::print("{}\n", in_words(setting()));
}

void run_bench_particles(BenchParticlesCommand command) {
  command.run.apply();
  const c10::Device device = parse_device(command.device_word);
  for (const auto& [name, value] : {std::pair("--train-particles", command.train_particles),
                                    {"--batch", command.batch},
                                    {"--rollout", command.rollout},
                                    {"--queries", command.queries},
                                    {"--size", command.size},
                                    {"--repeats", static_cast<std::int64_t>(command.repeats)}})
    check(value >= 0, "{}: expected at least 1, or 0 for the default, got {}", name, value);
  command.fill_in(device);
  check(command.rays >= 1, "--rays: expected at least 1, got {}", command.rays);
  check(command.size % kUNetSideFactor == 0, "--size: expected a multiple of {}, got {}", kUNetSideFactor,
        command.size);
  for (const std::int64_t particles : command.particles)
    check(particles >= 16, "--particles: expected at least 16, got {}", particles);
  for (const std::string& local : command.locals) parse_word<LocalLayer>("--locals", local);
  ParticleBench bench(command, device);
  bench.run();
  bench.print();
}

}  // namespace

void add_bench_particles_command(CLI::App& bench) {
  CLI::App* sub = bench.add_subcommand(
      "particles", "Particle models: Interlacer, local layers, neighbours, whole training steps");
  const auto command = std::make_shared<BenchParticlesCommand>();
  const auto add = [&](const char* flag, auto& value, const char* description) {
    return sub->add_option(flag, value, description);
  };
  add("--particles", command->particles,
      "Particles of the scenes on which the Interlacer, its layers and neighbours are timed (default: "
      "32768,131072 on a GPU, 2048 on a CPU)")
      ->delimiter(',');
  add("--locals", command->locals, "Local layers, as in 'train particles'")
      ->delimiter(',')
      ->capture_default_str();
  add("--queries", command->queries,
      "Points whose neighbours are searched (default: 1000000; 20000 on a CPU)");
  add("--train-particles", command->train_particles,
      "Particles per training step (default: 8192; 512 on a CPU)");
  add("--batch", command->batch, "Windows of frames per training step (default: 8; 2 on a CPU)");
  add("--rollout", command->rollout, "Predicted frames per training step (default: 6; 2 on a CPU)");
  add("--rays", command->rays, "Rays per predicted frame")->capture_default_str();
  add("--size", command->size, "Width and height of a frame in pixels (default: 128; 32 on a CPU)");
  add("--layers", command->interlacer.layers, "Layers, each a global block and a local one")
      ->capture_default_str();
  add("--width", command->interlacer.width, "Width of a token")->capture_default_str();
  add("--heads", command->interlacer.heads, "Heads of global attention")->capture_default_str();
  add("--mlp", command->interlacer.mlp, "Hidden width of the MLPs")->capture_default_str();
  add("--encoder-width", command->encoder_width, "Channels of the U-Net's first level, a multiple of 8")
      ->capture_default_str();
  add("--repeats", command->repeats, "Timed runs per part (default: 11; 3 on a CPU)");
  sub->add_flag("--no-training", command->no_training, "Leave out the training steps");
  sub->add_flag("--recompute", command->recompute,
                "Recompute steps in the backward pass, as 'train particles --recompute' does");
  sub->add_flag("--float32", command->float32,
                "Compute matrix products on a GPU in float32 instead of bfloat16");
  add_device_option(*sub, command->device_word);
  add_run_options(*sub, command->run);
  sub->footer(
      "interlacer: one predicted step without gradients. layer: one local block on given tokens; geometry:\n"
      "what all local layers of a pass share. training step: forward, backward and AdamW, queued without\n"
      "waiting; its parts below are timed one by one with waits, and rollout includes geometry. host: time\n"
      "until the calls returned; if that is close to the whole time, the device waits for the host. Scenes\n"
      "are generated. As a model sees them, they include a quarter more particles from the frame before,\n"
      "and those of the robot.\n"
      "Examples:\n"
      "  topomask bench particles --particles 1024 --no-training\n"
      "  topomask bench particles --device cuda --json");
  sub->callback([command] { run_bench_particles(*command); });
}

}  // namespace topomask::cli
