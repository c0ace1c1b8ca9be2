#include <cmath>

#include "core/check.h"
#include "core/random.h"
#include "nn/dense_mask_module.h"
#include "nn/few_tokens.h"
#include "nn/rules.h"
#include "topomask/graph_builders.h"
#include "topomask/grf_mask.h"
#include "topomask/kernels.h"
#include "topomask/mask_combinators.h"
#include "topomask/masks.h"
#include "topomask/nn.h"

namespace topomask {

namespace {

constexpr std::int64_t kTermBytes = std::int64_t{1} << 28;  // that one layer may keep as dense terms

std::int64_t num_tokens(const std::vector<std::int64_t>& grid) {
  std::int64_t count = 1;
  for (const std::int64_t extent : grid) count *= extent;
  return count;
}

// [heads, max_hops + 1], or [heads, 2, max_hops + 1] where the keys have their own.
at::Tensor first_f(std::int64_t heads, int max_hops, bool key_f = false) {
  return key_f ? initial_f(max_hops).repeat({heads, 2, 1}) : initial_f(max_hops).repeat({heads, 1});
}

at::Tensor as_used(const at::Tensor& matrix, bool absolute) {
  return absolute ? matrix.abs() : matrix;
}

// The walks of a few nodes as dense matrices: T_k holds the loads that hop k leaves, Phi = sum_k f_k T_k. Two
// batched products give the mask of all heads, on any device, where a sparse form would take many small
// steps. [1 or heads, max_hops + 1, N, N] float32
at::Tensor dense_terms(const WalkFeatures& features) {
  std::vector<at::Tensor> terms;
  for (int hop = 0; hop <= features.max_hops; ++hop) {
    at::Tensor only = at::zeros({features.max_hops + 1}, at::kFloat);
    only[hop] = 1;
    terms.push_back(features.to_dense(only));
  }
  return at::stack(terms).unsqueeze(0);
}

// sum_k f_k T_k of every head. f: [heads, K], terms: [heads, K, M] -> [heads, M]
class TermSum : public torch::autograd::Function<TermSum> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& f,
                            const at::Tensor& terms) {
    context->save_for_backward({terms});
    return at::bmm(f.unsqueeze(1), terms).squeeze(1);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const at::Tensor terms = context->get_saved_variables()[0];
    // On a GPU a product with so few long rows takes three times as long as two plain passes.
    if (terms.is_cuda()) return {(terms * grads[0].unsqueeze(1)).sum(-1), {}};
    return {at::bmm(terms, grads[0].unsqueeze(2)).squeeze(2), {}};
  }
};

// A A^T of every head. [heads, N, M] -> [heads, N, N]
class Square : public torch::autograd::Function<Square> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& a) {
    context->save_for_backward({a});
    return at::bmm(a, a.transpose(1, 2));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const at::Tensor a = context->get_saved_variables()[0];
    return {at::bmm(grads[0] + grads[0].transpose(1, 2), a)};  // one product instead of two
  }
};

// |sum_k f_k T_k|, or |Phi Phi^T| of it, for patches that are few enough to write the mask out. Two types,
// since a bank takes modules of one type for one function.
template <bool kSquared>
class DenseSeriesModule final : public DenseMaskModule {
 public:
  DenseSeriesModule(at::Tensor terms, std::int64_t heads, bool absolute) : absolute_(absolute) {
    terms_ = register_buffer("terms", std::move(terms));
    learn("f", f_, first_f(heads, static_cast<int>(terms_.size(1)) - 1));
  }

  const at::Tensor& parameter() const override { return f_; }
  at::Tensor head_constants() const override { return terms_.size(0) == 1 ? at::Tensor() : terms_; }
  at::Tensor shared_constants() const override { return terms_.size(0) == 1 ? terms_ : at::Tensor(); }
  at::Tensor matrices(const at::Tensor& f, const at::Tensor& head_terms) const override {
    const std::int64_t heads = f.size(0), nodes = terms_.size(2);
    const at::Tensor sum =
        head_terms.defined() ? TermSum::apply(f, head_terms.flatten(2)) : at::matmul(f, terms_[0].flatten(1));
    const at::Tensor matrix = sum.view({heads, nodes, nodes});
    return as_used(kSquared ? Square::apply(matrix) : matrix, absolute_);
  }

