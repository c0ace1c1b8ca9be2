#include "topomask/grf_mask.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>

#include <mutex>

#include "core/check.h"
#include "core/gpu.h"
#include "core/random.h"
#include "masks/cpu/sparse_product.h"
#include "masks/gpu.h"
#include "masks/sparse_ops.h"

namespace topomask {

namespace {

std::shared_ptr<const SparsePattern> pattern_of(const WalkFeatures& features, c10::Device device) {
  SparsePattern pattern = SparsePattern::from_rows(features.row_ptr, features.col);
  pattern.longest_row = features.longest_row;
  pattern.padded = features.padded;
  return std::make_shared<const SparsePattern>(pattern.to(device));
}

void move_to(WalkFeatures& features, c10::Device device) {
  for (at::Tensor* tensor :
       {&features.row_ptr, &features.col, &features.deposit_ptr, &features.hop, &features.load})
    *tensor = tensor->to(device);
}

at::Tensor as_rows(const char* owner, const char* argument, at::Tensor f) {
  check(f.defined() && (f.dim() == 1 || f.dim() == 2) && f.numel() > 0 &&
            (f.scalar_type() == at::kFloat || f.scalar_type() == at::kDouble),
        "{}: {} must be a non-empty float32 or float64 tensor [terms] or [heads, terms]", owner, argument);
  return f.dim() == 1 ? f.unsqueeze(0) : f;
}

double estimate_nnz(const SparsePattern& query, const SparsePattern& key, std::int64_t sample) {
  if (query.row_ptr.is_cuda()) return estimate_product_nnz_cuda(query, key, sample);
  return estimate_product_nnz(rows_of(query), transposed_rows_of(key), sample);
}

void check_columns(const Mask& mask, const at::Tensor& x) {
  check(x.dim() == 3 && x.size(1) == mask.num_nodes() &&
            (mask.num_heads() == 1 || x.size(0) == mask.num_heads()),
        "{}: x must be [heads, nodes, columns] = [{}, {}, C], got {} dimensions of sizes [{}]", mask.name(),
        mask.num_heads() == 1 ? std::string("H") : std::to_string(mask.num_heads()), mask.num_nodes(),
        x.dim(), fmt::join(x.sizes(), ", "));
  check(x.device() == *mask.device(), "{}: x must be on {} as the mask, got {}", mask.name(),
        mask.device()->str(), x.device().str());
}

}  // namespace

// What belongs to the graph alone. The pattern of M_hat is made when an engine first asks for it.
struct GrfMask::Symbolic {
  struct Set {
    GraphFeatures features;
    std::shared_ptr<const SparsePattern> query, key;
    std::once_flag product_once;
    ProductPatterns product;
    double estimated_nnz = -1;

