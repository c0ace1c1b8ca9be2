#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <c10/core/InferenceMode.h>

#include <utility>

#include "core/check.h"
#include "core/random.h"
#include "core/tensors.h"
#include "distributed/mask_parts.h"
#include "topomask/distributed.h"

namespace topomask {

namespace {

at::Tensor rows_of_f(at::Tensor f) {
  check(
      f.defined() && (f.dim() == 1 || f.dim() == 2) && f.numel() > 0 && f.is_cpu() &&
          (f.scalar_type() == at::kFloat || f.scalar_type() == at::kDouble),
      "DistributedGrfMask: f must be a non-empty float32 or float64 tensor [terms] or [heads, terms] on the "
      "CPU, got {}",
      describe(f));
  return f.dim() == 1 ? f.unsqueeze(0) : f;
}

}  // namespace

DistributedGrfMask::DistributedGrfMask(DistributedGraph graph, const FeatureOptions& options, at::Tensor f,
                                       WalkRoute route)
    : sets_{std::make_shared<Symbolic>(std::make_shared<const DistributedGraph>(std::move(graph)))},
      f_(rows_of_f(std::move(f))) {
  sets_[0]->features = sample_features(*sets_[0]->graph, options, route);
}

std::shared_ptr<const DistributedGrfMask> DistributedGrfMask::per_head(DistributedGraph graph,
                                                                       const FeatureOptions& options,
                                                                       at::Tensor f, WalkRoute route) {
  const std::shared_ptr<DistributedGrfMask> mask(new DistributedGrfMask);
  mask->f_ = rows_of_f(std::move(f));
  const auto shared = std::make_shared<const DistributedGraph>(std::move(graph));
  for (std::int64_t head = 0; head < mask->heads(); ++head) {
    FeatureOptions own = options;
    own.walks.seed = derive_seed(options.walks.seed, static_cast<std::uint64_t>(head));
    mask->sets_.push_back(std::make_shared<Symbolic>(shared));
    mask->sets_.back()->features = sample_features(*shared, own, route);
  }
  return mask;
}

std::shared_ptr<const DistributedGrfMask> DistributedGrfMask::with_f(at::Tensor f) const {
  auto copy = std::make_shared<DistributedGrfMask>(*this);
  copy->f_ = rows_of_f(std::move(f));
  check(num_sets() == 1 || copy->heads() == num_sets(),
        "DistributedGrfMask: there are walks for {} heads, got f with {} rows", num_sets(), copy->heads());
  return copy;
}

DistributedGrfMask::Symbolic& DistributedGrfMask::set_at(std::int64_t set) const {
  check(set >= 0 && set < num_sets(), "DistributedGrfMask: expected a set of walks from 0 to {}, got {}",
        num_sets() - 1, set);
  return *sets_[static_cast<std::size_t>(set)];
}

const RanksPtr& DistributedGrfMask::ranks() const {
  return sets_[0]->graph->ranks();
}

std::int64_t DistributedGrfMask::num_own() const {
  return sets_[0]->graph->num_own();
}

const DistributedFeatures& DistributedGrfMask::features(std::int64_t set) const {
  return set_at(set).features;
}

at::Tensor DistributedGrfMask::multiply(const at::Tensor& x, bool transposed) const {
  check(x.defined() && x.dim() == 3 && x.size(1) == num_own() && (heads() == 1 || x.size(0) == heads()) &&
            x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble),
        "DistributedGrfMask: x must be float32 or float64 [{}, {}, C] on the CPU, got {}", heads(), num_own(),
        describe(x));
  const at::Tensor f = with_summed_gradient(ranks(), f_);
  if (num_sets() == 1) return multiply_by_columns(sets_[0]->columns(), features(), f, x, transposed);
  std::vector<at::Tensor> of_heads;
  for (std::int64_t h = 0; h < num_sets(); ++h) {
    of_heads.push_back(multiply_by_columns(set_at(h).columns(), features(h), f.narrow(0, h, 1),
                                           x.narrow(0, h, 1), transposed));
  }
  return at::cat(of_heads);
}

DistributedGrfMask::Counts DistributedGrfMask::counts(Engine engine, std::int64_t set) const {
  Symbolic& symbolic = set_at(set);
  Counts counts;
  if (engine == Engine::feature) {
    const MaskColumns& columns = symbolic.columns();
    counts.query_columns = columns.query.exchange.num_received();
    counts.query_sends = columns.query.exchange.num_sent();
    counts.key_columns = columns.key.pattern ? columns.key.exchange.num_received() : 0;
    return counts;
  }
  const MaskRows& rows = symbolic.rows();
  counts.boundary_rows = rows.rows.numel();
  counts.interior_rows = num_own() - counts.boundary_rows;
  counts.entries = rows.interior.pattern()->nnz() + rows.boundary.pattern()->nnz();
  counts.halo = rows.exchange.num_received();
  counts.sends = rows.exchange.num_sent();
  return counts;
}

const MaskRows& DistributedGrfMask::Symbolic::rows() {
  std::call_once(rows_once, [&] { rows_ = make_mask_rows(*graph, features); });
  return rows_;
}

const MaskColumns& DistributedGrfMask::Symbolic::columns() {
  std::call_once(columns_once, [&] { columns_ = make_mask_columns(*graph, features); });
  return columns_;
}

const PairCounts& DistributedGrfMask::Symbolic::pairs() {
  std::call_once(pairs_once, [&] { pairs_ = count_pairs(*graph, features); });
  return pairs_;
}

std::pair<at::Tensor, at::Tensor> DistributedGrfMask::Symbolic::values(const at::Tensor& f) {
  const MaskRows& own = rows();
  if (at::GradMode::is_enabled() && f.requires_grad())
    return {own.interior.values(f), own.boundary.values(f)};
  const std::lock_guard<std::mutex> lock(mutex);
  if (!kept_f.defined() || kept_f.scalar_type() != f.scalar_type() || !at::equal(kept_f, f)) {
    const c10::InferenceMode learnable(false);  // a later call may want gradients
    const at::AutoGradMode fixed(false);
    kept_interior = own.interior.values(f.detach());
    kept_boundary = own.boundary.values(f.detach());
    kept_f = f.detach().clone();
  }
  return {kept_interior, kept_boundary};
}

}  // namespace topomask
