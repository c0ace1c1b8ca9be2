// What the ranks of a partition would hold and send, counted in one process. Each number is that of the code
// that it stands for: fetch_region, fetch_remote_keys, make_mask_rows and make_mask_columns.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/interruption.h"
#include "graph/part_rows.h"
#include "masks/cpu/sparse_product.h"
#include "masks/sparse_ops.h"
#include "topomask/rank_plan.h"

namespace topomask {
namespace {

// Of M, whose entries are counted. A prime, as in memory_plan.cpp.
constexpr std::int64_t kSampledRows = 4001;

constexpr RankCountField kCountFields[] = {{"nodes", &RankCounts::nodes},
                                           {"entries", &RankCounts::entries},
                                           {"halo", &RankCounts::halo},
                                           {"sends", &RankCounts::sends},
                                           {"cut_entries", &RankCounts::cut_entries},
                                           {"reach_rows", &RankCounts::reach_rows},
                                           {"reach_entries", &RankCounts::reach_entries},
                                           {"features", &RankCounts::features},
                                           {"deposits", &RankCounts::deposits},
                                           {"key_features", &RankCounts::key_features},
                                           {"key_deposits", &RankCounts::key_deposits},
                                           {"mask_entries", &RankCounts::mask_entries},
                                           {"boundary_rows", &RankCounts::boundary_rows},
                                           {"mask_halo", &RankCounts::mask_halo},
                                           {"mask_sends", &RankCounts::mask_sends},
                                           {"query_columns", &RankCounts::query_columns},
                                           {"query_sends", &RankCounts::query_sends},
                                           {"key_columns", &RankCounts::key_columns},
                                           {"sent_key_entries", &RankCounts::sent_key_entries},
                                           {"sent_key_deposits", &RankCounts::sent_key_deposits},
                                           {"introductions", &RankCounts::introductions},
                                           {"pairs", &RankCounts::pairs}};

// Distinct numbers below a limit, in the order in which they came.
class SmallSet {
 public:
  explicit SmallSet(std::int64_t limit) : seen_(static_cast<std::size_t>(limit), 0) {}
  void clear() {
    for (const std::int32_t value : values_) seen_[static_cast<std::size_t>(value)] = 0;
    values_.clear();
  }
  bool add(std::int32_t value) {
    if (contains(value)) return false;
    seen_[static_cast<std::size_t>(value)] = 1;
    values_.push_back(value);
    return true;
  }
  bool contains(std::int32_t value) const { return seen_[static_cast<std::size_t>(value)] != 0; }
  const std::vector<std::int32_t>& values() const { return values_; }

 private:
  std::vector<char> seen_;
  std::vector<std::int32_t> values_;
};

class RankCounter {
 public:
  RankCounter(const Partition& partition, std::int64_t num_nodes)
      : numbering_(numbering_of(partition, num_nodes)), counts_(static_cast<std::size_t>(partition.parts)) {}

  void count_rows(const CsrView& graph);
  void count_reach(const CsrView& graph, int max_hops);
  void count_features(const GraphFeatures& features);
  void count_mask(const GraphFeatures& features);
  std::vector<RankCounts> take() { return std::move(counts_); }

 private:
  RankCounts& of(std::int64_t part) { return counts_[static_cast<std::size_t>(part)]; }
  std::int32_t owner(std::int64_t node) const { return numbering_.part()[static_cast<std::size_t>(node)]; }

