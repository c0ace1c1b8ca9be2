#include <ATen/core/grad_mode.h>
#include <torch/types.h>

#include <chrono>
#include <cmath>
#include <filesystem>

#include "core/check.h"
#include "core/hash.h"
#include "core/random.h"
#include "topomask/distributed.h"
#include "topomask/train.h"
#include "train/adam.h"
#include "train/autocast.h"
#include "train/averaged_weights.h"
#include "train/checkpoint_file.h"
#include "train/gradient_reducer.h"
#include "train/metrics.h"
#include "train/run_state.h"

namespace topomask {

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool uses_autocast(const TrainOptions& options) {
  return options.bf16 && options.device.is_cuda();
}

// Every number is better than NaN.
bool is_better(double merit, double best) {
  return merit > best || (std::isnan(best) && !std::isnan(merit));
}

}  // namespace

RanksPtr Task::ranks() const {
  return Ranks::alone();
}

Evaluation evaluate(Task& task, const TrainOptions& options) {
  const AutocastScope scope(uses_autocast(options));
  const at::NoGradGuard no_grad;
  task.set_training(false);
  Evaluation result = task.evaluate();
  for (double* number : {&result.loss, &result.accuracy})
    if (std::isnan(*number))
      *number = std::abs(*number);  // the sign of a NaN means nothing, and would be printed
  return result;
}

struct Trainer::Implementation {
  Implementation(Task& given, const TrainOptions& given_options, std::string given_folder,
                 std::map<std::string, std::string> given_description)
      : task(given),
        options(given_options),
        folder(std::move(given_folder)),
        description(std::move(given_description)),
        ranks(task.ranks()),
        parameters(task.parameters()),
        reducer(parameters, ranks),
        optimizer(parameters, options),
        averages(parameters, options.ema),
        metrics(path(kMetricsFile)),
        part_names(task.part_names()),
        pending(at::zeros({kFirstPart + static_cast<std::int64_t>(part_names.size())},
                          at::TensorOptions().dtype(at::kDouble).device(options.device))) {
    check_train_options(options);
    steps_per_epoch = task.batches_per_epoch() / options.accumulate;
    check(
        steps_per_epoch >= 1,
        "training: an epoch has {} batches of {}, which is less than one step of {} batches; make the batch "
        "smaller",
        task.batches_per_epoch(), task.batch_size(), options.accumulate);
    state.steps = options.epochs * steps_per_epoch;
    warmup_steps = std::llround(options.warmup_epochs * static_cast<double>(steps_per_epoch));
  }

  std::string path(const char* name) const { return (std::filesystem::path(folder) / name).string(); }
  std::int64_t epochs_done() const { return state.step / steps_per_epoch; }
  bool is_first() const { return ranks->rank() == 0; }

  double schedule() const { return schedule_factor(options, state.step, state.steps, warmup_steps); }
  // What the optimiser counts: steps since it began, or began anew.
  std::int64_t optimizer_steps() const {
    return state.step > options.restart_step ? state.step - options.restart_step : state.step;
  }

  bool resume(const MetadataCheck& accept);
  bool load(const MetadataCheck& accept);
  std::map<std::string, at::Tensor> checkpoint_tensors() const;
  void share_state();
  void check_same_weights() const;
  TrainResult run(const TrainCallbacks& callbacks);
  void train_step();
  template <class Work>
  auto finite(const Work& work) const;
  [[noreturn]] void diverged(const std::string& what, const char* when) const;
  void read_pending();
  void add_means(Json& line, const StepSums& sums) const;
  void log_step();
  void end_epoch(const TrainCallbacks& callbacks);
  void report_progress(const TrainCallbacks& callbacks);
  void save();
  void write_best();
  void write_last();
  struct Wishes {
    bool stop = false, save = false;
  };
  Wishes agree(const Wishes& own) const;
  TrainResult result(TrainOutcome outcome) const;

  Task& task;
  TrainOptions options;
  std::string folder;
  std::map<std::string, std::string> description;
  RanksPtr ranks;
  std::vector<NamedParameter> parameters;
  GradientReducer reducer;
  Adam optimizer;
  AveragedWeights averages;
  MetricsFile metrics;
  std::vector<std::string> part_names;
  RunState state;
  std::int64_t steps_per_epoch = 0, warmup_steps = 0;

