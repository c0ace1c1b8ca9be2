#include "topomask/mask_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "core/random.h"
#include "core/units.h"
#include "walks/compile_plan.h"
#include "walks/cpu/sample.h"

namespace topomask {
namespace {

constexpr std::int64_t kFirstSample = 256, kLargestSample = 8192;
constexpr std::int64_t kEnoughPairs = 1000;  // that share a node: a standard error of some 3 %, hubs aside
constexpr std::uint32_t kSizePurpose = 0x73697a65;
constexpr double kPatternBytes = 16;  // an entry's column, its row and place in the transpose
constexpr double kValueBytes = 4;

// The first `count` of a random permutation of [0, n).
std::vector<std::int64_t> random_starts(std::int64_t n, std::int64_t count, std::uint64_t seed) {
  std::vector<std::int64_t> nodes(static_cast<std::size_t>(n));
  std::iota(nodes.begin(), nodes.end(), 0);
  if (count == n) return nodes;
  RandomStream random(seed, kSizePurpose);
  for (std::int64_t i = 0; i < count; ++i) {
    std::swap(nodes[i], nodes[i + static_cast<std::int64_t>(random.next_below(n - i))]);
  }
  nodes.resize(static_cast<std::size_t>(count));
  return nodes;
}

// Nodes that each sampled start visits, as rows.
struct VisitedRows {
  std::vector<std::int64_t> ptr = {0};  // [rows + 1]
  std::vector<std::int32_t> col;

