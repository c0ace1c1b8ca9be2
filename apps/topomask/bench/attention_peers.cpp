#include "bench/attention_peers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sparse_sampled_addmm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <limits>

namespace topomask::cli {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The indices are known to be right; checking them would cost a pass over them in every call.
at::Tensor csr_matrix(const at::Tensor& crow, const at::Tensor& col, const at::Tensor& values,
                      std::int64_t columns) {
  return at::_sparse_compressed_tensor_unsafe(crow, col, values, {crow.size(0) - 1, columns},
                                              values.options().layout(at::kSparseCsr));
}

// A sparse matrix times a dense one. torch's own gradient of the sparse factor forms the dense product of its
// shape (275 GB here), so it is replaced by torch's sampled product.
class CsrProduct : public torch::autograd::Function<CsrProduct> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& crow, const at::Tensor& col,
                            const at::Tensor& values, const at::Tensor& dense) {
    context->save_for_backward({crow, col, values, dense});
    return at::mm(csr_matrix(crow, col, values, dense.size(0)), dense);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& dense = saved[3];
    const at::Tensor matrix = csr_matrix(saved[0], saved[1], saved[2], dense.size(0));
    return {at::Tensor(), at::Tensor(), at::sparse_sampled_addmm(matrix, grads[0], dense.t(), 0, 1).values(),
            at::mm(matrix.t(), grads[0])};
  }
};

// `one_head(q, k, v)` for every batch entry and head; q, k: [N, m] features, v: [N, d_v + 1] = [V|1]. The
// last column of its result is the normaliser.
at::Tensor for_each_head(
    const Operands& x, const FeatureMap& feature_map,
    const std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&)>& one_head) {
  const at::Tensor q = feature_map(x.q, true).flatten(0, 1), k = feature_map(x.k, false).flatten(0, 1),
                   v = x.v.flatten(0, 1);
  const at::Tensor ones = at::ones({v.size(1), 1}, v.options());
  const std::int64_t d_v = v.size(2);
  std::vector<at::Tensor> heads;
  for (std::int64_t i = 0; i < q.size(0); ++i) {
    const at::Tensor sums = one_head(q[i], k[i], at::cat({v[i], ones}, 1));
    heads.push_back(sums.slice(1, 0, d_v) / sums.slice(1, d_v));
  }
  return at::stack(heads).view(x.v.sizes());
}

// Row of each entry of compressed rows, [nnz] int32.
at::Tensor entry_rows(const at::Tensor& row_ptr) {
  const at::Tensor rows = at::arange(row_ptr.size(0) - 1, row_ptr.options().dtype(at::kInt));
  return rows.repeat_interleave(row_ptr.diff());
}

}  // namespace

at::Tensor unmasked_linear_attention(const Operands& x, const FeatureMap& feature_map) {
  const at::Tensor q = feature_map(x.q, true), k = feature_map(x.k, false);
  const at::Tensor sums = at::matmul(k.transpose(-2, -1), x.v);  // [B, H, m, d_v]
  const at::Tensor normaliser = at::matmul(q, k.sum(-2).unsqueeze(-1));
  return at::matmul(q, sums) / normaliser;
}