  // Loss, accuracy, gradient norm, number of steps that went wrong and parts of the loss, summed on the
  // device: reading them makes a GPU wait, so it is done now and then.
  static constexpr std::int64_t kFirstPart = 4;
  at::Tensor pending;
  std::int64_t pending_steps = 0, pending_scored = 0, pending_divided = 0;
  double gradient_norm = 0, recent_loss = 0;

  std::map<std::string, at::Tensor> best_weights;  // not yet written
  Clock::time_point session_start, saved_at, epoch_start;
  double seconds_before = 0;  // of earlier sessions
  std::int64_t session_first_step = 0, epoch_first_step = 0;
  std::int64_t saved_step = -1;
};

// The first rank reads the checkpoint, for all.
bool Trainer::Implementation::resume(const MetadataCheck& accept) {
  bool found = false;
  ranks->together_patiently("the checkpoint", [&] { found = is_first() && load(accept); });
  found = ranks->from_first(at::scalar_tensor(found, at::kLong), "the checkpoint").item<bool>();
  if (!found) return false;
  share_state();
  saved_step = state.step;
  return true;
}

bool Trainer::Implementation::load(const MetadataCheck& accept) {
  const std::string file_path = path(kLastCheckpoint);
  if (!std::filesystem::exists(file_path)) return false;
  const SafetensorsFile file = read_checkpoint(file_path);
  const auto found = file.metadata.find(kStateKey);
  check(found != file.metadata.end(), "{}: not a checkpoint to resume from (it has no state)", file_path);
  const RunState loaded = RunState::from_json(found->second, file_path);
  if (accept) {
    accept(file.metadata, file_path);
  } else {
    for (const auto& [key, value] : description) {
      const auto saved = file.metadata.find(key);
      check(saved != file.metadata.end() && saved->second == value,
            "{}: a run resumes with its own model and data, but its {} is {} there and {} here", file_path,
            key, saved == file.metadata.end() ? "missing" : saved->second, value);
    }
  }
  check(loaded.steps == state.steps,
        "{}: the run has a schedule of {} steps, these options and data make {}; a run resumes with its own",
        file_path, loaded.steps, state.steps);
  load_parameters(file.tensors, file_path, "", parameters);
  state = loaded;
  optimizer.load(file, file_path, optimizer_steps());
  averages.load(file, file_path);
  metrics.keep_until(state.step);
  return true;
}

// All that a checkpoint keeps: weights, moments, averages. Not copies.
std::map<std::string, at::Tensor> Trainer::Implementation::checkpoint_tensors() const {
  std::map<std::string, at::Tensor> tensors;
  for (const NamedParameter& parameter : parameters) tensors[parameter.name] = parameter.tensor.detach();
  optimizer.save(tensors);
  averages.save(tensors);
  return tensors;
}

// Every rank goes on from what the first one has.
void Trainer::Implementation::share_state() {
  if (ranks->size() == 1) return;
  state = RunState::from_json(ranks->from_first(state.to_json(), "the state of the run"), folder);
  optimizer.set_steps_done(optimizer_steps());
  for (auto& [name, tensor] : checkpoint_tensors()) tensor.copy_(ranks->from_first(tensor, name));
}

// Sums of gradients have the same bits on all ranks, and so must all that follows from them.
void Trainer::Implementation::check_same_weights() const {
  if (ranks->size() == 1) return;
  Hash64 hash;
  for (const NamedParameter& parameter : parameters) {
    const at::Tensor values = parameter.tensor.detach().cpu().contiguous();
    hash.add(std::string_view(static_cast<const char*>(values.const_data_ptr()), values.nbytes()));
  }
  const at::Tensor own = at::scalar_tensor(static_cast<std::int64_t>(hash.value()), at::kLong);
  const at::Tensor all = ranks->all_gather(own, "hashes of the weights");
  for (std::int64_t r = 1; r < ranks->size(); ++r) {
    check(all[r].item<std::int64_t>() == all[0].item<std::int64_t>(),
          "training: after step {} of {} the weights of rank {} differ from those of rank 0; all ranks need "
          "the same program, kind of machine and number of threads",
          state.step, state.steps, r);
  }
}

