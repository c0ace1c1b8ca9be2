#include "theory/pilot.h"

#include <cmath>
#include <memory>
#include <unordered_map>

#include "core/random.h"
#include "theory/sampled_mask.h"

namespace topomask {
namespace {

struct Moments {
  double sum = 0, squares = 0;
};

// Sum over q of Phi(i, q) Phi'(i, q) for one row of two samples; columns ascend within a row.
double row_product(const SampledMask& a, const SampledMask& b, std::int64_t node) {
  double sum = 0;
  std::int64_t e = a.query.row_ptr[node], g = b.query.row_ptr[node];
  while (e < a.query.row_ptr[node + 1] && g < b.query.row_ptr[node + 1]) {
    if (a.query.col[e] == b.query.col[g]) {
      sum += a.query_values[e++] * b.query_values[g++];
    } else {
      a.query.col[e] < b.query.col[g] ? ++e : ++g;
    }
  }
  return sum;
}

}  // namespace

PilotResult run_pilot(const Graph& graph, const FeatureOptions& options,
                      const std::vector<double>& query_modulation, const std::vector<double>& key_modulation,
                      const std::vector<std::int64_t>& rows, std::int64_t repeats) {
  std::vector<std::unordered_map<std::int32_t, Moments>> moments(rows.size());
  std::vector<double> unbiased_diagonal(rows.size(), 0.0);
  MaskRow row(graph.num_nodes());
  SparseColumns keys;
  bool shared = false;
  std::unique_ptr<SampledMask> previous;
  for (std::int64_t repeat = 0; repeat < repeats; ++repeat) {
    FeatureOptions repeat_options = options;
    repeat_options.walks.seed = derive_seed(options.walks.seed, static_cast<std::uint64_t>(repeat));
    auto sample = std::make_unique<SampledMask>(graph, repeat_options, query_modulation, key_modulation);
    shared = sample->key_is_query();
    std::vector<std::uint8_t> wanted(static_cast<std::size_t>(sample->key.num_columns), 0);
    for (const std::int64_t node : rows) {
      for (std::int64_t e = sample->query.row_ptr[node]; e < sample->query.row_ptr[node + 1]; ++e) {
        wanted[sample->query.col[e]] = 1;
      }
    }
    gather_columns(sample->key, sample->key_values, wanted, keys);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      row.compute(sample->query, sample->query_values, keys, rows[r]);
      for (const std::int32_t j : row.visited) {
        Moments& entry = moments[r][j];
        entry.sum += row.value[j];
        entry.squares += row.value[j] * row.value[j];
      }
      // Two independent samples of one row have an unbiased product even where a shared one has not.
      if (previous) unbiased_diagonal[r] += row_product(*previous, *sample, rows[r]);
    }
    previous = std::move(sample);
  }

  PilotResult result;
  result.repeats = repeats;
  result.rows = static_cast<std::int64_t>(rows.size());
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
