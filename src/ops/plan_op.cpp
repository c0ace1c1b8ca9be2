// The planner, for masks that live in Python: it needs no more of them than counts. And what the build can
// do.
#include <torch/library.h>

#include "attention/engines.h"
#include "ops/arguments.h"
#include "topomask/attention.h"
#include "topomask/device.h"

namespace topomask::ops {
namespace {

const Choices<Engine> kEngines = {{"auto", Engine::automatic},
                                  {"dense", Engine::dense},
                                  {"feature", Engine::feature},
                                  {"mask", Engine::mask}};
const Choices<AttentionKind> kKinds = {{"linear", AttentionKind::linear},
                                       {"softmax", AttentionKind::softmax}};

class CountedMask final : public Mask {
 public:
  std::string name_;
  std::int64_t num_nodes_ = 0, num_heads_ = 1;
  std::int64_t entries_ = -1;  // -1: not sparse
  bool entries_per_head_ = false;
  std::int64_t rank_ = 0;  // 0: no factors
  MaskCost cost_;

  std::string name() const override { return name_; }
  std::int64_t num_nodes() const override { return num_nodes_; }
  std::int64_t num_heads() const override { return num_heads_; }
  at::Tensor apply(const at::Tensor&) const override {
    fail("mask '{}' is known by its counts alone", name_);
  }
  at::Tensor apply_transposed(const at::Tensor& x) const override { return apply(x); }
  bool has_entries() const override { return entries_ >= 0; }
  bool entries_per_head() const override { return entries_per_head_; }
  std::int64_t num_entries_total() const override { return entries_; }
  bool has_low_rank() const override { return rank_ > 0; }
  std::int64_t rank() const override { return rank_; }
  MaskCost cost() const override { return cost_; }
};

// The engine, how many features the feature engine sends through the mask at a time, and the plan in words.
// mask: nodes, heads, entries, entries per head, rank; cost: multiply-adds and bytes of a column;
// shape: batch, heads, features, value channels.
std::tuple<std::string, std::int64_t, std::string> plan_attention_op(
    std::string_view name, at::IntArrayRef mask, at::ArrayRef<double> cost, at::IntArrayRef shape,
    at::ScalarType dtype, at::Device device, std::string_view kind, std::string_view engine,
    std::int64_t max_workspace) {
  check(mask.size() == 5 && cost.size() == 2 && shape.size() == 4,
        "plan_attention: expected 5 numbers of the mask, 2 of its cost and 4 of the shape, got {}, {} and {}",
        mask.size(), cost.size(), shape.size());
  CountedMask counted;
  counted.name_ = name;
  counted.num_nodes_ = mask[0];
  counted.num_heads_ = mask[1];
  counted.entries_ = mask[2];
  counted.entries_per_head_ = mask[3] != 0;
  counted.rank_ = mask[4];
  counted.cost_ = {cost[0], cost[1]};
  AttentionShape sizes;
  sizes.batch = shape[0];
  sizes.heads = shape[1];
  sizes.num_nodes = mask[0];
  sizes.d = shape[2];
  sizes.d_v = shape[3];
  sizes.dtype = dtype;
  sizes.device = device.type();
  AttentionOptions options;
  options.kind = choose("kind", kind, kKinds);
  options.engine = choose("engine", engine, kEngines);
  options.feature_map.kind = FeatureMapKind::identity;  // the shape counts features already
  options.max_workspace = max_workspace;
  const AttentionPlan plan = plan_attention(counted, sizes, options);
  std::string chosen;
  for (const auto& [word, value] : kEngines) {
    if (value == plan.engine) chosen = word;
  }
  return {chosen, feature_block(sizes, plan.max_workspace), plan.to_string()};
}

}  // namespace

TORCH_LIBRARY_IMPL(topomask, CompositeExplicitAutograd, m) {
  m.impl("plan_attention", plan_attention_op);
  m.impl("cuda_is_built", cuda_is_built);
}

}  // namespace topomask::ops