void Trainer::Implementation::diverged(const std::string& what, const char* when) const {
  throw Diverged(fmt::format(
      "training: {} {} step {} of {}; {}. A smaller learning-rate than {} or a longer warm-up may help", what,
      when, state.step, state.steps,
      saved_step >= 0 ? fmt::format("{} of step {} is kept", path(kLastCheckpoint), saved_step)
                      : std::string("there is no checkpoint yet"),
      options.learning_rate));
}

// Where a part of the model refuses its input, the weights are to blame, unless they are still the first
// ones.
template <class Work>
auto Trainer::Implementation::finite(const Work& work) const {
  try {
    return work();
  } catch (const NotFinite& error) {
    if (state.step == 0) throw;
    diverged(fmt::format("the model has diverged ({})", error.what()), "after");
  }
}

void Trainer::Implementation::train_step() {
  // What is random in the model (dropout) depends on the step alone.
  at::manual_seed(derive_seed(options.seed, static_cast<std::uint64_t>(state.step)));
  if (options.restart_step > 0 && state.step == options.restart_step) optimizer.restart();
  const double share = 1 / static_cast<double>(options.accumulate);
  at::Tensor loss_sum = at::zeros({}, pending.options()), accuracy_sum = at::zeros({}, pending.options());
  at::Tensor part_sums = at::zeros({static_cast<std::int64_t>(part_names.size())}, pending.options());
  bool scored = false, divided = false;
  for (std::int64_t part = 0; part < options.accumulate; ++part) {
    Task::Loss out;
    {
      const AutocastScope scope(uses_autocast(options));
      out = finite([&] { return task.loss(); });
    }
    if (part + 1 == options.accumulate) reducer.start();
    const double weight = share * out.share;
    (weight == 1 ? out.loss : out.loss * weight).backward();
    loss_sum.add_(out.loss.detach(), weight);
    if (out.accuracy.defined()) accuracy_sum.add_(out.accuracy, weight);
    if (out.parts.defined()) part_sums.add_(out.parts, weight);
    scored = out.accuracy.defined();
    divided = out.parts.defined();
  }
  reducer.finish();
  if (ranks->size() > 1) {
    const at::Tensor sums =
        ranks->sum(at::cat({at::stack({loss_sum, accuracy_sum}), part_sums}).cpu(), "losses");
    loss_sum.copy_(sums[0]);
    accuracy_sum.copy_(sums[1]);
    part_sums.copy_(sums.narrow(0, 2, part_sums.size(0)));
  }
  const at::Tensor norm = optimizer.clip_gradients();
  optimizer.step(schedule());
  optimizer.clear_gradients();
  averages.update(state.step);
  const at::Tensor wrong = (loss_sum.isfinite() & norm.isfinite()).logical_not().to(at::kDouble);
  at::Tensor found = at::stack({loss_sum, accuracy_sum, norm.to(at::kDouble), wrong});
  if (!part_names.empty()) found = at::cat({found, part_sums});
  pending.add_(found);
  ++pending_steps;
  if (scored) ++pending_scored;
  if (divided) ++pending_divided;
  ++state.step;
}

void Trainer::Implementation::read_pending() {
  if (pending_steps == 0) return;
  const at::Tensor sums = pending.to(at::kCPU);
  const double* values = sums.const_data_ptr<double>();
  if (values[3] != 0)
    diverged("the loss or its gradient is not a number", pending_steps == 1 ? "at" : "at or shortly before");
  for (StepSums* target : {&state.epoch, &state.interval}) {
    target->loss += values[0];
    target->accuracy += values[1];
    target->steps += pending_steps;
    target->scored += pending_scored;
    target->divided += pending_divided;
    target->parts.resize(part_names.size());
    for (std::size_t i = 0; i < part_names.size(); ++i)
      target->parts[i] += values[static_cast<std::size_t>(kFirstPart) + i];
  }
  gradient_norm = values[2] / static_cast<double>(pending_steps);
  recent_loss = values[0] / static_cast<double>(pending_steps);
  pending.zero_();
  pending_steps = pending_scored = pending_divided = 0;
}

