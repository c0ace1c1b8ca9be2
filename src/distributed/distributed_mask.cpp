#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <c10/core/InferenceMode.h>

#include <utility>

#include "core/check.h"
#include "core/random.h"
#include "core/tensors.h"
#include "distributed/mask_parts.h"
#include "topomask/device.h"
#include "topomask/distributed.h"

namespace topomask {

namespace {

at::Tensor rows_of_f(at::Tensor f) {
  check(f.defined() && f.dim() >= 1 && f.dim() <= 3 && (f.dim() < 3 || f.size(1) == 2) && f.numel() > 0 &&
            (f.is_cpu() || f.is_cuda()) && (f.scalar_type() == at::kFloat || f.scalar_type() == at::kDouble),
        "DistributedGrfMask: f must be a non-empty float32 or float64 tensor [terms], [heads, terms] or "
        "[heads, 2, terms] (of queries and keys) on the CPU or on a GPU, got {}",
        describe(f));
  check(f.is_cpu() || cuda_is_built(),
        "DistributedGrfMask: this topomask was built without CUDA, got f on {}", f.device().str());
  return f.dim() == 1 ? f.unsqueeze(0) : f;
}

void check_keys(const at::Tensor& f, Ensembles ensembles) {
  check(f.dim() < 3 || ensembles != Ensembles::asymmetric,
        "DistributedGrfMask: asymmetric ensembles have one-hot keys without an f of their own; use shared or "
        "independent ones");
}

}  // namespace

DistributedGrfMask::DistributedGrfMask(DistributedGraph graph, const FeatureOptions& options, at::Tensor f,
                                       WalkRoute route)
    : sets_{std::make_shared<Symbolic>(std::make_shared<const DistributedGraph>(std::move(graph)))},
      f_(rows_of_f(std::move(f))) {
  check_keys(f_, options.ensembles);
  sets_[0]->features = sample_features(*sets_[0]->graph, options, route);
}

std::shared_ptr<const DistributedGrfMask> DistributedGrfMask::per_head(DistributedGraph graph,
                                                                       const FeatureOptions& options,
                                                                       at::Tensor f, WalkRoute route) {
  const std::shared_ptr<DistributedGrfMask> mask(new DistributedGrfMask);
  mask->f_ = rows_of_f(std::move(f));
  check_keys(mask->f_, options.ensembles);
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
  check_keys(copy->f_, features().ensembles);
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
            x.device() == f_.device() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble),
        "DistributedGrfMask: x must be float32 or float64 [{}, {}, C] on {} as f, got {}", heads(), num_own(),
        f_.device().str(), describe(x));
  const at::Tensor f = with_summed_gradient(ranks(), f_);
  const auto columns = [&](std::int64_t set) -> const MaskColumns& {
    return set_at(set).columns(f.device());
  };
  if (num_sets() == 1) return multiply_by_columns(columns(0), f, x, transposed);
  std::vector<at::Tensor> of_heads;
  for (std::int64_t h = 0; h < num_sets(); ++h) {
    of_heads.push_back(multiply_by_columns(columns(h), f.narrow(0, h, 1), x.narrow(0, h, 1), transposed));
  }
  return at::cat(of_heads);
}

DistributedGrfMask::Counts DistributedGrfMask::counts(Engine engine, std::int64_t set) const {
  Symbolic& symbolic = set_at(set);
  Counts counts;
  if (engine == Engine::feature) {
    const MaskColumns& columns = symbolic.columns(f_.device());
    counts.query_columns = columns.query.exchange.num_received();
    counts.query_sends = columns.query.exchange.num_sent();
    counts.key_columns = columns.key.pattern ? columns.key.exchange.num_received() : 0;
    return counts;
  }
  const MaskRows& rows = symbolic.rows(f_.device());
  counts.boundary_rows = rows.rows.numel();
  counts.interior_rows = num_own() - counts.boundary_rows;
  counts.entries = rows.interior.pattern()->nnz() + rows.boundary.pattern()->nnz();
  if (!rows.interior.empty()) {  // what it has of the boundary's rows counts there
    const at::Tensor lengths = rows.interior.pattern()->row_ptr.diff();
    counts.entries -= lengths.index_select(0, rows.rows).sum().item<std::int64_t>();
  }
  counts.halo = rows.exchange.num_received();
  counts.sends = rows.exchange.num_sent();
  return counts;
}

const MaskRows& DistributedGrfMask::Symbolic::rows(c10::Device device) {
  const std::lock_guard<std::mutex> lock(parts_mutex);
  const auto found = rows_.find(device);
  return found != rows_.end() ? found->second
                              : rows_.emplace(device, make_mask_rows(*graph, features, device)).first->second;
}

const MaskColumns& DistributedGrfMask::Symbolic::columns(c10::Device device) {
  const std::lock_guard<std::mutex> lock(parts_mutex);
  const auto found = columns_.find(device);
  return found != columns_.end()
             ? found->second
             : columns_.emplace(device, make_mask_columns(*graph, features, device)).first->second;
}

const PairCounts& DistributedGrfMask::Symbolic::pairs() {
  std::call_once(pairs_once, [&] { pairs_ = count_pairs(*graph, features); });
  return pairs_;
}

std::pair<at::Tensor, at::Tensor> DistributedGrfMask::Symbolic::values(const at::Tensor& f) {
  const MaskRows& own = rows(f.device());
  // A GPU would have to be waited for, to learn whether f is another.
  if (f.is_cuda() || (at::GradMode::is_enabled() && f.requires_grad()))
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