 private:
  bool absolute_;
  at::Tensor terms_, f_;
};

// |Phi Psi^T| where the keys have walks or an f of their own.
class DenseProductModule final : public DenseMaskModule {
 public:
  // terms: [1 or heads, 1 or 2, max_hops + 1, N, N], of the queries and, where they differ, of the keys.
  DenseProductModule(at::Tensor terms, std::int64_t heads, const MaskOptions& options)
      : absolute_(options.absolute) {
    terms_ = register_buffer("terms", std::move(terms));
    learn("f", f_, first_f(heads, options.max_hops, options.key_f));
  }

  const at::Tensor& parameter() const override { return f_; }
  at::Tensor head_constants() const override { return terms_.size(0) == 1 ? at::Tensor() : terms_; }
  at::Tensor shared_constants() const override { return terms_.size(0) == 1 ? terms_ : at::Tensor(); }
  at::Tensor matrices(const at::Tensor& f, const at::Tensor& head_terms) const override {
    const auto features = [&](std::int64_t side) {  // 0: of the queries, 1: of the keys
      const at::Tensor own_f = f.dim() == 3 ? f.select(1, side) : f;
      const at::Tensor all = head_terms.defined() ? head_terms : terms_;
      const at::Tensor own = all.select(1, std::min(side, all.size(1) - 1)).flatten(2);  // [., K, N N]
      const at::Tensor sum = head_terms.defined() ? TermSum::apply(own_f, own) : at::matmul(own_f, own[0]);
      return sum.view({f.size(0), terms_.size(3), terms_.size(4)});
    };
    return as_used(at::bmm(features(0), features(1).transpose(1, 2)), absolute_);
  }

 private:
  bool absolute_;
  at::Tensor terms_, f_;
};

WalkFeatures moved(WalkFeatures features, c10::Device device) {
  for (at::Tensor* tensor :
       {&features.row_ptr, &features.col, &features.deposit_ptr, &features.hop, &features.load})
    *tensor = tensor->to(device);
  return features;
}

// The same for graphs that are too large to write the mask out.
class SparseSeriesModule final : public MaskModule {
 public:
  SparseSeriesModule(std::shared_ptr<GrfMask> walks, std::int64_t num_sets, bool absolute)
      : walks_(std::move(walks)), num_sets_(num_sets), absolute_(absolute) {
    learn("f", f_, walks_->f().clone());
  }

  MaskPtr mask() const override {
    follow_parameters();
    if (!absolute_) return walks_->with_f(f_);
    return std::make_shared<AbsoluteMask>(walks_->with_f(f_));
  }

 private:
  // Module::to moves parameters; the walks come after them.
  void follow_parameters() const {
    if (walks_->f().device() == f_.device()) return;
    std::vector<GraphFeatures> sets;
    for (std::int64_t set = 0; set < num_sets_; ++set) {
      const GraphFeatures& features = walks_->features(set);
      const bool one = features.key.col.is_same(features.query.col);
      const WalkFeatures query = moved(features.query, f_.device());
      sets.push_back({query, one ? query : moved(features.key, f_.device()), features.ensembles});
    }
    walks_ = std::make_shared<GrfMask>(std::move(sets), f_.detach());
  }

  mutable std::shared_ptr<GrfMask> walks_;
  std::int64_t num_sets_;
  bool absolute_;
  at::Tensor f_;
};

std::int64_t num_offsets(const std::vector<std::int64_t>& grid) {
  std::int64_t count = 1;
  for (const std::int64_t extent : grid) count *= 2 * extent - 1;
  return count;
}