void Trainer::Implementation::add_means(Json& line, const StepSums& sums) const {
  line["train_loss"] = sums.mean_loss();
  if (sums.scored > 0) line["train_" + task.score_name()] = sums.mean_accuracy();
  for (std::size_t i = 0; i < part_names.size() && sums.divided > 0; ++i)
    line["train_" + part_names[i]] = sums.mean_part(i);
}

void Trainer::Implementation::log_step() {
  Json line = {{"kind", "step"},
               {"step", state.step},
               {"epoch", static_cast<double>(state.step) / static_cast<double>(steps_per_epoch)}};
  add_means(line, state.interval);
  line["gradient_norm"] = gradient_norm;
  line["learning_rate"] = options.learning_rate * schedule();
  if (is_first()) metrics.append(line);
  state.interval = {};
}

void Trainer::Implementation::end_epoch(const TrainCallbacks& callbacks) {
  const std::int64_t epoch = epochs_done();
  const double train_seconds = seconds_since(epoch_start), data_seconds = task.take_data_seconds();
  const std::int64_t samples = (state.step - epoch_first_step) * options.accumulate * task.batch_size();
  const bool evaluates = epoch % options.evaluate_every == 0 || state.step == state.steps;
  check_same_weights();
  const auto evaluation_start = Clock::now();
  if (evaluates) {
    const AveragedWeights::Scope averaged(averages);
    state.last = finite([&] { return evaluate(task, options); });
    task.set_training(true);
    if (state.best_epoch == 0 || is_better(task.merit(state.last), task.merit(state.best))) {
      state.best = state.last;
      state.best_epoch = epoch;
      for (const NamedParameter& parameter : parameters) {
        if (is_first()) best_weights[parameter.name] = parameter.tensor.detach().clone();
      }
    }
  }
  Json line = {{"kind", "epoch"}, {"step", state.step}, {"epoch", epoch}};
  add_means(line, state.epoch);
  line["learning_rate"] = options.learning_rate * schedule();
  if (evaluates) {
    line["loss"] = state.last.loss;
    line[task.score_name()] = state.last.accuracy;
    for (std::size_t i = 0; i < state.last.parts.size(); ++i) line[part_names[i]] = state.last.parts[i];
    line["evaluation_seconds"] = seconds_since(evaluation_start);
  }
  const double rate = static_cast<double>(samples) / std::max(train_seconds, 1e-9);
  line["train_seconds"] = train_seconds;
  line["data_seconds"] = data_seconds;  // of train_seconds
  line["samples_per_second"] = rate;
  line["seconds"] = seconds_before + seconds_since(session_start);
  if (is_first()) metrics.append(line);
  if (callbacks.epoch_done) {
    const std::string score = task.score_name();
    std::string text =
        fmt::format("epoch {:>3}/{}  train loss {:.4f}", epoch, options.epochs, state.epoch.mean_loss());
    if (state.epoch.scored > 0) text += fmt::format("  {} {:.4f}", score, state.epoch.mean_accuracy());
    if (evaluates)
      text +=
          fmt::format("  |  validation loss {:.4f}  {} {:.4f}", state.last.loss, score, state.last.accuracy);
    callbacks.epoch_done(text + fmt::format("  |  {:.0f} {}/s, data {:.1f} %", rate, task.sample_name(),
                                            100 * data_seconds / std::max(train_seconds, 1e-9)));
  }
  state.epoch = {};
  epoch_start = Clock::now();
  epoch_first_step = state.step;
}

void Trainer::Implementation::report_progress(const TrainCallbacks& callbacks) {
  if (!callbacks.progress) return;
  const double rate =
      static_cast<double>((state.step - session_first_step) * options.accumulate * task.batch_size()) /
      std::max(seconds_since(session_start), 1e-9);
  callbacks.progress(
      state.step, state.steps,
      fmt::format("epoch {}/{}  loss {:.3f}  {:.0f} {}/s", std::min(epochs_done() + 1, options.epochs),
                  options.epochs, recent_loss, rate, task.sample_name()));
}

