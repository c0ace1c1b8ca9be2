#include <ATen/core/grad_mode.h>
#include <torch/types.h>

#include <cmath>
#include <future>
#include <numeric>

#include "core/check.h"
#include "core/random.h"
#include "topomask/distributed.h"
#include "topomask/image_metrics.h"
#include "train/data_clock.h"
#include "train/module_parameters.h"
#include "train/particle_task.h"

namespace topomask {
namespace {

constexpr std::uint32_t kWindowPurpose = 0x77696e64;

// What the seed of a task is for.
enum class ParticleStream : std::uint64_t { training, evaluation };

double decibels(double mean_square) {
  return -10 * std::log10(std::max(mean_square, 1e-12));
}

}  // namespace

ParticleDynamics::Implementation::Implementation(const ParticleData& given, const ParticleTaskOptions& o)
    : data(given), options(o), model(o.model, o.model_seed), data_clock(o.device) {
  if (options.ranks == nullptr) options.ranks = Ranks::alone();
  const std::int64_t size = data.frames().size();
  // Whole windows of SSIM must fit in, too.
  constexpr std::int64_t kLeast = (kSsimWindow + kUNetSideFactor - 1) / kUNetSideFactor * kUNetSideFactor;
  check(size >= kLeast && size % kUNetSideFactor == 0,
        "training: size must be a multiple of {} from {}, got {}", kUNetSideFactor, kLeast, size);
  const std::int64_t sharing = options.ranks->size();
  const InterlacerOptions& layers = o.model.interlacer;
  check(sharing <= o.batch, "training: a batch of {} windows cannot be shared by {} ranks", o.batch, sharing);
  check(sharing == 1 || layers.local != LocalLayer::grf || layers.ensembles == Ensembles::asymmetric,
        "training: over ranks the walks of ensembles {} would not be those of one process; use asymmetric",
        word_of(layers.ensembles));
  for (std::int64_t episode = 0; episode < data.episodes(); ++episode) {
    const bool validates = o.validation_every > 0 && episode % o.validation_every == o.validation_every - 1;
    if (validates || o.validation_every == 0) validation.push_back(episode);
    if (!validates) training.push_back(episode);
    data.windows(episode, std::max(o.rollout, o.evaluation_rollout));  // throws where it is too short
  }
  check(!validation.empty() && !training.empty(),
        "training: {} episodes with one in {} for validation leave {} to train on and {} to validate on; "
        "simulate "
        "more, or use another validation-every (0: all for both)",
        data.episodes(), o.validation_every, training.size(), validation.size());
  model->to(o.device);
}

std::vector<ParticleWindow> ParticleDynamics::Implementation::training_windows(std::int64_t at_step) const {
  RandomStream random(
      derive_seed(derive_seed(options.seed, static_cast<std::uint64_t>(ParticleStream::training)),
                  static_cast<std::uint64_t>(at_step)),
      kWindowPurpose);
  const std::int64_t rollout = rollout_at(at_step);
  std::vector<ParticleWindow> windows;
  for (std::int64_t i = 0; i < options.batch; ++i) {
    ParticleWindow window;
    window.episode = training[random.next_below(training.size())];
    window.first = static_cast<std::int64_t>(
        random.next_below(static_cast<std::uint64_t>(data.windows(window.episode, rollout))));
    windows.push_back(window);
  }
  return windows;
}

std::int64_t ParticleDynamics::Implementation::rollout_at(std::int64_t at_step) const {
  if (at_step < options.pretrain) return 0;
  if (options.double_every == 0) return options.rollout;
  const std::int64_t doublings =
      std::min<std::int64_t>((at_step - options.pretrain) / options.double_every, 32);
  return std::min(options.rollout, std::int64_t{1} << doublings);
}

ParticleBatch ParticleDynamics::Implementation::training_batch(std::int64_t at_step) const {
  const std::uint64_t seed =
      derive_seed(derive_seed(options.seed, static_cast<std::uint64_t>(ParticleStream::training)),
                  static_cast<std::uint64_t>(at_step));
  const std::vector<ParticleWindow> windows = training_windows(at_step);
  const std::int64_t rollout = rollout_at(at_step);
  return data.batch({windows.begin() + own_from(), windows.begin() + own_to()},
                    {.rollout = rollout,
                     .rays = rollout == 0 || learns_colours() ? options.rays : 0,
                     .first = own_from(),
                     .truth = rollout > 0 && learns_flow()},
                    seed);
}

std::int64_t ParticleDynamics::Implementation::own_from() const {
  return options.batch * options.ranks->rank() / options.ranks->size();
}

std::int64_t ParticleDynamics::Implementation::own_to() const {
  return options.batch * (options.ranks->rank() + 1) / options.ranks->size();
}

std::uint64_t ParticleDynamics::Implementation::evaluation_seed() const {
  // The same windows, particles and rays for all seeds of an experiment.
  return derive_seed(0, static_cast<std::uint64_t>(ParticleStream::evaluation));
}

std::vector<ParticleWindow> ParticleDynamics::Implementation::evaluation_windows() const {
  std::vector<ParticleWindow> windows;
  const auto episodes = static_cast<std::int64_t>(validation.size());
  for (std::int64_t i = 0; i < options.evaluation_windows; ++i) {
    ParticleWindow window;
    // Episodes are in the order of tasks: where there are fewer windows, they are spread over all of them.
    const std::int64_t place =
        options.evaluation_windows < episodes ? i * episodes / options.evaluation_windows : i % episodes;
    window.episode = validation[static_cast<std::size_t>(place)];
    // Spread over the length of an episode: its n-th window begins at the n-th of equal parts.
    const std::int64_t rounds = (options.evaluation_windows - 1 - i % episodes) / episodes + 1,
                       round = i / episodes;
    const std::int64_t places = data.windows(window.episode, options.evaluation_rollout);
    window.first = (2 * round + 1) * places / (2 * rounds);
    windows.push_back(window);
  }
  return windows;
}

at::Tensor colour_error(HdVpd& model, const std::vector<ParticleState>& states, const ParticleBatch& batch) {
  const std::int64_t steps = static_cast<std::int64_t>(states.size()), clouds = batch.positions.size(0);
  // All steps at once, one after the other.
  std::vector<at::Tensor> positions, features;
  for (const ParticleState& state : states) {
    positions.push_back(state.positions);
    features.push_back(state.features);
  }
  const auto rays = [&](const at::Tensor& x) { return x.transpose(0, 1).reshape({steps * clouds, -1, 3}); };
  const Rendered seen = model->render({at::cat(positions), at::cat(features), {}, {}}, rays(batch.origins),
                                      rays(batch.directions));
  return (seen.colour.to(at::kFloat) - rays(batch.colours)).square().mean();
}

at::Tensor flow_error(const std::vector<ParticleState>& states, const ParticleBatch& batch) {
  constexpr double kUnitsPerMetre = 20, kArmWeight = 4, kObjectWeight = 40;
  std::vector<at::Tensor> positions;
  for (const ParticleState& state : states) positions.push_back(state.positions);
  const at::Tensor moved = (batch.truth - batch.positions.unsqueeze(1)).norm(2, {-1}) > kLeastMove;
  const at::Tensor on_arm = batch.groups.unsqueeze(1) == static_cast<std::int64_t>(ParticleGroup::arm);
  const at::Tensor weight = 1 + moved * at::where(on_arm, kArmWeight - 1, kObjectWeight - 1);  // [B, K, N]
  const at::Tensor off = (at::stack(positions, 1) - batch.truth) * kUnitsPerMetre;
  return (off.square().sum(-1) * weight).mean();
}

ParticleDynamics::Implementation::Errors ParticleDynamics::Implementation::errors(
    const ParticleBatch& batch) {
  const bool reconstructs = batch.robot.size(1) < kRobotMoments;
  const bool colours = reconstructs || learns_colours();
  ParticleState state;
  {
    const at::AutoGradMode mode(at::GradMode::is_enabled() && colours);
    state = model->encode(batch);
  }
  if (reconstructs) return {colour_error(model, {state}, batch), {}};
  const auto keep = options.recompute ? HdVpdImpl::Keep::inputs : HdVpdImpl::Keep::all;
  std::vector<ParticleState> states;
  for (std::int64_t first = 0; first + kRobotMoments <= batch.robot.size(1); ++first) {
    state = model->step(state, batch.robot.narrow(1, first, kRobotMoments),
                        batch.grips.narrow(1, first, kRobotMoments), keep);
    // Else rollouts would make of them what the renderer does not know.
    if (!colours) state.features = state.features.detach();
    states.push_back(state);
  }
  Errors result;
  if (batch.colours.size(2) > 0) result.colour = colour_error(model, states, batch);
  if (batch.truth.defined()) result.flow = flow_error(states, batch);
  return result;
}

at::Tensor ParticleDynamics::Implementation::loss_of(const Errors& errors) const {
  if (!errors.flow.defined()) return learns_colours() ? errors.colour * options.render_loss : errors.colour;
  const at::Tensor flow = errors.flow * options.flow_loss;
  return learns_colours() ? errors.colour * options.render_loss + flow : flow;
}

void check_particle_task_options(const ParticleTaskOptions& o) {
  constexpr std::int64_t kMost = std::int64_t{1} << 20;  // no memory would do for more
  check_hdvpd_options(o.model);
  check(o.batch >= 1 && o.batch <= kMost, "training: batch must be 1 to {}, got {}", kMost, o.batch);
  check(o.rollout >= 1 && o.evaluation_rollout >= 1,
        "training: rollout and evaluation-rollout must be 1 or more, got {} and {}", o.rollout,
        o.evaluation_rollout);
  check(o.rays >= 1 && o.rays <= kMost, "training: rays must be 1 to {}, got {}", kMost, o.rays);
  check(std::isfinite(o.render_loss) && o.render_loss >= 0 && std::isfinite(o.flow_loss) && o.flow_loss >= 0,
        "training: render-loss and flow-loss must be finite and 0 or more, got {} and {}", o.render_loss,
        o.flow_loss);
  check(o.render_loss > 0 || o.flow_loss > 0,
        "training: with render-loss 0 and flow-loss 0 there is nothing to learn; set one of them");
  check(o.pretrain >= 0 && o.double_every >= 0,
        "training: pretrain and double-every must be 0 or more, got {} and {}", o.pretrain, o.double_every);
  check(o.epoch_steps >= 1, "training: epoch-steps must be 1 or more, got {}", o.epoch_steps);
  check(o.validation_every >= 0, "training: validation-every must be 0 or more, got {}", o.validation_every);
  check(o.evaluation_windows >= 1 && o.evaluation_windows <= kMost,
        "training: evaluation-windows must be 1 to {}, got {}", kMost, o.evaluation_windows);
}

ParticleDynamics::ParticleDynamics(const ParticleData& data, const ParticleTaskOptions& o) {
  check_particle_task_options(o);
  implementation_ = std::make_unique<Implementation>(data, o);
}

ParticleDynamics::~ParticleDynamics() = default;

std::vector<NamedParameter> ParticleDynamics::parameters() {
  return module_parameters(implementation_->model);
}

std::int64_t ParticleDynamics::batches_per_epoch() const {
  return implementation_->options.epoch_steps;
}

std::int64_t ParticleDynamics::batch_size() const {
  return implementation_->options.batch;
}

RanksPtr ParticleDynamics::ranks() const {
  return implementation_->options.ranks;
}

void ParticleDynamics::start_epoch(std::int64_t epoch, std::int64_t batch) {
  implementation_->step = epoch * implementation_->options.epoch_steps + batch;
}

Task::Loss ParticleDynamics::loss() {
  Implementation& self = *implementation_;
  self.data_clock.start();
  const std::int64_t step = self.step++;
  const bool ahead = self.ahead.valid() && self.ahead_step == step;
  const ParticleBatch batch = (ahead ? self.ahead.get() : self.training_batch(step)).to(self.options.device);
  if (!self.options.device.is_cpu()) {
    // While the device computes, the host prepares the next batch, a function of its step.
    self.ahead_step = step + 1;
    self.ahead = std::async(std::launch::async,
                            [&self, next = step + 1] { return self.training_batch(next).pinned(); });
  }
  self.data_clock.stop();
  const Implementation::Errors errors = self.errors(batch);
  Loss result;
  result.share =
      static_cast<double>(self.own_to() - self.own_from()) / static_cast<double>(self.options.batch);
  if (errors.colour.defined()) {
    // The score of the whole batch, on every rank: means of decibels would be another.
    const at::Tensor own = errors.colour.detach();
    const at::Tensor whole = result.share == 1 ? own : self.options.ranks->sum(own * result.share, "losses");
    result.accuracy = -10 * at::log10(whole.clamp_min(1e-12));
  }
  if (errors.flow.defined()) result.parts = errors.flow.detach().unsqueeze(0);
  result.loss = self.loss_of(errors);
  return result;
}

std::vector<std::string> ParticleDynamics::part_names() const {
  return implementation_->learns_flow() ? std::vector<std::string>{"flow"} : std::vector<std::string>{};
}

double ParticleDynamics::take_data_seconds() {
  return implementation_->data_clock.take_seconds();
}

Evaluation ParticleDynamics::evaluate() {
  const at::NoGradGuard no_grad;
  Implementation& self = *implementation_;
  const std::vector<ParticleWindow> windows = self.evaluation_windows();
  const auto each = static_cast<std::size_t>(self.options.batch);
  const Ranks& ranks = *self.options.ranks;
  // Each rank takes some of the batches; all add up the same numbers in the order of batches, as one alone
  // would.
  const auto batches = static_cast<std::int64_t>((windows.size() + each - 1) / each);
  at::Tensor sums = at::zeros({batches, 2}, at::kDouble);  // of colours, of flow
  for (std::size_t begin = 0; begin < windows.size(); begin += each) {
    const std::size_t number = begin / each;
    if (number % static_cast<std::size_t>(ranks.size()) != static_cast<std::size_t>(ranks.rank())) continue;
    const std::size_t end = std::min(windows.size(), begin + each);
    const std::vector<ParticleWindow> part(windows.begin() + static_cast<std::ptrdiff_t>(begin),
                                           windows.begin() + static_cast<std::ptrdiff_t>(end));
    const ParticleBatch batch = self.data.batch(
        part,
        {.rollout = self.options.evaluation_rollout, .rays = self.options.rays, .truth = self.learns_flow()},
        derive_seed(self.evaluation_seed(), begin));
    const Implementation::Errors errors = self.errors(batch.to(self.options.device));
    double* own = sums.data_ptr<double>() + 2 * number;
    own[0] = errors.colour.item<double>() * static_cast<double>(end - begin);
    if (errors.flow.defined()) own[1] = errors.flow.item<double>() * static_cast<double>(end - begin);
  }
  sums = ranks.sum(sums, "the evaluation").contiguous();
  const auto count = static_cast<std::int64_t>(windows.size());
  double mean[2] = {0, 0};
  for (std::int64_t i = 0; i < sums.numel(); ++i)
    mean[i % 2] += sums.const_data_ptr<double>()[i] / static_cast<double>(count);
  if (!self.learns_flow()) return {mean[0] * self.options.render_loss, decibels(mean[0]), count, {}};
  return {mean[0] * self.options.render_loss + mean[1] * self.options.flow_loss,
          decibels(mean[0]),
          count,
          {mean[1]}};
}

at::Tensor ParticleDynamics::tokens(const ParticleWindow& window, const at::Tensor& points) const {
  const Implementation& self = *implementation_;
  const std::int64_t steps = points.size(0);
  const ParticleBatch batch =
      self.data.batch({window}, {.rollout = steps, .rays = 0}, self.evaluation_seed());
  const at::Tensor seen = batch.positions[0], seen_past = batch.past_positions[0];
  std::vector<at::Tensor> of_steps;
  for (std::int64_t step = 0; step < steps; ++step) {
    const at::Tensor now = step == 0 ? seen : points[step - 1], before = step < 2 ? seen : points[step - 2];
    const at::Tensor past = step == 0 ? seen_past : before.narrow(0, 0, seen_past.size(0));
    const at::Tensor robot = batch.robot[0].narrow(0, step, kRobotMoments).reshape({-1, 3});
    of_steps.push_back(at::cat({now, past, robot}));
  }
  return at::stack(of_steps);
}

void ParticleDynamics::set_training(bool training) {
  implementation_->model->train(training);
}

std::int64_t ParticleDynamics::num_parameters() const {
  return implementation_->model->num_parameters();
}

std::int64_t ParticleDynamics::rollout_at(std::int64_t step) const {
  return implementation_->rollout_at(step);
}

}  // namespace topomask
