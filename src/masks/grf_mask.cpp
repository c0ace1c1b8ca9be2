#include "topomask/grf_mask.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <mutex>

#include "core/check.h"
#include "core/gpu.h"
#include "core/random.h"
#include "core/tensors.h"
#include "masks/arguments.h"
#include "masks/cpu/sparse_product.h"
#include "masks/gpu.h"
#include "masks/sparse_ops.h"

namespace topomask {

namespace {

std::shared_ptr<const SparsePattern> pattern_of(const WalkFeatures& features) {
  SparsePattern pattern = SparsePattern::from_rows(features.row_ptr, features.col);
  pattern.longest_row = features.longest_row;
  pattern.padded = features.padded;
  return std::make_shared<const SparsePattern>(std::move(pattern));
}

at::Tensor as_rows(const char* owner, const char* argument, at::Tensor f) {
  check(f.defined() && (f.dim() == 1 || f.dim() == 2) && f.numel() > 0 &&
            (f.scalar_type() == at::kFloat || f.scalar_type() == at::kDouble),
        "{}: {} must be a non-empty float32 or float64 tensor [terms] or [heads, terms]", owner, argument);
  return f.dim() == 1 ? f.unsqueeze(0) : f;
}

// f of the masks of walks: as_rows, or with a second row for the keys.
at::Tensor as_modulations(at::Tensor f) {
  const bool both = f.defined() && f.dim() == 3 && f.size(1) == 2 && f.numel() > 0;
  check(both || !f.defined() || f.dim() < 3,
        "GrfMask: f must be [terms], [heads, terms] or [heads, 2, terms] (of queries and keys), got {}",
        describe(f));
  if (!both) return as_rows("GrfMask", "f", std::move(f));
  as_rows("GrfMask", "f", f.select(1, 0));
  return f;
}

// Entries of each column.
at::Tensor column_sizes(const SparsePattern& pattern) {
  if (pattern.transposed_ptr.defined()) return pattern.transposed_ptr.diff();
  return at::zeros({pattern.num_nodes()}, pattern.row_ptr.options())
      .index_add(0, pattern.col, at::ones({1}, pattern.row_ptr.options()).expand({pattern.nnz()}));
}

// Every pair of a query and a key that visit the same node.
double count_value_products(const SparsePattern& query, const SparsePattern& key) {
  return column_sizes(query).to(at::kDouble).dot(column_sizes(key).to(at::kDouble)).item<double>();
}

double estimate_nnz(const SparsePattern& query, const SparsePattern& key, std::int64_t sample) {
  if (query.row_ptr.is_cuda()) return estimate_product_nnz_cuda(query, key, sample);
  return estimate_product_nnz(rows_of(query), transposed_rows_of(key), sample);
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
    double value_products = -1;  // that new values of the product sum

    bool one_hot_keys() const { return features.ensembles == Ensembles::asymmetric; }
    // Whether Psi has the values of Phi: the same walks, and no f of the keys' own.
    bool is_square(const at::Tensor& f) const { return query == key && f.dim() == 2; }
    const ProductPatterns& product_patterns() {
      std::call_once(product_once, [&] { product = make_product_patterns(query, key); });
      return product;
    }
  };
  std::vector<std::unique_ptr<Set>> sets;  // one, or one per head

  // Without gradients the entries stay as they are for as long as f does. They are kept with a copy of f and
  // found by its numbers: whatever wrote to f, other numbers are other entries. On the CPU alone, for a GPU
  // would have to be waited for.
  std::mutex mutex;
  at::Tensor kept_f;
  std::vector<SparseEntries> kept_entries;