LiteralAttention::LiteralAttention(const GraphFeatures& features, std::int64_t num_features)
    : features_(features), num_features_(num_features) {
  const std::int64_t m = num_features;
  const WalkFeatures &query = features_.query, &key = features_.key;
  const at::TensorOptions ints = query.col.options(), longs = query.row_ptr.options();
  const at::Tensor channel = at::arange(m, ints);
  query_row_ = entry_rows(query.row_ptr);
  query_crow_ = query.row_ptr.mul(m).to(at::kInt);
  query_col_ = query.col.mul(m).unsqueeze(1).add(channel).view(-1);

  const SparsePattern pattern =
      SparsePattern::from_rows(key.row_ptr.cpu(), key.col.cpu()).to(key.row_ptr.device());
  key_row_ = pattern.transposed_row;
  key_entry_ = pattern.transposed_entry;
  // Row (j, c) of Phi_{K,G}^T lists the entries of column j; entry t of column j stands at
  // m first_j + c count_j + (t - first_j).
  const at::Tensor count = pattern.transposed_ptr.diff();
  const at::Tensor column = entry_rows(pattern.transposed_ptr);
  const at::Tensor first = pattern.transposed_ptr.index_select(0, column);
  const at::Tensor step = count.index_select(0, column);
  const at::Tensor place =
      (first * (m - 1) + at::arange(pattern.nnz(), longs)).unsqueeze(1) + step.unsqueeze(1) * channel;
  key_source_ = at::empty({pattern.nnz() * m}, ints);
  key_source_.scatter_(0, place.view(-1), at::arange(pattern.nnz() * m, ints));
  key_col_ = key_row_.index_select(0, key_source_.floor_divide(m));
  key_crow_ = at::cat({at::zeros({1}, longs), at::cumsum(count.repeat_interleave(m), 0)}).to(at::kInt);
}

double LiteralAttention::predicted_bytes(const GraphFeatures& features, std::int64_t num_features,
                                         std::int64_t d_v, std::int64_t element_size, bool backward) {
  const auto m = static_cast<double>(num_features), element = static_cast<double>(element_size);
  const double query = static_cast<double>(features.query.nnz()) * m,
               key = static_cast<double>(features.key.nnz()) * m;
  const double state = static_cast<double>(features.query.num_nodes()) * m * static_cast<double>(d_v + 1);
  constexpr double kMaxIndex = std::numeric_limits<std::int32_t>::max();
  if (query > kMaxIndex || key > kMaxIndex) return std::numeric_limits<double>::infinity();
  // Indices (and int64 ones while they are made); products and their factors; the state in between.
  const double forward = (query + key) * (12 + 2 * element) + state * element;
  // Gradients of the values and their factors, transposed copies of both matrices, two more states.
  return backward ? forward + (query + key) * (12 + 5 * element) + 2 * state * element : forward;
}

at::Tensor LiteralAttention::operator()(const Operands& x, const FeatureMap& feature_map) const {
  const at::ScalarType dtype = x.q.scalar_type();
  const bool one_hot_keys = features_.ensembles == Ensembles::asymmetric;
  const at::Tensor phi = features_.query.values(x.modulation).to(dtype);
  const at::Tensor psi = (one_hot_keys ? at::ones({features_.key.nnz()}, x.q.options())
                                       : features_.key.values(x.modulation).to(dtype))
                             .index_select(0, key_entry_);
  return for_each_head(x, feature_map, [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    const at::Tensor key_values = (k.index_select(0, key_row_) * psi.unsqueeze(1)).view(-1);
    const at::Tensor state =
        CsrProduct::apply(key_crow_, key_col_, key_values.index_select(0, key_source_), v);
    const at::Tensor query_values = (q.index_select(0, query_row_) * phi.unsqueeze(1)).view(-1);
    return CsrProduct::apply(query_crow_, query_col_, query_values, state);
  });
}

UnfusedAttention::UnfusedAttention(const SparsePattern& pattern)
    : crow_(pattern.row_ptr.to(at::kInt)), col_(pattern.col) {}

double UnfusedAttention::predicted_bytes(double entries, std::int64_t element_size, bool backward) {
  if (entries > std::numeric_limits<std::int32_t>::max()) return std::numeric_limits<double>::infinity();
  return entries * static_cast<double>(4 + element_size * (backward ? 8 : 4));
}

at::Tensor UnfusedAttention::operator()(const Operands& x, const GrfMask& mask,
                                        const FeatureMap& feature_map) const {
  const at::Tensor weights = mask.entries().front().values[0].to(x.q.scalar_type());
  const at::Tensor pattern =
      csr_matrix(crow_, col_, at::zeros({col_.size(0)}, x.q.options()), mask.num_nodes());
  return for_each_head(x, feature_map, [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    const at::Tensor scores = at::sparse_sampled_addmm(pattern, q, k.t(), 0, 1).values();
    return CsrProduct::apply(crow_, col_, scores * weights, v);
  });
}

}  // namespace topomask::cli
