// Adam, AdamW and SGD with momentum over parameters of different kinds, on torch's fused kernels.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "topomask/train.h"

namespace topomask {

struct SafetensorsFile;

class Adam {
 public:
  Adam(std::vector<NamedParameter> parameters, const TrainOptions& options);

  // One step with the gradients as they are. `factor`: what the schedule makes of every learning rate.
  void step(double factor);
  void clear_gradients();
  // Scales all gradients so that their common norm is at most options.clip_norm. Returns the norm before, a
  // scalar on the device: reading it is left to the caller.
  at::Tensor clip_gradients();

  // Moments under "optimizer.mean.NAME" and "optimizer.square.NAME"; SGD has the former alone, its momentum.
  void save(std::map<std::string, at::Tensor>& tensors) const;
  void load(const SafetensorsFile& file, const std::string& path, std::int64_t steps_done);
  void set_steps_done(std::int64_t steps);
  void restart();  // as if no step had been done

 private:
  // Parameters that share learning rate and decay go through the kernel together.
  struct Group {
    double learning_rate = 0, weight_decay = 0;
    std::vector<NamedParameter> parameters;
    std::vector<at::Tensor> mean, square;
  };
  bool has_squares() const { return options_.optimizer != OptimizerKind::sgd; }

  TrainOptions options_;
  std::vector<Group> groups_;
  at::Tensor step_;  // [1] float32 on the device: steps done
};

}  // namespace topomask