// Block-Toeplitz masks of offsets on a grid, all of them 1 at the start. Up to kDenseNodes patches they are
// gathered, which costs less than the transforms of a fast product.
class GatheredToeplitzModule final : public DenseMaskModule {
 public:
  GatheredToeplitzModule(const std::vector<std::int64_t>& grid, std::int64_t heads, bool absolute)
      : nodes_(num_tokens(grid)), absolute_(absolute) {
    learn("offsets", offsets_, at::ones({heads, num_offsets(grid)}));
    const at::Tensor node = at::arange(nodes_);
    at::Tensor index = at::zeros({nodes_, nodes_}, at::kLong);
    std::int64_t stride = nodes_;  // of a coordinate, the last one is the fastest
    for (const std::int64_t extent : grid) {
      stride /= extent;
      const at::Tensor coordinate = node.floor_divide(stride).remainder(extent);
      index = index * (2 * extent - 1) + coordinate.unsqueeze(0) - coordinate.unsqueeze(1) + extent - 1;
    }
    index_ = register_buffer("index", index.view({-1}));
  }

  const at::Tensor& parameter() const override { return offsets_; }
  at::Tensor shared_constants() const override { return index_; }
  at::Tensor matrices(const at::Tensor& offsets, const at::Tensor&) const override {
    // Module::to converts buffers of whole numbers as well, hence the kLong.
    return as_used(offsets, absolute_)
        .index_select(1, index_.to(at::kLong))
        .view({offsets.size(0), nodes_, nodes_});
  }

 private:
  std::int64_t nodes_;
  bool absolute_;
  at::Tensor offsets_, index_;
};

class ToeplitzModule final : public MaskModule {
 public:
  ToeplitzModule(const std::vector<std::int64_t>& grid, std::int64_t heads, bool absolute)
      : grid_(grid), transform_(absolute ? OffsetTransform::absolute : OffsetTransform::none) {
    learn("offsets", offsets_, at::ones({heads, num_offsets(grid)}));
  }

  MaskPtr mask() const override { return std::make_shared<ToeplitzMask>(grid_, offsets_, transform_); }

 private:
  std::vector<std::int64_t> grid_;
  OffsetTransform transform_;
  at::Tensor offsets_;
};

class LearnedFeaturesModule final : public DenseMaskModule {
 public:
  LearnedFeaturesModule(std::int64_t nodes, const MaskSite& site, const MaskOptions& options)
      : absolute_(options.absolute) {
    learn("features", features_, at::empty({site.heads, nodes, nodes}));
    // Independent columns, or all of them would learn the same; their products are 1 on average.
    const double scale = 1 / std::sqrt(static_cast<double>(nodes));
    fill_normal(features_, scale, scale, derive_seed(options.seed, static_cast<std::uint64_t>(site.layer)),
                "features");
  }

  const at::Tensor& parameter() const override { return features_; }
  at::Tensor matrices(const at::Tensor& features, const at::Tensor&) const override {
    return as_used(Square::apply(features), absolute_);
  }

 private:
  bool absolute_;
  at::Tensor features_;
};

class NeighbourModule final : public MaskModule {
 public:
  explicit NeighbourModule(at::Tensor matrix) { matrix_ = register_buffer("matrix", std::move(matrix)); }
  const at::Tensor& matrix() const { return matrix_; }
  MaskPtr mask() const override { return std::make_shared<DenseMask>(matrix_); }

 private:
  at::Tensor matrix_;
};

std::shared_ptr<MaskModule> make_walk_module(AttentionVariant variant, const MaskOptions& options,
                                             const MaskSite& site, const Graph& graph) {
  const FeatureOptions features = layer_walks(variant, options, site.layer);
  const at::Tensor f = first_f(site.heads, options.max_hops, options.key_f);
  const auto walks = options.share_walks ? std::make_shared<GrfMask>(graph, features, f)
                                         : GrfMask::per_head(graph, features, f);
  const std::int64_t sets = options.share_walks ? 1 : site.heads, nodes = graph.num_nodes();
  const bool own_walks = features.ensembles == Ensembles::independent;  // of the keys
  const std::int64_t bytes = sets * (own_walks ? 2 : 1) * (options.max_hops + 1) * nodes * nodes * 4;
  // Added to logits, M is dense in any case.
  const bool few_entries = variant != AttentionVariant::softmax_grf_bias &&
                           walks->profile().entries < sets * nodes * (nodes / kDenseNodesPerNonzero);
  if (nodes > kDenseNodes || bytes > kTermBytes || few_entries)
    return std::make_shared<SparseSeriesModule>(walks, sets, options.absolute);
  std::vector<at::Tensor> terms;
  for (std::int64_t set = 0; set < sets; ++set) {
    terms.push_back(dense_terms(walks->features(set).query));
    if (own_walks) terms.back() = at::stack({terms.back(), dense_terms(walks->features(set).key)}, 1);
  }
  const at::Tensor all = at::cat(terms);
  if (own_walks) return std::make_shared<DenseProductModule>(all, site.heads, options);
  if (options.key_f) return std::make_shared<DenseProductModule>(all.unsqueeze(1), site.heads, options);
  if (features.ensembles == Ensembles::asymmetric)
    return std::make_shared<DenseSeriesModule<false>>(all, site.heads, options.absolute);
  return std::make_shared<DenseSeriesModule<true>>(all, site.heads, options.absolute);
}

