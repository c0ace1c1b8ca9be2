#include "theory/pilot.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "core/parallel.h"
#include "core/random.h"
#include "walks/compile_plan.h"
#include "walks/cpu/sample.h"

namespace topomask {
namespace {

constexpr std::int64_t kPilotRows = 64;
constexpr std::int64_t kAllRows = 256;     // graphs up to this size are compared in full
constexpr std::int64_t kAllKeys = 1024;    // up to this size every node is a key
constexpr std::int64_t kKeysOfARow = 12;   // that matter most to it
constexpr std::int64_t kRandomKeys = 128;  // far from most rows
constexpr std::uint32_t kRowPurpose = 0x706c616e, kKeyPurpose = 0x6b657973;

std::vector<std::int64_t> distinct_nodes(std::int64_t num_nodes, std::int64_t count, std::uint64_t seed,
                                         std::uint32_t purpose) {
  std::set<std::int64_t> nodes;
  RandomStream random(seed, purpose);
  while (static_cast<std::int64_t>(nodes.size()) < std::min(count, num_nodes)) {
    nodes.insert(static_cast<std::int64_t>(random.next_below(static_cast<std::uint64_t>(num_nodes))));
  }
  return {nodes.begin(), nodes.end()};
}

std::vector<std::int64_t> all_nodes(std::int64_t num_nodes) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(num_nodes));
  for (std::int64_t i = 0; i < num_nodes; ++i) all[i] = i;
  return all;
}

void sort_unique(std::vector<std::int64_t>& nodes) {
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
}

// Features of a few nodes with their values for one f.
struct ValuedRows {
  std::vector<std::int64_t> ptr = {0};  // [rows + 1]
  std::vector<std::int32_t> col;        // ascending within a row
  std::vector<double> value;
};

ValuedRows valued_rows(const Graph& graph, const WalkOptions& walks, bool importance_weights,
                       const std::vector<std::int64_t>& starts, const std::vector<double>& modulation) {
  const FeatureRows sampled =
      sample_feature_rows(graph.view(), compile_plan(walks, importance_weights, true), starts);
  ValuedRows rows;
  for (const std::int32_t entries : sampled.entries_in_row) rows.ptr.push_back(rows.ptr.back() + entries);
  rows.col.assign(sampled.col.begin(), sampled.col.end());
  const std::int16_t* hop = sampled.hop.begin();
  const float* load = sampled.load.begin();
  for (const std::int32_t deposits : sampled.deposits_in_entry) {
    double value = 0;
    for (std::int32_t i = 0; i < deposits; ++i, ++hop, ++load) {
      if (static_cast<std::size_t>(*hop) < modulation.size())
        value += static_cast<double>(*load) * modulation[*hop];
    }
    rows.value.push_back(value);
  }
  return rows;
}

// Sum over q of Phi(i, q) Phi'(i, q) for row r of two samples; columns ascend within a row.
double row_product(const ValuedRows& a, const ValuedRows& b, std::size_t r) {
  double sum = 0;
  std::int64_t e = a.ptr[r], g = b.ptr[r];
  while (e < a.ptr[r + 1] && g < b.ptr[r + 1]) {
    if (a.col[e] == b.col[g]) {
      sum += a.value[e++] * b.value[g++];
    } else {
      a.col[e] < b.col[g] ? ++e : ++g;
    }
  }
  return sum;
}

struct Entry {
  std::int32_t row;  // among the pilot's rows
  std::int32_t key;  // among its keys; a node for one-hot keys
  double value;
};