    bool one_hot_keys() const { return features.ensembles == Ensembles::asymmetric; }
    const ProductPatterns& product_patterns() {
      std::call_once(product_once, [&] { product = make_product_patterns(query, key); });
      return product;
    }
  };
  std::vector<std::unique_ptr<Set>> sets;  // one, or one per head
};

struct GrfMask::EntryCache {
  std::mutex mutex;
  std::uint32_t version =
      0;  // of the modulation when the entries were computed; an optimiser's step changes it
  std::vector<SparseEntries> entries;
};

GrfMask::GrfMask(std::vector<GraphFeatures> features, at::Tensor modulation)
    : symbolic_(std::make_shared<Symbolic>()),
      modulation_(as_rows("GrfMask", "modulation", std::move(modulation))),
      cache_(std::make_shared<EntryCache>()) {
  check(features.size() == 1 || static_cast<std::int64_t>(features.size()) == modulation_.size(0),
        "GrfMask: features must be one set of walks or one per head ({}), got {}", modulation_.size(0),
        features.size());
  const c10::Device device = modulation_.device();
  for (GraphFeatures& f : features) {
    check(f.query.row_ptr.device() == modulation_.device(),
          "GrfMask: modulation must be on {} like the features, got {}", f.query.row_ptr.device().str(),
          modulation_.device().str());
    auto set = std::make_unique<Symbolic::Set>();
    const bool shared = f.key.col.is_same(f.query.col);
    set->query = pattern_of(f.query, device);
    set->key = shared ? set->query : pattern_of(f.key, device);
    move_to(f.query, device);
    if (shared) {
      f.key = f.query;
    } else {
      move_to(f.key, device);
    }
    set->features = std::move(f);
    symbolic_->sets.push_back(std::move(set));
  }
}

GrfMask::GrfMask(std::shared_ptr<Symbolic> symbolic, at::Tensor modulation)
    : symbolic_(std::move(symbolic)),
      modulation_(std::move(modulation)),
      cache_(std::make_shared<EntryCache>()) {}

GrfMask::GrfMask(const Graph& graph, const FeatureOptions& options, at::Tensor modulation)
    : GrfMask(std::vector<GraphFeatures>{sample_features(graph, options)}, std::move(modulation)) {}

std::shared_ptr<GrfMask> GrfMask::per_head(const Graph& graph, const FeatureOptions& options,
                                           at::Tensor modulation) {
  at::Tensor f = as_rows("GrfMask", "modulation", std::move(modulation));
  std::vector<GraphFeatures> features;
  for (std::int64_t head = 0; head < f.size(0); ++head) {
    FeatureOptions own = options;
    own.walks.seed = derive_seed(options.walks.seed, static_cast<std::uint64_t>(head));
    features.push_back(sample_features(graph, own));
  }
  return std::make_shared<GrfMask>(std::move(features), std::move(f));
}

GrfMask GrfMask::with_modulation(at::Tensor modulation) const {
  at::Tensor f = as_rows("GrfMask", "modulation", std::move(modulation));
  check(symbolic_->sets.size() == 1 || f.size(0) == num_heads(),
        "GrfMask: modulation must have one row per set of walks ({}), got {}", num_heads(), f.size(0));
  check(f.device() == modulation_.device(), "GrfMask: modulation must be on {} as the walks, got {}",
        modulation_.device().str(), f.device().str());
  return GrfMask(symbolic_, std::move(f));
}

const GraphFeatures& GrfMask::features(std::int64_t head) const {
  return symbolic_->sets[symbolic_->sets.size() == 1 ? 0 : static_cast<std::size_t>(head)]->features;
}

std::int64_t GrfMask::feature_nnz() const {
  std::int64_t total = 0;
  for (const auto& set : symbolic_->sets) total += set->query->nnz();
  return total;
}

std::string GrfMask::name() const {
  return symbolic_->sets[0]->one_hot_keys() ? "grf-asymmetric" : "grf";
}

std::int64_t GrfMask::num_nodes() const {
  return symbolic_->sets[0]->query->num_nodes();
}

// [heads that use the set, nnz]
at::Tensor GrfMask::query_values(std::size_t set) const {
  const bool shared = symbolic_->sets.size() == 1;
  const at::Tensor f = shared ? modulation_ : modulation_.slice(0, static_cast<std::int64_t>(set), set + 1);
  return symbolic_->sets[set]->features.query.values(f);
}

at::Tensor GrfMask::key_values(std::size_t set) const {
  const bool shared = symbolic_->sets.size() == 1;
  const Symbolic::Set& s = *symbolic_->sets[set];
  const at::Tensor f = shared ? modulation_ : modulation_.slice(0, static_cast<std::int64_t>(set), set + 1);
  if (s.one_hot_keys()) return at::ones({f.size(0), s.key->nnz()}, f.options());
  return s.features.key.values(f);
}

at::Tensor GrfMask::apply_any(const at::Tensor& x, bool transposed) const {
  check_columns(*this, x);
  const auto one_set = [&](std::size_t set, const at::Tensor& columns) {
    const Symbolic::Set& s = *symbolic_->sets[set];
    const at::Tensor query = query_values(set).to(x.scalar_type());
    if (s.one_hot_keys()) return sparse_matmul(s.query, query, columns, transposed);
    const at::Tensor key = s.query == s.key ? query : key_values(set).to(x.scalar_type());
    // M = Phi Psi^T, M^T = Psi Phi^T.
    return transposed ? sparse_matmul(s.key, key, sparse_matmul(s.query, query, columns, true), false)
                      : sparse_matmul(s.query, query, sparse_matmul(s.key, key, columns, true), false);
  };
  if (symbolic_->sets.size() == 1) return one_set(0, x);
  std::vector<at::Tensor> heads;
  for (std::size_t set = 0; set < symbolic_->sets.size(); ++set) {
    heads.push_back(
        one_set(set, x.slice(0, static_cast<std::int64_t>(set), static_cast<std::int64_t>(set) + 1)));
  }
  return at::cat(heads);
}

at::Tensor GrfMask::apply(const at::Tensor& x) const {
  return apply_any(x, false);
}

at::Tensor GrfMask::apply_transposed(const at::Tensor& x) const {
  return apply_any(x, true);
}

std::vector<SparseEntries> GrfMask::entries() const {
  const bool learning = c10::GradMode::is_enabled() && modulation_.requires_grad();
  // A CUDA graph computes the entries anew whenever it runs, and f may have changed by then.
  const bool captured = capture_id(modulation_.device()) != 0;
  if (learning || captured || modulation_.is_inference()) return compute_entries();
  const std::lock_guard<std::mutex> lock(cache_->mutex);
  const auto version = static_cast<std::uint32_t>(modulation_._version());
  if (cache_->entries.empty() || cache_->version != version) {
    cache_->entries = compute_entries();
    cache_->version = version;
  }
  return cache_->entries;
}

std::vector<SparseEntries> GrfMask::compute_entries() const {
  std::vector<SparseEntries> result;
  for (std::size_t set = 0; set < symbolic_->sets.size(); ++set) {
    Symbolic::Set& s = *symbolic_->sets[set];
    const at::Tensor query = query_values(set);
    if (s.one_hot_keys()) {
      result.push_back({s.query, query});
      continue;
    }
    const at::Tensor key = s.query == s.key ? query : key_values(set);
    const ProductPatterns& patterns = s.product_patterns();
    result.push_back({patterns.product, sparse_product(patterns, query, key)});
  }
  return result;
}

bool GrfMask::entries_per_head() const {
  return symbolic_->sets.size() > 1;
}

std::int64_t GrfMask::num_entries_total() const {
  constexpr std::int64_t kSampledRows = 256;
  double total = 0;
  for (const auto& set : symbolic_->sets) {
    if (set->one_hot_keys()) {
      total += static_cast<double>(set->query->nnz());
    } else if (set->product.product) {
      total += static_cast<double>(set->product.product->nnz());
    } else {
      if (set->estimated_nnz < 0) {
        set->estimated_nnz = estimate_nnz(*set->query, *set->key, kSampledRows);
      }
      total += set->estimated_nnz;
    }
  }
  return static_cast<std::int64_t>(total);
}

bool GrfMask::has_sparse_factors() const {
  return !symbolic_->sets[0]->one_hot_keys();
}

std::vector<SparseFactors> GrfMask::sparse_factors() const {
  if (!has_sparse_factors()) return Mask::sparse_factors();
  std::vector<SparseFactors> factors;
  for (std::size_t set = 0; set < symbolic_->sets.size(); ++set) {
    const Symbolic::Set& s = *symbolic_->sets[set];
    const at::Tensor query = query_values(set);
    factors.push_back({{s.query, query}, {s.key, s.query == s.key ? query : key_values(set)}});
  }
  return factors;
}

MaskCost GrfMask::cost() const {
  double nnz = 0;
  for (const auto& set : symbolic_->sets) {
    nnz += static_cast<double>(set->query->nnz() + (set->one_hot_keys() ? 0 : set->key->nnz()));
  }
  nnz /= static_cast<double>(symbolic_->sets.size());
  return {nnz, 12 * nnz};
}

PowerSeriesMask::PowerSeriesMask(const Graph& graph, at::Tensor coefficients)
    : coefficients_(as_rows("PowerSeriesMask", "coefficients", std::move(coefficients))) {
  const c10::Device device = coefficients_.device();
  pattern_ =
      std::make_shared<const SparsePattern>(SparsePattern::from_rows(graph.row_ptr, graph.col).to(device));
  weight_ = graph.weight.unsqueeze(0).to(device);
}

at::Tensor PowerSeriesMask::apply_any(const at::Tensor& x, bool transposed) const {
  check_columns(*this, x);
  const at::Tensor weight = weight_.to(x.scalar_type());
  const at::Tensor alpha =
      coefficients_.to(x.scalar_type()).unsqueeze(-1).unsqueeze(-1);  // [heads, K+1, 1, 1]
  const std::int64_t last = alpha.size(1) - 1;
  at::Tensor sum = alpha.select(1, last) * x;
  for (std::int64_t k = last - 1; k >= 0; --k) {
    sum = sparse_matmul(pattern_, weight, sum, transposed) + alpha.select(1, k) * x;
  }
  return sum;
}

at::Tensor PowerSeriesMask::apply(const at::Tensor& x) const {
  return apply_any(x, false);
}

at::Tensor PowerSeriesMask::apply_transposed(const at::Tensor& x) const {
  return apply_any(x, true);
}

MaskCost PowerSeriesMask::cost() const {
  const double entries =
      static_cast<double>(pattern_->nnz()) * static_cast<double>(coefficients_.size(1) - 1);
  return {entries, 12 * entries};
}

}  // namespace topomask
