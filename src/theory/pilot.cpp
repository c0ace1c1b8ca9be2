#include "theory/pilot.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <unordered_map>

#include "core/random.h"
#include "topomask/grf_mask.h"

namespace topomask {
namespace {

struct Moments {
  double sum = 0, squares = 0;
};

// The same features with all other rows empty, so that the product with the keys has these rows alone.
WalkFeatures keep_rows(const WalkFeatures& features, const std::vector<std::int64_t>& rows) {
  const std::int64_t nodes = features.num_nodes();
  if (static_cast<std::int64_t>(rows.size()) == nodes) return features;
  const auto* row_ptr = features.row_ptr.const_data_ptr<std::int64_t>();
  const auto* deposit_ptr = features.deposit_ptr.const_data_ptr<std::int64_t>();
  WalkFeatures kept = features;
  kept.row_ptr = at::zeros({nodes + 1}, at::kLong);
  auto* kept_ptr = kept.row_ptr.data_ptr<std::int64_t>();
  std::vector<at::Tensor> col, counts, hop, load;
  for (const std::int64_t row : rows) {
    const std::int64_t first = row_ptr[row], last = row_ptr[row + 1];
    kept_ptr[row + 1] = last - first;
    col.push_back(features.col.slice(0, first, last));
    counts.push_back(features.deposit_ptr.slice(0, first, last + 1).diff());
    hop.push_back(features.hop.slice(0, deposit_ptr[first], deposit_ptr[last]));
    load.push_back(features.load.slice(0, deposit_ptr[first], deposit_ptr[last]));
  }
  kept.row_ptr = kept.row_ptr.cumsum(0);
  kept.col = at::cat(col);
  kept.deposit_ptr = at::cat({at::zeros({1}, at::kLong), at::cat(counts).cumsum(0)});
  kept.hop = at::cat(hop);
  kept.load = at::cat(load);
  return kept;
}

struct QueryRows {
  WalkFeatures features;
  at::Tensor values;  // [nnz] float64
};

// Sum over q of Phi(i, q) Phi'(i, q) for one row of two samples; columns ascend within a row.
double row_product(const QueryRows& a, const QueryRows& b, std::int64_t node) {
  const auto* a_ptr = a.features.row_ptr.const_data_ptr<std::int64_t>();
  const auto* b_ptr = b.features.row_ptr.const_data_ptr<std::int64_t>();
  const auto* a_col = a.features.col.const_data_ptr<std::int32_t>();
  const auto* b_col = b.features.col.const_data_ptr<std::int32_t>();
  const auto* a_value = a.values.const_data_ptr<double>();
  const auto* b_value = b.values.const_data_ptr<double>();
  double sum = 0;
  std::int64_t e = a_ptr[node], g = b_ptr[node];
  while (e < a_ptr[node + 1] && g < b_ptr[node + 1]) {
    if (a_col[e] == b_col[g]) {
      sum += a_value[e++] * b_value[g++];
    } else {
      a_col[e] < b_col[g] ? ++e : ++g;
    }
  }
  return sum;
}

}  // namespace

PilotResult run_pilot(const Graph& graph, const FeatureOptions& options, const at::Tensor& modulation,
                      const std::vector<std::int64_t>& rows, std::int64_t repeats) {
  PilotResult result;
  result.repeats = repeats;
  result.rows = static_cast<std::int64_t>(rows.size());
  if (rows.empty()) return result;
  std::vector<std::unordered_map<std::int32_t, Moments>> moments(rows.size());
  std::vector<double> unbiased_diagonal(rows.size(), 0.0);
  bool shared = false;
  QueryRows previous;
  for (std::int64_t repeat = 0; repeat < repeats; ++repeat) {
    FeatureOptions repeat_options = options;
    repeat_options.walks.seed = derive_seed(options.walks.seed, static_cast<std::uint64_t>(repeat));
    GraphFeatures features = sample_features(graph, repeat_options);
    shared = features.key.col.is_same(features.query.col);
    features.query = keep_rows(features.query, rows);
    QueryRows own = {features.query, features.query.values(modulation)};
    const GrfMask mask({std::move(features)}, modulation);
    const SparseEntries entries = mask.entries().front();
    const auto* row_ptr = entries.pattern->row_ptr.const_data_ptr<std::int64_t>();
    const auto* col = entries.pattern->col.const_data_ptr<std::int32_t>();
    const auto* value = entries.values.const_data_ptr<double>();
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::int64_t e = row_ptr[rows[r]]; e < row_ptr[rows[r] + 1]; ++e) {
        Moments& entry = moments[r][col[e]];
        entry.sum += value[e];
        entry.squares += value[e] * value[e];
      }
      // Two independent samples of one row have an unbiased product even where a shared one has not.
      if (repeat > 0) unbiased_diagonal[r] += row_product(previous, own, rows[r]);
    }
    previous = std::move(own);
  }

  const auto count = static_cast<double>(repeats);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (const auto& [j, entry] : moments[r]) {
      const double mean = entry.sum / count;
      // Repeats that never reached (i, j) count as the zeros they are.
      const double variance = std::max(0.0, (entry.squares - count * mean * mean) / (count - 1));
      const bool biased = shared && j == rows[r];
      result.entries.push_back(
          {std::sqrt(variance), biased ? std::abs(mean - unbiased_diagonal[r] / (count - 1)) : 0.0});
    }
  }
  return result;
}

}  // namespace topomask