// The entries of Phi Psi^T between the rows of `query` and those of `key`.
std::vector<Entry> entries_between(const ValuedRows& query, const ValuedRows& key, std::int64_t num_nodes) {
  // The columns that some query visits, numbered; of the others nothing is needed.
  std::vector<std::int32_t> number(static_cast<std::size_t>(num_nodes), -1);
  std::int32_t columns = 0;
  for (const std::int32_t node : query.col) {
    if (number[node] < 0) number[node] = columns++;
  }
  std::vector<std::int64_t> first(static_cast<std::size_t>(columns) + 1, 0);
  for (const std::int32_t node : key.col) {
    if (number[node] >= 0) ++first[number[node] + 1];
  }
  for (std::int32_t c = 0; c < columns; ++c) first[c + 1] += first[c];
  struct Visit {
    std::int32_t key;
    double value;
  };
  std::vector<Visit> visits(static_cast<std::size_t>(first.back()));
  std::vector<std::int64_t> next(first.begin(), first.end() - 1);
  const std::size_t num_keys = key.ptr.size() - 1;
  for (std::size_t k = 0; k < num_keys; ++k) {
    for (std::int64_t e = key.ptr[k]; e < key.ptr[k + 1]; ++e) {
      const std::int32_t c = number[key.col[e]];
      if (c >= 0) visits[next[c]++] = {static_cast<std::int32_t>(k), key.value[e]};
    }
  }
  std::vector<Entry> entries;
  std::vector<double> sum(num_keys, 0);
  std::vector<char> met(num_keys, 0);
  std::vector<std::int32_t> partners;
  for (std::size_t r = 0; r + 1 < query.ptr.size(); ++r) {
    partners.clear();
    for (std::int64_t e = query.ptr[r]; e < query.ptr[r + 1]; ++e) {
      const std::int32_t c = number[query.col[e]];
      for (std::int64_t v = first[c]; v < first[c + 1]; ++v) {
        const std::int32_t k = visits[v].key;
        if (!met[k]) {
          met[k] = 1;
          partners.push_back(k);
        }
        sum[k] += query.value[e] * visits[v].value;
      }
    }
    for (const std::int32_t k : partners) {
      entries.push_back({static_cast<std::int32_t>(r), k, sum[k]});
      sum[k] = 0;
      met[k] = 0;
    }
  }
  return entries;
}

struct Moments {
  double sum = 0, squares = 0;
};

struct Repeat {
  ValuedRows query;
  std::vector<Entry> entries;
};

}  // namespace

PilotNodes choose_pilot_nodes(const Graph& graph, const FeatureOptions& options,
                              const std::vector<double>& modulation) {
  const std::int64_t n = graph.num_nodes();
  PilotNodes nodes;
  if (n <= kAllRows) {
    nodes.rows = nodes.keys = all_nodes(n);
    return nodes;
  }
  nodes.rows = distinct_nodes(n, kPilotRows, options.walks.seed, kRowPurpose);
  const CsrView view = graph.view();
  std::int64_t hub = 0, steep = 0;
  double steepest = -1;
  for (std::int64_t i = 0; i < n; ++i) {
    if (view.degree(i) > view.degree(hub)) hub = i;
    for (std::int64_t e = view.row_ptr[i]; e < view.row_ptr[i + 1]; ++e) {
      const double growth =
          std::abs(static_cast<double>(view.weight[e])) * static_cast<double>(view.degree(i));
      if (growth > steepest) steepest = growth, steep = i;
    }
  }
  nodes.rows.insert(nodes.rows.end(), {hub, steep});
  sort_unique(nodes.rows);
  if (options.ensembles == Ensembles::asymmetric) return nodes;
  if (n <= kAllKeys) {
    nodes.keys = all_nodes(n);
    return nodes;
  }
  nodes.keys = distinct_nodes(n, kRandomKeys, options.walks.seed, kKeyPurpose);
  nodes.keys.insert(nodes.keys.end(), nodes.rows.begin(), nodes.rows.end());
  const ValuedRows first =
      valued_rows(graph, options.walks, options.importance_weights, nodes.rows, modulation);
  std::vector<std::int64_t> order;
  for (std::size_t r = 0; r < nodes.rows.size(); ++r) {
    order.resize(static_cast<std::size_t>(first.ptr[r + 1] - first.ptr[r]));
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = first.ptr[r] + static_cast<std::int64_t>(i);
    const auto count = static_cast<std::ptrdiff_t>(std::min<std::size_t>(order.size(), kKeysOfARow));
    std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](std::int64_t a, std::int64_t b) {
      const double left = std::abs(first.value[a]), right = std::abs(first.value[b]);
      return left != right ? left > right : a < b;
    });
    for (std::ptrdiff_t i = 0; i < count; ++i) nodes.keys.push_back(first.col[order[i]]);
  }
  sort_unique(nodes.keys);
  return nodes;
}