  ShardNumbering numbering_;
  std::vector<RankCounts> counts_;
};

void RankCounter::count_rows(const CsrView& graph) {
  const std::unique_ptr<PartRows> rows = rows_in_memory(graph, numbering_);
  const PartitionSummary summary = survey_parts(*rows, numbering_, false).summary;
  for (std::size_t p = 0; p < counts_.size(); ++p) {
    counts_[p].nodes = static_cast<double>(summary.parts[p].nodes);
    counts_[p].entries = static_cast<double>(summary.parts[p].entries);
    counts_[p].halo = static_cast<double>(summary.parts[p].halo);
    counts_[p].sends = static_cast<double>(summary.parts[p].sends);
  }
  for (std::int64_t i = 0; i < graph.num_nodes; ++i) {
    for (std::int64_t e = graph.row_ptr[i]; e < graph.row_ptr[i + 1]; ++e)
      of(owner(i)).cut_entries += owner(graph.col[e]) != owner(i);
  }
}

// Rows of nodes at 1 to max_hops - 1 hops from a part: the last hop needs no row.
void RankCounter::count_reach(const CsrView& graph, int max_hops) {
  std::vector<std::int32_t> reached(static_cast<std::size_t>(graph.num_nodes), -1), front, next;
  for (std::int32_t p = 0; p < static_cast<std::int32_t>(counts_.size()); ++p) {
    poll_interruption();
    const auto nodes = numbering_.nodes(p);
    front.assign(nodes.begin(), nodes.end());
    for (const std::int32_t node : front) reached[static_cast<std::size_t>(node)] = p;
    for (int hop = 1; hop < max_hops && !front.empty(); ++hop) {
      next.clear();
      for (const std::int32_t node : front) {
        for (std::int64_t e = graph.row_ptr[node]; e < graph.row_ptr[node + 1]; ++e) {
          std::int32_t& mark = reached[static_cast<std::size_t>(graph.col[e])];
          if (mark == p) continue;
          mark = p;
          next.push_back(graph.col[e]);
          of(p).reach_rows += 1;
          of(p).reach_entries += static_cast<double>(graph.degree(graph.col[e]));
        }
      }
      front.swap(next);
    }
  }
}

void RankCounter::count_features(const GraphFeatures& features) {
  const bool own_keys =
      features.ensembles != Ensembles::asymmetric && !features.key.col.is_same(features.query.col);
  const auto add = [&](const WalkFeatures& from, double RankCounts::*entries, double RankCounts::*deposits) {
    const std::int64_t* row_ptr = from.row_ptr.const_data_ptr<std::int64_t>();
    const std::int64_t* deposit_ptr = from.deposit_ptr.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < from.num_nodes(); ++i) {
      of(owner(i)).*entries += static_cast<double>(row_ptr[i + 1] - row_ptr[i]);
      of(owner(i)).*deposits += static_cast<double>(deposit_ptr[row_ptr[i + 1]] - deposit_ptr[row_ptr[i]]);
    }
  };
  add(features.query, &RankCounts::features, &RankCounts::deposits);
  if (own_keys) add(features.key, &RankCounts::key_features, &RankCounts::key_deposits);
}

// Column c is met by the parts Q_c whose queries visit it and held by the parts K_c whose keys do. A key in c
// goes to every part of Q_c but its own; a row is at the boundary where a part other than its own holds keys
// in one of its columns.
void RankCounter::count_mask(const GraphFeatures& features) {
  const bool one_hot = features.ensembles == Ensembles::asymmetric;
  const WalkFeatures &query = features.query, &key = features.key;
  const std::int64_t n = query.num_nodes();
  const SparsePattern query_pattern = SparsePattern::from_rows(query.row_ptr, query.col);
  const bool same = !one_hot && key.col.is_same(query.col);
  const SparsePattern key_pattern = same ? query_pattern : SparsePattern::from_rows(key.row_ptr, key.col);
  const SparseRows query_columns = transposed_rows_of(query_pattern),
                   key_columns = transposed_rows_of(key_pattern);
  const std::int64_t* key_deposit = key.deposit_ptr.const_data_ptr<std::int64_t>();

  const auto parts = static_cast<std::int64_t>(counts_.size());
  SmallSet meeting(parts), holding(parts);
  std::vector<std::int64_t> meeting_ptr = {0};                             // [n+1]
  std::vector<std::int32_t> meeting_parts;                                 // Q_c, column by column
  std::vector<std::int32_t> only_holder(static_cast<std::size_t>(n), -1);  // -1: K_c has several
  for (std::int64_t c = 0; c < n; ++c) {
    if (c % 4096 == 0) poll_interruption();
    meeting.clear();
    holding.clear();
    for (std::int64_t t = query_columns.row_ptr[c]; t < query_columns.row_ptr[c + 1]; ++t)
      meeting.add(owner(query_columns.col[t]));
    for (std::int64_t t = key_columns.row_ptr[c]; t < key_columns.row_ptr[c + 1]; ++t)
      holding.add(owner(key_columns.col[t]));
    if (holding.values().size() == 1) only_holder[static_cast<std::size_t>(c)] = holding.values()[0];
    meeting_parts.insert(meeting_parts.end(), meeting.values().begin(), meeting.values().end());
    meeting_ptr.push_back(static_cast<std::int64_t>(meeting_parts.size()));
    RankCounts& own = of(owner(c));
    const auto queries = static_cast<double>(query_columns.row_ptr[c + 1] - query_columns.row_ptr[c]);
    own.pairs += queries * static_cast<double>(key_columns.row_ptr[c + 1] - key_columns.row_ptr[c]);
    for (const std::int32_t part : meeting.values()) {
      if (part == owner(c)) continue;
      of(part).query_columns += 1;
      own.query_sends += 1;
    }
    for (const std::int32_t part : holding.values()) {
      if (one_hot || part == owner(c)) continue;
      of(part).key_columns += 1;
      own.introductions += static_cast<double>(meeting.values().size()) - meeting.contains(part);
    }
  }

  const std::int32_t *query_col = query.col.const_data_ptr<std::int32_t>(),
                     *key_col = key.col.const_data_ptr<std::int32_t>();
  const std::int64_t *query_ptr = query.row_ptr.const_data_ptr<std::int64_t>(),
                     *key_ptr = key.row_ptr.const_data_ptr<std::int64_t>();
  SmallSet wanting(parts);
  for (std::int64_t i = 0; i < n; ++i) {
    if (i % 4096 == 0) poll_interruption();
    wanting.clear();
    RankCounts& own = of(owner(i));
    for (std::int64_t e = key_ptr[i]; e < key_ptr[i + 1]; ++e) {
      const auto c = static_cast<std::size_t>(key_col[e]);
      for (std::int64_t t = meeting_ptr[c]; t < meeting_ptr[c + 1]; ++t) {
        const std::int32_t part = meeting_parts[static_cast<std::size_t>(t)];
        if (part == owner(i)) continue;
        wanting.add(part);
        if (one_hot) continue;
        own.sent_key_entries += 1;
        own.sent_key_deposits += static_cast<double>(key_deposit[e + 1] - key_deposit[e]);
      }
    }
    own.mask_sends += static_cast<double>(wanting.values().size());
    for (const std::int32_t part : wanting.values()) of(part).mask_halo += 1;
    bool interior = true;
    for (std::int64_t e = query_ptr[i]; e < query_ptr[i + 1] && interior; ++e)
      interior = only_holder[static_cast<std::size_t>(query_col[e])] == owner(i);
    own.boundary_rows += interior ? 0 : 1;
  }

  const double entries = one_hot ? static_cast<double>(query.nnz())
                                 : estimate_product_nnz(rows_of(query_pattern), key_columns, kSampledRows);
  for (RankCounts& own : counts_)
    own.mask_entries = one_hot ? own.features : entries * own.nodes / std::max(1.0, static_cast<double>(n));
}

}  // namespace

std::span<const RankCountField> rank_count_fields() {
  return kCountFields;
}

std::vector<RankCounts> count_ranks(const Graph& anywhere, const Partition& partition,
                                    const FeatureOptions& options) {
  const Graph graph = anywhere.to(at::kCPU);
  const GraphFeatures features = sample_features(graph, options);
  RankCounter counter(partition, graph.num_nodes());
  counter.count_rows(graph.view());
  counter.count_reach(graph.view(), options.walks.max_hops);
  const bool own_keys =
      options.ensembles != Ensembles::asymmetric && !features.key.col.is_same(features.query.col);
  if (own_keys) {  // keys walk on the transpose, which fetches its own rows
    const Graph columns = graph.is_symmetric() ? graph : graph.transposed();
    counter.count_reach(columns.view(), options.walks.max_hops);
  }
  counter.count_features(features);
  counter.count_mask(features);
  return counter.take();
}

}  // namespace topomask