// W^0 .. W^max_hops: [max_hops + 1, N, N] float32.
at::Tensor powers_of(const Graph& graph, int max_hops) {
  const std::int64_t nodes = graph.num_nodes();
  check(nodes <= kMaxDenseNodes, "mask: power-series is limited to {} tokens, got {}", kMaxDenseNodes, nodes);
  const at::Tensor weight = graph.to_dense();
  at::Tensor power = at::eye(nodes, at::kDouble);
  std::vector<at::Tensor> powers = {power.to(at::kFloat)};
  for (int k = 1; k <= max_hops; ++k) {
    power = weight.matmul(power);
    powers.push_back(power.to(at::kFloat));
  }
  return at::stack(powers);
}

// T_k = W^k for every head.
std::shared_ptr<MaskModule> make_power_series_module(const MaskOptions& options, const MaskSite& site,
                                                     const MaskModule* earlier) {
  at::Tensor terms;
  if (earlier != nullptr) {
    terms = dynamic_cast<const DenseMaskModule&>(*earlier).shared_constants();
  } else {
    terms = powers_of(patch_graph(site.grid, options.patch_graph), options.max_hops).unsqueeze(0);
    if (options.key_f) terms = terms.unsqueeze(1);
  }
  if (options.key_f) return std::make_shared<DenseProductModule>(terms, site.heads, options);
  return std::make_shared<DenseSeriesModule<true>>(terms, site.heads, options.absolute);
}

// 1 within a few steps on the graph.
std::shared_ptr<MaskModule> make_neighbour_module(const MaskOptions& options, const MaskSite& site,
                                                  const MaskModule* earlier) {
  if (earlier != nullptr)
    return std::make_shared<NeighbourModule>(dynamic_cast<const NeighbourModule&>(*earlier).matrix());
  const NeighbourMask mask(patch_graph(site.grid, options.patch_graph), options.neighbour_hops);
  return std::make_shared<NeighbourModule>(mask.dense(at::kFloat));
}

}  // namespace

std::shared_ptr<MaskModule> make_mask_module(AttentionVariant variant, const MaskOptions& options,
                                             const MaskSite& site, const MaskModule* earlier) {
  check(options.max_hops >= 0, "mask: max-hops must be 0 or more, got {}", options.max_hops);
  const std::int64_t nodes = num_tokens(site.grid);
  switch (variant) {
    case AttentionVariant::softmax:
    case AttentionVariant::linear:
    case AttentionVariant::performer:
      return nullptr;
    case AttentionVariant::toeplitz:
      if (nodes <= kDenseNodes)
        return std::make_shared<GatheredToeplitzModule>(site.grid, site.heads, options.absolute);
      return std::make_shared<ToeplitzModule>(site.grid, site.heads, options.absolute);
    case AttentionVariant::power_series:
      return make_power_series_module(options, site, earlier);
    case AttentionVariant::softmax_grf:
    case AttentionVariant::softmax_grf_bias:
    case AttentionVariant::performer_grf:
    case AttentionVariant::grf:
    case AttentionVariant::grf_asymmetric:
    case AttentionVariant::ad_hoc:
      return make_walk_module(variant, options, site, patch_graph(site.grid, options.patch_graph));
    case AttentionVariant::learned_features:
      return std::make_shared<LearnedFeaturesModule>(nodes, site, options);
    case AttentionVariant::neighbours:
      return make_neighbour_module(options, site, earlier);
  }
  fail("unknown variant of attention {}", static_cast<int>(variant));
}

}  // namespace topomask