  bool shared() const { return sets.size() == 1; }
  // The rows of f that use a set.
  at::Tensor rows_of(const at::Tensor& f, std::size_t set) const {
    const auto row = static_cast<std::int64_t>(set);
    return shared() ? f : f.slice(0, row, row + 1);
  }
};

GrfMask::GrfMask(std::vector<GraphFeatures> features, at::Tensor f)
    : symbolic_(std::make_shared<Symbolic>()), f_(as_modulations(std::move(f))) {
  check(features.size() == 1 || static_cast<std::int64_t>(features.size()) == f_.size(0),
        "GrfMask: features must be one set of walks or one per head ({}), got {}", f_.size(0),
        features.size());
  const c10::Device device = f_.device();
  for (GraphFeatures& own : features) {
    check(own.query.row_ptr.device() == device, "GrfMask: f must be on {} like the features, got {}",
          own.query.row_ptr.device().str(), device.str());
    check(f_.dim() == 2 || own.ensembles != Ensembles::asymmetric,
          "GrfMask: asymmetric ensembles have one-hot keys without an f of their own; use shared or "
          "independent ones");
    auto set = std::make_unique<Symbolic::Set>();
    const bool shared = own.key.col.is_same(own.query.col);
    set->query = pattern_of(own.query);
    set->key = shared ? set->query : pattern_of(own.key);
    set->features = std::move(own);
    symbolic_->sets.push_back(std::move(set));
  }
}

GrfMask::GrfMask(const Graph& graph, const FeatureOptions& options, at::Tensor f)
    : GrfMask(std::vector<GraphFeatures>{sample_features(graph, options)}, std::move(f)) {}

std::shared_ptr<GrfMask> GrfMask::per_head(const Graph& graph, const FeatureOptions& options, at::Tensor f) {
  at::Tensor rows = as_modulations(std::move(f));
  std::vector<GraphFeatures> features;
  for (std::int64_t head = 0; head < rows.size(0); ++head) {
    FeatureOptions own = options;
    own.walks.seed = derive_seed(options.walks.seed, static_cast<std::uint64_t>(head));
    features.push_back(sample_features(graph, own));
  }
  return std::make_shared<GrfMask>(std::move(features), std::move(rows));
}

std::shared_ptr<const GrfMask> GrfMask::with_f(at::Tensor f) const {
  at::Tensor rows = as_modulations(std::move(f));
  check(rows.dim() == 2 || !symbolic_->sets[0]->one_hot_keys(), "GrfMask: one-hot keys have no f");
  check(symbolic_->shared() || rows.size(0) == heads(),
        "GrfMask: f must have one row per set of walks ({}), got {}", heads(), rows.size(0));
  check(rows.device() == f_.device(), "GrfMask: f must be on {} as the walks, got {}", f_.device().str(),
        rows.device().str());
  auto copy = std::make_shared<GrfMask>(*this);
  copy->f_ = std::move(rows);
  return copy;
}

MaskPtr GrfMask::with_parameters(const std::vector<at::Tensor>& parameters) const {
  return replaced(*this, parameters, {"f"}, &GrfMask::f_);
}

const GraphFeatures& GrfMask::features(std::int64_t head) const {
  return symbolic_->sets[symbolic_->shared() ? 0 : static_cast<std::size_t>(head)]->features;
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

at::Tensor GrfMask::query_f() const {
  return f_.dim() == 3 ? f_.select(1, 0) : f_;
}

at::Tensor GrfMask::key_f() const {
  return f_.dim() == 3 ? f_.select(1, 1) : f_;
}

// [heads that use the set, nnz]
at::Tensor GrfMask::query_values(std::size_t set) const {
  return symbolic_->sets[set]->features.query.values(symbolic_->rows_of(query_f(), set));
}

at::Tensor GrfMask::key_values(std::size_t set) const {
  const Symbolic::Set& s = *symbolic_->sets[set];
  const at::Tensor f = symbolic_->rows_of(key_f(), set);
  if (s.one_hot_keys()) return at::ones({f.size(0), s.key->nnz()}, f.options());
  return s.features.key.values(f);
}

at::Tensor GrfMask::multiply(const at::Tensor& x, bool transposed) const {
  check_input(*this, x);
  const auto one_set = [&](std::size_t set, const at::Tensor& columns) {
    const Symbolic::Set& s = *symbolic_->sets[set];
    const at::Tensor query = query_values(set).to(x.scalar_type());
    if (s.one_hot_keys()) return sparse_matmul(s.query, query, columns, transposed);
    const at::Tensor key = s.is_square(f_) ? query : key_values(set).to(x.scalar_type());
    // M = Phi Psi^T, M^T = Psi Phi^T.
    return transposed ? sparse_matmul(s.key, key, sparse_matmul(s.query, query, columns, true), false)
                      : sparse_matmul(s.query, query, sparse_matmul(s.key, key, columns, true), false);
  };
  if (symbolic_->shared()) return one_set(0, x);
  std::vector<at::Tensor> products;
  for (std::size_t set = 0; set < symbolic_->sets.size(); ++set) {
    const auto head = static_cast<std::int64_t>(set);
    products.push_back(one_set(set, x.slice(0, head, head + 1)));
  }
  return at::cat(products);
}

std::vector<SparseEntries> GrfMask::entries() const {
  const bool learning = c10::GradMode::is_enabled() && f_.requires_grad();
  if (learning || !f_.is_cpu()) return compute_entries();
  const std::lock_guard<std::mutex> lock(symbolic_->mutex);
  const at::Tensor& kept = symbolic_->kept_f;
  if (!kept.defined() || kept.scalar_type() != f_.scalar_type() || !at::equal(kept, f_)) {
    const c10::InferenceMode learnable(false);  // a later call may want gradients
    const at::AutoGradMode fixed(false);
    symbolic_->kept_entries = compute_entries();
    symbolic_->kept_f = f_.detach().clone();
  }
  return symbolic_->kept_entries;
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
    const at::Tensor key = s.is_square(f_) ? query : key_values(set);
    const ProductPatterns& patterns = s.product_patterns();
    result.push_back({patterns.product, sparse_product(patterns, query, key)});
  }
  return result;
}

std::vector<std::shared_ptr<const SparsePattern>> GrfMask::patterns() const {
  std::vector<std::shared_ptr<const SparsePattern>> found;
  for (const auto& set : symbolic_->sets)
    found.push_back(set->one_hot_keys() ? set->query : set->product_patterns().product);
  return found;
}

std::vector<at::Tensor> GrfMask::entry_gradients(const std::vector<at::Tensor>& of_values) const {
  const at::NoGradGuard no_graph;
  std::vector<at::Tensor> of_f;  // of the rows that use each set
  for (std::size_t set = 0; set < symbolic_->sets.size(); ++set) {
    Symbolic::Set& s = *symbolic_->sets[set];
    const WalkFeatures &queries = s.features.query, &keys = s.features.key;
    const at::Tensor of_entries = of_values[set].to(f_.scalar_type());
    const std::int64_t terms = f_.size(-1);
    if (s.one_hot_keys()) {
      of_f.push_back(queries.values_gradient(of_entries, terms));
      continue;
    }
    const at::Tensor query = query_values(set), key = s.is_square(f_) ? query : key_values(set);
    const auto [of_query, of_key] = sparse_product_gradients(s.product_patterns(), query, key, of_entries);
    at::Tensor sum = queries.values_gradient(of_query, terms);
    if (f_.dim() == 3) {
      of_f.push_back(at::stack({sum, keys.values_gradient(of_key, terms)}, 1));
      continue;
    }
    if (of_key.defined()) sum += keys.values_gradient(of_key, terms);
    of_f.push_back(sum);
  }
  return {of_f.size() == 1 ? of_f[0] : at::cat(of_f)};
}

void GrfMask::count_entries() const {
  patterns();
}

std::vector<SparseFactors> GrfMask::sparse_factors() const {
  if (symbolic_->sets[0]->one_hot_keys()) return Mask::sparse_factors();
  std::vector<SparseFactors> factors;
  for (std::size_t set = 0; set < symbolic_->sets.size(); ++set) {
    const Symbolic::Set& s = *symbolic_->sets[set];
    const at::Tensor query = query_values(set);
    factors.push_back({{s.query, query}, {s.key, s.is_square(f_) ? query : key_values(set)}});
  }
  return factors;
}

MaskProfile GrfMask::profile() const {
  constexpr std::int64_t kSampledRows =
      257;  // a prime: evenly spread rows do not all meet the border of a grid
  double feature_nnz = 0, entries = 0, values = 0, near = 0;
  std::int64_t left = 0, right = 0;
  bool counted = true;
  for (const auto& set : symbolic_->sets) {
    feature_nnz += static_cast<double>(set->query->nnz());
    values += static_cast<double>(set->features.query.num_deposits());
    // A product's column is near where both steps to it are.
    near += (1 - far_share(*set->query)) * (set->one_hot_keys() ? 1 : 1 - far_share(*set->key));
    if (set->one_hot_keys()) {
      entries += static_cast<double>(set->query->nnz());
      continue;
    }
    feature_nnz += static_cast<double>(set->key->nnz());
    left += set->query->nnz();
    right += set->key->nnz();
    // The host waits for the count, which it must not while a CUDA graph is captured.
    if (set->value_products < 0 && capture_id(f_.device()) == 0)
      set->value_products = count_value_products(*set->query, *set->key);
    if (!set->is_square(f_)) values += static_cast<double>(set->features.key.num_deposits());
    values += std::max(0.0, set->value_products);
    if (set->product.product) {
      entries += static_cast<double>(set->product.product->nnz());
      continue;
    }
    if (set->estimated_nnz < 0) set->estimated_nnz = estimate_nnz(*set->query, *set->key, kSampledRows);
    entries += set->estimated_nnz;
    counted = false;
  }
  feature_nnz /= static_cast<double>(symbolic_->sets.size());
  MaskProfile profile = basic_profile(*this, feature_nnz, 12 * feature_nnz);
  profile.entries = static_cast<std::int64_t>(entries);
  profile.entries_counted = counted;
  profile.pattern_per_head = !symbolic_->shared();
  profile.sparse_factors = !symbolic_->sets[0]->one_hot_keys();
  profile.left_entries = left;
  profile.right_entries = right;
  profile.value_multiply_adds = values;
  profile.far_share = 1 - near / static_cast<double>(symbolic_->sets.size());
  return profile;
}

PowerSeriesMask::PowerSeriesMask(const Graph& graph, at::Tensor alpha, bool squared)
    : alpha_(as_rows("PowerSeriesMask", "alpha", std::move(alpha))), squared_(squared) {
  const c10::Device device = alpha_.device();
  pattern_ =
      std::make_shared<const SparsePattern>(SparsePattern::from_rows(graph.row_ptr, graph.col).to(device));
  weight_ = graph.weight.unsqueeze(0).to(device);
}

MaskPtr PowerSeriesMask::with_parameters(const std::vector<at::Tensor>& parameters) const {
  return replaced(*this, parameters, {"alpha"}, &PowerSeriesMask::alpha_);
}

at::Tensor PowerSeriesMask::multiply_series(const at::Tensor& x, bool transposed) const {
  const at::Tensor weight = weight_.to(x.scalar_type());
  const at::Tensor alpha = alpha_.to(x.scalar_type()).unsqueeze(-1).unsqueeze(-1);  // [heads, K+1, 1, 1]
  const std::int64_t last = alpha.size(1) - 1;
  at::Tensor sum = alpha.select(1, last) * x;
  for (std::int64_t k = last - 1; k >= 0; --k) {
    sum = sparse_matmul(pattern_, weight, sum, transposed) + alpha.select(1, k) * x;
  }
  return sum;
}

at::Tensor PowerSeriesMask::multiply(const at::Tensor& x, bool transposed) const {
  check_input(*this, x);
  if (!squared_) return multiply_series(x, transposed);
  return multiply_series(multiply_series(x, true), false);  // S S^T is symmetric
}

MaskProfile PowerSeriesMask::profile() const {
  const double entries =
      static_cast<double>(pattern_->nnz()) * static_cast<double>(alpha_.size(1) - 1) * (squared_ ? 2 : 1);
  return basic_profile(*this, entries, 12 * entries);
}

}  // namespace topomask