  std::int64_t num_rows() const { return static_cast<std::int64_t>(ptr.size()) - 1; }
};

VisitedRows visited_rows(const Graph& graph, const FeatureOptions& options, std::uint32_t ensemble,
                         const std::vector<std::int64_t>& starts) {
  WalkOptions walks = options.walks;
  walks.ensemble += ensemble;
  const FeatureRows sampled =
      sample_feature_rows(graph.view(), compile_plan(walks, options.importance_weights, true), starts);
  VisitedRows rows;
  for (const std::int32_t entries : sampled.entries_in_row) rows.ptr.push_back(rows.ptr.back() + entries);
  rows.col.assign(sampled.col.begin(), sampled.col.end());
  return rows;
}

// For every query row the number of key rows, its own aside, that visit one of its nodes.
std::vector<std::int64_t> count_partners(const VisitedRows& query, const VisitedRows& key,
                                         std::int64_t num_nodes) {
  std::vector<std::int64_t> first(static_cast<std::size_t>(num_nodes) + 1, 0);
  for (const std::int32_t node : key.col) ++first[node + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<std::int32_t> visitor(key.col.size());
  std::vector<std::int64_t> next(first.begin(), first.end() - 1);
  for (std::int64_t row = 0; row < key.num_rows(); ++row) {
    for (std::int64_t e = key.ptr[row]; e < key.ptr[row + 1]; ++e) {
      visitor[next[key.col[e]]++] = static_cast<std::int32_t>(row);
    }
  }
  std::vector<std::int64_t> partners(static_cast<std::size_t>(query.num_rows()), 0);
  std::vector<std::int64_t> met_by(static_cast<std::size_t>(key.num_rows()), -1);
  for (std::int64_t row = 0; row < query.num_rows(); ++row) {
    met_by[row] = row;
    for (std::int64_t e = query.ptr[row]; e < query.ptr[row + 1]; ++e) {
      for (std::int64_t k = first[query.col[e]]; k < first[query.col[e] + 1]; ++k) {
        if (met_by[visitor[k]] == row) continue;
        met_by[visitor[k]] = row;
        ++partners[row];
      }
    }
  }
  return partners;
}

// "75 million", "1,234": three digits are all that a prediction has.
std::string in_words(double count) {
  if (count >= 1e9) return fmt::format("{:.3g} billion", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.3g} million", count / 1e6);
  return fmt::format("{:.0f}", count);
}

std::string advise(const MaskSize& size, Ensembles ensembles) {
  const std::string mask = fmt::format("the mask will have about {} entries ({})", in_words(size.entries),
                                       format_bytes(size.bytes));
  if (ensembles == Ensembles::asymmetric || size.asymmetric_bytes > size.bytes / 4) {
    return mask + ": fewer walks or a larger p_halt make it smaller";
  }
  return fmt::format(
      "{}, since many walks meet on this graph: ensembles = asymmetric has about {} ({}) and sees max_hops "
      "far "
      "instead of twice as far",
      mask, in_words(size.asymmetric_entries), format_bytes(size.asymmetric_bytes));
}

}  // namespace

MaskSize predict_mask_size(const Graph& graph, const FeatureOptions& options, const MaskSizeOptions& limits) {
  check_walk_options(options.walks);
  check(limits.heads >= 1, "predict_mask_size: heads must be positive, got {}", limits.heads);
  if (graph.device().type() != c10::DeviceType::CPU) {
    return predict_mask_size(graph.to(c10::kCPU), options, limits);
  }
  MaskSize size;
  const std::int64_t n = graph.num_nodes();
  if (n == 0) return size;
  const bool has_product = options.ensembles != Ensembles::asymmetric;
  const bool symmetric = has_product && graph.is_symmetric();
  const bool keys_are_queries = options.ensembles == Ensembles::shared && symmetric;
  const Graph key_graph = has_product && !symmetric ? graph.transposed() : graph;
  const auto all_nodes = static_cast<double>(n);
  for (std::int64_t wanted = kFirstSample;; wanted *= 4) {
    const std::int64_t sample = std::min({wanted, n, kLargestSample});
    const std::vector<std::int64_t> starts = random_starts(n, sample, options.walks.seed);
    const VisitedRows query = visited_rows(graph, options, 0, starts);
    const auto rows = static_cast<double>(sample);
    size.feature_entries = static_cast<double>(query.ptr.back()) / rows * all_nodes;
    if (!has_product) {
      double squares = 0;
      for (std::int64_t i = 0; i < sample; ++i) {
        const double excess =
            static_cast<double>(query.ptr[i + 1] - query.ptr[i]) - size.feature_entries / all_nodes;
        squares += excess * excess;
      }
      size.entries = size.feature_entries;
      size.entries_se = sample == n ? 0 : all_nodes * std::sqrt(squares / (rows - 1) / rows);
      break;
    }
    const VisitedRows key =
        keys_are_queries
            ? query
            : visited_rows(key_graph, options, options.ensembles == Ensembles::independent ? 1 : 0, starts);
    const std::vector<std::int64_t> partners = count_partners(query, key, n);
    const std::int64_t pairs = std::accumulate(partners.begin(), partners.end(), std::int64_t{0});
    if (sample == n) {  // every pair was looked at
      size.entries = all_nodes + static_cast<double>(pairs);
      break;
    }
    if (pairs < kEnoughPairs && sample < std::min(n, kLargestSample)) continue;
    // A node's own entry is always there; a pair of different nodes is one of sample (sample - 1).
    const double mean = static_cast<double>(pairs) / rows;
    double squares = 0;
    for (const std::int64_t count : partners) {
      squares += (static_cast<double>(count) - mean) * (static_cast<double>(count) - mean);
    }
    const double scale = all_nodes * (all_nodes - 1) / (rows - 1);
    size.entries = all_nodes + scale * mean;
    // Rows are drawn twice, as queries and as keys: the deviation of a mean over pairs is twice that of a
    // mean over rows.
    size.entries_se = 2 * scale * std::sqrt(squares / (rows - 1) / rows);
    break;
  }
  const double bytes_per_entry = kPatternBytes + kValueBytes * static_cast<double>(limits.heads);
  size.bytes = size.entries * bytes_per_entry;
  size.asymmetric_entries = size.feature_entries;
  size.asymmetric_bytes = size.feature_entries * bytes_per_entry;
  if (size.bytes > limits.large_bytes) size.advice = advise(size, options.ensembles);
  return size;
}

}  // namespace topomask
