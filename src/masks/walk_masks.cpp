// Masks of walks by their names: what their settings mean, here and over ranks.
#include "core/check.h"
#include "core/random.h"
#include "masks/mask_makers.h"
#include "topomask/grf_mask.h"
#include "topomask/mask_size.h"
#include "walks/compile_plan.h"

namespace topomask {

namespace {

FeatureOptions feature_options(const MaskOrder& order) {
  FeatureOptions options;
  WalkOptions& walks = options.walks;
  walks.num_walks = order.integer("num_walks");
  walks.p_halt = order.real("p_halt");
  walks.step = order.word<StepLaw>("step");
  walks.coupling = order.word<Coupling>("coupling");
  walks.seed = order.seed();
  const std::string length = order.text("length");
  parse_length(walks, begins_with_number(length) ? "survival:" + length : length, order.label("length"));
  const bool follows = walks.length == LengthLaw::survival && !order.is_given("max_hops");
  const std::int64_t hops = follows ? static_cast<std::int64_t>(walks.survival.size()) - 1
                                    : order.integer_or_size("max_hops", "f", -1, 1);
  check(hops >= 0 && hops <= kMaxHops, "{}: max_hops must be between 0 and {}, got {}", order.owner(),
        kMaxHops, hops);
  walks.max_hops = static_cast<int>(hops);
  options.ensembles = order.word<Ensembles>("ensembles");
  options.importance_weights = order.flag("importance_weights");
  check_walk_options(walks);
  return options;
}

bool has_one_set_of_walks(const MaskOrder& order) {
  return order.flag("shared_walks") || order.heads() == 1;
}

WalkMaskPlan plan_grf(const MaskOrder& order) {
  WalkMaskPlan plan;
  plan.features = feature_options(order);
  plan.f = order.modulations(plan.features.walks.max_hops, plan.features.ensembles != Ensembles::asymmetric);
  plan.normalisation = order.normalisation();
  if (has_one_set_of_walks(order) && !order.flag("shared_walks"))
    plan.features.walks.seed = derive_seed(plan.features.walks.seed, 0);
  plan.per_head = !has_one_set_of_walks(order);
  return plan;
}

}  // namespace

MaskPtr make_grf(const MaskOrder& order) {
  const WalkMaskPlan plan = plan_grf(order);
  if (plan.per_head) return GrfMask::per_head(order.normalised(), plan.features, plan.f);
  return std::make_shared<GrfMask>(order.normalised(), plan.features, plan.f);
}

std::string mask_advice(const MaskRequest& request) {
  constexpr std::int64_t kFewNodes = 4096;  // whose masks are never large
  const MaskEntry& entry = find_mask_entry(request.mask);
  if (entry.make != make_grf) return "";
  const MaskOrder order(entry.info, request);
  const FeatureOptions options = feature_options(order);
  if (options.ensembles == Ensembles::asymmetric || order.num_nodes() <= kFewNodes) return "";
  MaskSizeOptions limits;
  limits.heads = order.heads();
  return predict_mask_size(order.normalised(), options, limits).advice;
}

WalkMaskPlan plan_walk_mask(MaskRequest request) {
  const MaskEntry& entry = find_mask_entry(request.mask);
  check(entry.make == make_grf,
        "mask '{}': is not made of walks; over ranks there are grf, grf-asymmetric and ad-hoc", request.mask);
  if (!request.graph) request.graph = Graph();
  const MaskOrder order(entry.info, request);
  return plan_grf(order);
}

}  // namespace topomask