void Trainer::Implementation::write_best() {
  if (best_weights.empty()) return;
  SafetensorsFile file{best_weights, description};
  file.metadata["epoch"] = std::to_string(state.best_epoch);
  file.metadata[task.score_name()] = fmt::format("{}", state.best.accuracy);
  file.metadata["loss"] = fmt::format("{}", state.best.loss);
  write_safetensors(path(kBestCheckpoint), file);
  best_weights.clear();
}

void Trainer::Implementation::write_last() {
  SafetensorsFile file{checkpoint_tensors(), description};
  file.metadata[kStateKey] = state.to_json();
  write_safetensors(path(kLastCheckpoint), file);
}

// Only steps whose losses have been seen to be numbers are saved. The best weights go first: a run that dies
// between the two files meets them again and writes the same.
void Trainer::Implementation::save() {
  read_pending();
  check_same_weights();
  state.seconds = seconds_before + seconds_since(session_start);
  ranks->together_patiently("the checkpoint", [&] {
    if (!is_first()) return;
    write_best();
    write_last();
  });
  saved_step = state.step;
  saved_at = Clock::now();
}

// Whether to stop and whether to save: what any of the ranks wishes.
Trainer::Implementation::Wishes Trainer::Implementation::agree(const Wishes& own) const {
  if (ranks->size() == 1) return own;
  at::Tensor wishes = at::zeros({2}, at::kLong);
  wishes[0].fill_(own.stop ? 1 : 0);
  wishes[1].fill_(own.save ? 1 : 0);
  wishes = ranks->largest(wishes, "requests to stop");
  return {wishes[0].item<std::int64_t>() != 0, wishes[1].item<std::int64_t>() != 0};
}

TrainResult Trainer::Implementation::result(TrainOutcome outcome) const {
  TrainResult result;
  result.outcome = outcome;
  result.step = state.step;
  result.steps = state.steps;
  result.epoch = epochs_done();
  result.last = state.last;
  result.best = state.best;
  result.best_epoch = state.best_epoch;
  result.seconds = state.seconds;
  return result;
}

TrainResult Trainer::Implementation::run(const TrainCallbacks& callbacks) {
  session_start = saved_at = epoch_start = Clock::now();
  seconds_before = state.seconds;
  session_first_step = epoch_first_step = state.step;
  if (saved_step < 0) share_state();
  if (callbacks.started && state.step < state.steps) callbacks.started(state.step, state.steps);
  if (state.step == 0 && is_first()) metrics.clear();
  task.set_training(true);
  bool entering = true;
  while (state.step < state.steps) {
    const std::int64_t in_epoch = state.step % steps_per_epoch;
    if (entering || in_epoch == 0) task.start_epoch(epochs_done(), in_epoch * options.accumulate);
    entering = false;
    train_step();
    const bool log = state.step % options.log_every == 0;
    const bool epoch_ends = state.step % steps_per_epoch == 0;
    if (log || epoch_ends || options.device.is_cpu()) read_pending();
    if (log) log_step();
    if (epoch_ends) end_epoch(callbacks);
    report_progress(callbacks);
    if (state.step == state.steps) break;
    const Wishes wishes =
        agree({.stop = callbacks.should_stop && callbacks.should_stop(),
               .save = (options.checkpoint_steps > 0 && state.step % options.checkpoint_steps == 0) ||
                       (is_first() && seconds_since(saved_at) >= options.checkpoint_seconds)});
    if (wishes.stop || wishes.save) save();
    if (wishes.stop) return result(TrainOutcome::stopped);
  }
  if (saved_step != state.step) save();
  averages.hand_over();
  return result(TrainOutcome::finished);
}

Trainer::Trainer(Task& task, const TrainOptions& options, std::string folder,
                 std::map<std::string, std::string> description)
    : implementation_(
          std::make_unique<Implementation>(task, options, std::move(folder), std::move(description))) {}

Trainer::~Trainer() = default;

bool Trainer::resume(const MetadataCheck& accept) {
  return implementation_->resume(accept);
}

TrainResult Trainer::run(const TrainCallbacks& callbacks) {
  return implementation_->run(callbacks);
}

}  // namespace topomask
