#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <c10/core/InferenceMode.h>

#include <utility>

#include "core/check.h"
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

DistributedGrfMask::DistributedGrfMask(const DistributedGraph& graph, const FeatureOptions& options,
                                       at::Tensor f, WalkRoute route)
    : symbolic_(std::make_shared<Symbolic>(graph)), f_(rows_of_f(std::move(f))) {
  symbolic_->features = sample_features(graph, options, route);
}

std::shared_ptr<const DistributedGrfMask> DistributedGrfMask::with_f(at::Tensor f) const {
  auto copy = std::make_shared<DistributedGrfMask>(*this);
  copy->f_ = rows_of_f(std::move(f));
  return copy;
}

const RanksPtr& DistributedGrfMask::ranks() const {
  return symbolic_->graph.ranks();
}

std::int64_t DistributedGrfMask::num_own() const {
  return symbolic_->graph.num_own();
}

const DistributedFeatures& DistributedGrfMask::features() const {
  return symbolic_->features;
}

at::Tensor DistributedGrfMask::multiply(const at::Tensor& x, bool transposed) const {
  check(x.defined() && x.dim() == 3 && x.size(1) == num_own() && (heads() == 1 || x.size(0) == heads()) &&
            x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble),
        "DistributedGrfMask: x must be float32 or float64 [{}, {}, C] on the CPU, got {}", heads(), num_own(),
        describe(x));
  return multiply_by_columns(symbolic_->columns(), features(), with_summed_gradient(ranks(), f_), x,
                             transposed);
}

DistributedGrfMask::Counts DistributedGrfMask::counts(Engine engine) const {
  Counts counts;
  if (engine == Engine::feature) {
    const MaskColumns& columns = symbolic_->columns();
    counts.query_columns = columns.query.exchange.num_received();
    counts.query_sends = columns.query.exchange.num_sent();
    counts.key_columns = columns.key.pattern ? columns.key.exchange.num_received() : 0;
    return counts;
  }
  const MaskRows& rows = symbolic_->rows();
  counts.boundary_rows = rows.rows.numel();
  counts.interior_rows = num_own() - counts.boundary_rows;
  counts.entries = rows.interior.pattern()->nnz() + rows.boundary.pattern()->nnz();
  counts.halo = rows.exchange.num_received();
  counts.sends = rows.exchange.num_sent();
  return counts;
}

const MaskRows& DistributedGrfMask::Symbolic::rows() {
  std::call_once(rows_once, [&] { rows_ = make_mask_rows(graph, features); });
  return rows_;
}

const MaskColumns& DistributedGrfMask::Symbolic::columns() {
  std::call_once(columns_once, [&] { columns_ = make_mask_columns(graph, features); });
  return columns_;
}

const PairCounts& DistributedGrfMask::Symbolic::pairs() {
  std::call_once(pairs_once, [&] { pairs_ = count_pairs(graph, features); });
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
