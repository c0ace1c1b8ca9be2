#include "topomask/walks.h"

#include <ATen/ops/empty.h>

#include <cmath>

#include "core/check.h"
#include "core/numbers.h"
#include "walks/compile_plan.h"
#include "walks/cpu/sample.h"
#include "walks/gpu.h"

namespace topomask {

namespace {
// The counter of a repelling draw holds (hop, block of offsets) in 15 + 17 bits; see RepellingGroup.
constexpr std::int64_t kMaxWalks = std::int64_t{1} << 19;
}  // namespace

void check_walk_options(const WalkOptions& options) {
  check(options.num_walks >= 1 && options.num_walks <= kMaxWalks,
        "walks: num_walks must be between 1 and {}, got {}", kMaxWalks, options.num_walks);
  check(options.max_hops >= 0 && options.max_hops <= kMaxHops,
        "walks: max_hops must be between 0 and {}, got {}", kMaxHops, options.max_hops);
  check(options.ensemble < (1u << 30), "walks: ensemble must be below 2^30, got {}", options.ensemble);
  if (options.length == LengthLaw::geometric) {
    check(options.p_halt >= 0 && options.p_halt <= 1, "walks: p_halt must be between 0 and 1, got {}",
          options.p_halt);
  }
  if (options.coupling == Coupling::antithetic || options.coupling == Coupling::both) {
    check(options.num_walks % 2 == 0,
          "walks: num_walks must be even, because antithetic coupling pairs the walkers, got {}",
          options.num_walks);
  }
  if (options.length == LengthLaw::survival) {
    const std::vector<double>& survival = options.survival;
    check(static_cast<std::int64_t>(survival.size()) == options.max_hops + 1,
          "walks: length: the survival function needs max_hops + 1 = {} values S(0)..S(max_hops), got {}",
          options.max_hops + 1, survival.size());
    check(survival[0] == 1, "walks: length: the survival function must start with S(0) = 1, got {}",
          survival[0]);
    for (std::size_t k = 1; k < survival.size(); ++k) {
      check(survival[k] >= 0 && survival[k] <= survival[k - 1],
            "walks: length: the survival function must not increase nor be negative, got S({}) = {} after "
            "S({}) = {}",
            k, survival[k], k - 1, survival[k - 1]);
    }
  }
}

void parse_length(WalkOptions& options, std::string_view text, std::string_view what) {
  constexpr std::string_view kSurvival = "survival:";
  if (text.starts_with(kSurvival)) {
    options.length = LengthLaw::survival;
    options.survival = parse_numbers(text.substr(kSurvival.size()), what);
    return;
  }
  options.length = parse_word<LengthLaw>(what, text);
  check(options.length != LengthLaw::survival, "{}: expected survival:S0,S1,..., got '{}'", what, text);
}

std::vector<double> survival_function(const WalkOptions& options) {
  check_walk_options(options);
  if (options.length == LengthLaw::survival) return options.survival;
  std::vector<double> survival(static_cast<std::size_t>(options.max_hops) + 1, 1.0);
  if (options.length == LengthLaw::geometric) {
    for (std::size_t k = 1; k < survival.size(); ++k) survival[k] = survival[k - 1] * (1 - options.p_halt);
  }
  return survival;
}

WalkPlan compile_plan(const WalkOptions& options, bool importance_weights, bool need_loads) {
  check_walk_options(options);
  WalkPlan plan;
  plan.num_walks = options.num_walks;
  plan.antithetic = options.coupling == Coupling::antithetic || options.coupling == Coupling::both;
  plan.repelling = options.coupling == Coupling::repelling || options.coupling == Coupling::both;
  plan.weighted_steps = options.step == StepLaw::weighted;
  plan.importance_weights = importance_weights;
  plan.need_loads = need_loads;
  plan.key0 = static_cast<std::uint32_t>(options.seed);
  plan.key1 = static_cast<std::uint32_t>(options.seed >> 32);
  plan.ensemble = options.ensemble;
  plan.always_max = true;
  for (int hop = 0; hop < options.max_hops; ++hop) {
    double go_on = 1;  // S(hop+1) / S(hop)
    if (options.length == LengthLaw::geometric) go_on = 1 - options.p_halt;
    if (options.length == LengthLaw::survival) go_on = options.survival[hop + 1] / options.survival[hop];
    const double threshold = std::round((1 - go_on) * 0x1p32);
    if (threshold >= 0x1p32) break;  // nobody gets past this hop
    plan.halt_below.push_back(static_cast<std::uint32_t>(threshold));
    plan.inverse_continue.push_back(importance_weights ? static_cast<float>(1 / go_on) : 1.0f);
    plan.always_max = plan.always_max && plan.halt_below.back() == 0;
    ++plan.max_hops;
  }
  return plan;
}

at::Tensor sample_walks(const Graph& graph, const WalkOptions& options) {
  const WalkPlan plan = compile_plan(options, false, false);
  if (graph.row_ptr.is_cuda()) return sample_walks_cuda(graph, plan, options.max_hops);
  at::Tensor paths = at::empty({graph.num_nodes(), options.num_walks, options.max_hops + 1}, at::kInt);
  sample_paths(graph.view(), plan, options.max_hops, paths.data_ptr<std::int32_t>());
  return paths;
}

}  // namespace topomask
