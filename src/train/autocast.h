// bfloat16 products on a GPU for as long as a scope lives.
#pragma once

#include <ATen/autocast_mode.h>

namespace topomask {

// The cache of converted weights must not outlive an optimiser's step: it goes with the outermost scope.
class AutocastScope {
 public:
  explicit AutocastScope(bool enabled)
      : enabled_(enabled), before_(at::autocast::is_autocast_enabled(at::kCUDA)) {
    if (!enabled_) return;
    at::autocast::set_autocast_enabled(at::kCUDA, true);
    at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~AutocastScope() {
    if (!enabled_) return;
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCUDA, before_);
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool enabled_, before_;
};

}  // namespace topomask
