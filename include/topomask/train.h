// The training loop, independent of models, and the interface (`Task`) through which it sees a model.
//
// Everything random in a step is a function of (seed, step). So a run that is resumed from its last
// checkpoint ends with the same weights, bit for bit on a CPU with the same number of threads.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "topomask/error.h"
#include "topomask/parameters.h"
#include "topomask/words.h"

namespace topomask {

class Ranks;  // topomask/distributed.h
using RanksPtr = std::shared_ptr<const Ranks>;

// A run whose loss or model is no longer finite. Its last checkpoint is from before.
class Diverged : public Error {
 public:
  using Error::Error;
};

struct Evaluation {
  double loss = 0, accuracy = 0;
  std::int64_t count = 0;
  std::vector<double> parts = {};  // of the loss, as Task::part_names() says
};

// A model with its data: what the loop trains.
//
// Several ranks may share a task (data-parallel training). Each has the whole model and computes its part of
// every batch; the loop sums gradients and losses. What is random must then be that of the whole batch.
class Task {
 public:
  virtual ~Task() = default;
  virtual std::vector<NamedParameter> parameters() = 0;
  // Batches per epoch; gradient accumulation takes several of them in a step.
  virtual std::int64_t batches_per_epoch() const = 0;
  virtual std::int64_t batch_size() const = 0;  // of all ranks together
  virtual RanksPtr ranks() const;               // that share it: one, unless it says otherwise
  // The next loss() is of batch `batch` of this epoch.
  virtual void start_epoch(std::int64_t epoch, std::int64_t batch) = 0;
  struct Loss {
    at::Tensor loss;        // scalar, differentiable
    at::Tensor accuracy;    // scalar, or undefined
    double share = 1;       // of the whole batch that these are means over; the shares of all ranks sum to 1
    at::Tensor parts = {};  // [n] of the loss, as part_names() says; undefined: this loss has none
  };
  virtual Loss loss() = 0;
  // Seconds in which start_epoch() and loss() waited for data, since the last call; asked for once per epoch.
  virtual double take_data_seconds() { return 0; }
  // On the whole validation set, without gradients: every rank calls it and gets the same.
  virtual Evaluation evaluate() = 0;
  // What Loss::accuracy and Evaluation::accuracy are (the more the better), and what a batch has many of.
  virtual std::string score_name() const { return "accuracy"; }
  virtual std::string sample_name() const { return "images"; }
  // What decides which weights are the best: the more the better.
  virtual double merit(const Evaluation& evaluation) const { return evaluation.accuracy; }
  // Parts of the loss that metrics tell apart.
  virtual std::vector<std::string> part_names() const { return {}; }
  virtual void set_training(bool training) = 0;
};

enum class OptimizerKind {
  adamw,  // decoupled decay (Loshchilov & Hutter 2019)
  adam,   // decay as a part of the gradient
  sgd,    // with momentum beta1, decay as a part of the gradient
};

template <>
std::span<const Word<OptimizerKind>> words<OptimizerKind>();

struct TrainOptions {
  std::int64_t epochs = 40;
  OptimizerKind optimizer = OptimizerKind::adamw;
  double learning_rate = 1e-3, final_learning_rate = 1e-5;
  double mask_learning_rate = 0;  // of the parameters of masks; 0: as the others
  std::int64_t drop_step = 0;     // > 0: final learning rate after so many steps, no cosine
  // > 0: optimiser and schedule begin anew at this step, where the training turns to something else.
  std::int64_t restart_step = 0;
  double warmup_epochs = 5;
  double weight_decay = 0.05;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double clip_norm = 1;  // of the gradient; 0: not clipped
  std::int64_t accumulate = 1;
  double ema = 0;    // decay of the averaged weights that are evaluated; 0: none
  bool bf16 = true;  // autocast where the device is a GPU
  std::uint64_t seed = 0;
  std::int64_t evaluate_every = 1;    // epochs
  std::int64_t log_every = 50;        // steps
  double checkpoint_seconds = 60;     // between checkpoints, at least
  std::int64_t checkpoint_steps = 0;  // and after every n-th step; 0: by time only
  c10::Device device = c10::Device(c10::kCPU);
};
void check_train_options(const TrainOptions& options);

// Learning rate of step `step` (from 0) of `steps`: linear from 0 to 1 over the warm-up, then half a cosine
// down to `final_fraction`.
double schedule_factor(std::int64_t step, std::int64_t steps, std::int64_t warmup, double final_fraction);
// The schedule of the options: this one, or the one that drops; before and after restart_step one each.
double schedule_factor(const TrainOptions& options, std::int64_t step, std::int64_t steps,
                       std::int64_t warmup);

// The validation set as the loop sees it: without gradients or dropout, in the precision of the options.
Evaluation evaluate(Task& task, const TrainOptions& options);

enum class TrainOutcome { finished, stopped };

struct TrainResult {
  TrainOutcome outcome = TrainOutcome::finished;
  std::int64_t step = 0, steps = 0;
  std::int64_t epoch = 0;  // epochs completed
  Evaluation last, best;
  std::int64_t best_epoch = 0;
  double seconds = 0;  // of training, over all sessions of the run
};

// What a caller may want to see or decide while it runs; of several ranks, each has its own.
struct TrainCallbacks {
  std::function<bool()> should_stop;  // asked after each step; where one rank should, all stop
  // Before the first step; `step` is not 0 where a run is resumed.
  std::function<void(std::int64_t step, std::int64_t steps)> started;
  std::function<void(std::int64_t step, std::int64_t steps, const std::string& status)> progress;
  std::function<void(const std::string& line)> epoch_done;  // one line for people
};

// Looks at the metadata of a checkpoint and throws where the run cannot be resumed; `path` is for its
// sentence.
using MetadataCheck =
    std::function<void(const std::map<std::string, std::string>& metadata, const std::string& path)>;

// One run in a folder: metrics.jsonl, last.safetensors (weights under their own names, and all that is needed
// to resume), best.safetensors (the weights with the most merit in validation). Of several ranks that share a
// task, the first reads and writes the folder; the others need none. All calls are collective then.
class Trainer {
 public:
  // `description` goes into the checkpoints as metadata: what is needed to build the model again.
  Trainer(Task& task, const TrainOptions& options, std::string folder,
          std::map<std::string, std::string> description);
  ~Trainer();

  // Continues from the folder's checkpoint. False where there is none. Its metadata must satisfy `accept`;
  // where that is empty, they must hold this description.
  bool resume(const MetadataCheck& accept = {});
  // Trains to the end of the schedule or until it should stop; both leave a checkpoint. Throws where the loss
  // or the gradient is no longer a number; the last checkpoint is then one from before. A finished run leaves
  // the model with the weights that were judged: the averaged ones, where there is an average.
  TrainResult run(const TrainCallbacks& callbacks = {});

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

inline constexpr const char* kLastCheckpoint = "last.safetensors";
inline constexpr const char* kBestCheckpoint = "best.safetensors";
inline constexpr const char* kMetricsFile = "metrics.jsonl";

}  // namespace topomask
