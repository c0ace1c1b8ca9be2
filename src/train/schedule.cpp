#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"
#include "topomask/train.h"

namespace topomask {

double schedule_factor(std::int64_t step, std::int64_t steps, std::int64_t warmup, double final_fraction) {
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (steps <= warmup) return 1;
  const double passed = static_cast<double>(step - warmup) / static_cast<double>(steps - warmup);
  return final_fraction + (1 - final_fraction) * 0.5 * (1 + std::cos(std::numbers::pi * passed));
}

double schedule_factor(const TrainOptions& options, std::int64_t step, std::int64_t steps,
                       std::int64_t warmup) {
  const double final_fraction = options.final_learning_rate / options.learning_rate;
  if (options.restart_step > 0) {
    if (step < options.restart_step) {
      steps = std::min(steps, options.restart_step);
    } else {
      step -= options.restart_step;
      steps -= options.restart_step;
    }
  }
  if (options.drop_step == 0) return schedule_factor(step, steps, warmup, final_fraction);
  return schedule_factor(step, steps, warmup, 1) * (step < options.drop_step ? 1 : final_fraction);
}

void check_train_options(const TrainOptions& o) {
  check(o.epochs >= 1, "training: epochs must be 1 or more, got {}", o.epochs);
  check(o.learning_rate > 0 && std::isfinite(o.learning_rate),
        "training: learning-rate must be positive and finite, got {}", o.learning_rate);
  check(o.final_learning_rate >= 0 && o.final_learning_rate <= o.learning_rate,
        "training: final-learning-rate must lie between 0 and the learning rate {}, got {}", o.learning_rate,
        o.final_learning_rate);
  check(o.mask_learning_rate >= 0, "training: mask-learning-rate must be 0 or more, got {}",
        o.mask_learning_rate);
  check(o.warmup_epochs >= 0, "training: warmup-epochs must be 0 or more, got {}", o.warmup_epochs);
  check(o.drop_step >= 0, "training: drop-step must be 0 or more, got {}", o.drop_step);
  check(o.restart_step >= 0, "training: restart-step must be 0 or more, got {}", o.restart_step);
  check(o.weight_decay >= 0, "training: weight-decay must be 0 or more, got {}", o.weight_decay);
  check(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1,
        "training: beta1 and beta2 must lie in [0, 1), got {} and {}", o.beta1, o.beta2);
  check(o.clip_norm >= 0, "training: clip-norm must be 0 or more, got {}", o.clip_norm);
  check(o.accumulate >= 1, "training: accumulate must be 1 or more, got {}", o.accumulate);
  check(o.ema >= 0 && o.ema < 1, "training: ema must lie in [0, 1), got {}", o.ema);
  check(o.evaluate_every >= 1, "training: evaluate-every must be 1 or more, got {}", o.evaluate_every);
  check(o.log_every >= 1, "training: log-every must be 1 or more, got {}", o.log_every);
  check(o.checkpoint_seconds >= 0, "training: checkpoint-seconds must be 0 or more, got {}",
        o.checkpoint_seconds);
  check(o.checkpoint_steps >= 0, "training: checkpoint-steps must be 0 or more, got {}", o.checkpoint_steps);
}

}  // namespace topomask