PilotResult run_pilot(const Graph& graph, const FeatureOptions& options,
                      const std::vector<double>& modulation, const PilotNodes& nodes, std::int64_t repeats) {
  PilotResult result;
  result.repeats = repeats;
  result.rows = static_cast<std::int64_t>(nodes.rows.size());
  if (nodes.rows.empty()) return result;
  const bool one_hot_keys = options.ensembles == Ensembles::asymmetric;
  const bool symmetric = one_hot_keys || graph.is_symmetric();
  const bool shared = options.ensembles == Ensembles::shared && symmetric;
  const Graph key_graph = symmetric ? graph : graph.transposed();
  // Every key by its own walks; where keys are queries, the walks of the rows are among them.
  const auto sample = [&](std::int64_t repeat, Repeat& found) {
    WalkOptions walks = options.walks;
    walks.seed = derive_seed(options.walks.seed, static_cast<std::uint64_t>(repeat));
    found.query = valued_rows(graph, walks, options.importance_weights, nodes.rows, modulation);
    found.entries.clear();
    if (one_hot_keys) {
      for (std::size_t r = 0; r < nodes.rows.size(); ++r) {
        for (std::int64_t e = found.query.ptr[r]; e < found.query.ptr[r + 1]; ++e)
          found.entries.push_back({static_cast<std::int32_t>(r), found.query.col[e], found.query.value[e]});
      }
      return;
    }
    if (options.ensembles == Ensembles::independent) walks.ensemble += 1;
    found.entries = entries_between(
        found.query, valued_rows(key_graph, walks, options.importance_weights, nodes.keys, modulation),
        graph.num_nodes());
  };

  const std::int64_t columns =
      one_hot_keys ? graph.num_nodes() : static_cast<std::int64_t>(nodes.keys.size());
  std::unordered_map<std::int64_t, Moments> of_nodes;  // by place: row * columns + key
  std::vector<Moments> of_keys(one_hot_keys ? 0 : nodes.rows.size() * nodes.keys.size());
  std::vector<double> unbiased_diagonal(nodes.rows.size(), 0.0);
  // Repeats side by side, added up in their order: the result does not depend on the number of threads.
  std::vector<Repeat> batch(static_cast<std::size_t>(std::min<std::int64_t>(repeats, num_threads())));
  ValuedRows previous;
  for (std::int64_t done = 0; done < repeats; done += static_cast<std::int64_t>(batch.size())) {
    const std::int64_t count =
        std::min<std::int64_t>(static_cast<std::int64_t>(batch.size()), repeats - done);
    parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) sample(done + i, batch[i]);
    });
    for (std::int64_t i = 0; i < count; ++i) {
      Repeat& own = batch[i];
      for (const Entry& entry : own.entries) {
        const std::int64_t place = entry.row * columns + entry.key;
        Moments& of = one_hot_keys ? of_nodes[place] : of_keys[place];
        of.sum += entry.value;
        of.squares += entry.value * entry.value;
      }
      // Two independent samples of one row have an unbiased product even where a shared one has not.
      if (shared && done + i > 0) {
        for (std::size_t r = 0; r < nodes.rows.size(); ++r)
          unbiased_diagonal[r] += row_product(previous, own.query, r);
      }
      previous = std::move(own.query);
    }
  }

  const auto count = static_cast<double>(repeats);
  const auto finish = [&](std::int64_t place, const Moments& entry) {
    if (entry.squares == 0) return;  // never met, or a column whose f is zero
    const auto r = static_cast<std::size_t>(place / columns);
    const double mean = entry.sum / count;
    // Repeats that never reached (i, j) count as the zeros they are.
    const double variance = std::max(0.0, (entry.squares - count * mean * mean) / (count - 1));
    const bool biased = shared && nodes.keys[place % columns] == nodes.rows[r];
    result.entries.push_back(
        {std::sqrt(variance), biased ? std::abs(mean - unbiased_diagonal[r] / (count - 1)) : 0.0});
  };
  for (const auto& [place, entry] : of_nodes) finish(place, entry);
  for (std::size_t place = 0; place < of_keys.size(); ++place)
    finish(static_cast<std::int64_t>(place), of_keys[place]);
  return result;
}

}  // namespace topomask
