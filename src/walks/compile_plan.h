// Options as users give them -> plan as kernels want it.
#pragma once

#include "topomask/walks.h"
#include "walks/cpu/walk_plan.h"

namespace topomask {

inline constexpr int kMaxHops = 32767;  // counters of random draws hold a hop in 15 bits

WalkPlan compile_plan(const WalkOptions& options, bool importance_weights, bool need_loads);

}  // namespace topomask
