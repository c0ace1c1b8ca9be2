// Walks that cross the borders of parts. A rank either fetches the rows of all nodes within reach and walks
// alone, or sends each walker to the rank that owns the node it stands on. Random words are drawn for
// original numbers, and sums run in the order of walks, so both give the features of one process.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "core/check.h"
#include "core/interruption.h"
#include "distributed/messages.h"
#include "distributed/node_exchange.h"
#include "distributed/walk_messages.h"
#include "graph/tensors.h"
#include "topomask/distributed.h"
#include "walks/compile_plan.h"
#include "walks/cpu/sample.h"
#include "walks/cpu/walk_block.h"

namespace topomask {
namespace {

// Rows of own nodes and of all nodes within reach. Those that walks reach but do not leave have none.
struct Region {
  std::vector<std::int64_t> row_ptr;
  std::vector<std::int32_t> col;
  std::vector<float> weight;
  std::vector<std::int32_t> original, place;

  CsrView view() const {
    return {static_cast<std::int64_t>(original.size()), row_ptr.data(), col.data(), weight.data(),
            original.data()};
  }
};

struct Traffic {
  double walkers = 0;      // bytes to send walkers, all ranks
  double bytes_a_row = 0;  // of a fetched row, on average
};

Traffic predict_traffic(const DistributedGraph& graph, const WalkOptions& options) {
  const CsrView rows = graph.view();
  double cut = 0;
  for (std::int64_t e = 0; e < rows.num_entries(); ++e) cut += rows.col[e] >= rows.num_nodes;
  const at::Tensor sums = graph.ranks()->sum(
      at::tensor({static_cast<double>(rows.num_nodes), static_cast<double>(rows.num_entries()), cut},
                 at::kDouble),
      "traffic");
  const double nodes = sums[0].item<double>(), entries = sums[1].item<double>();
  const double cut_share = entries > 0 ? sums[2].item<double>() / entries : 0;
  return {walker_bytes(nodes, cut_share, options), fetched_row_bytes(nodes > 0 ? entries / nodes : 0)};
}

// The rows that walks of `hops` hops need; nothing where they would take more bytes than `limit`, if given.
std::optional<Region> fetch_region(const DistributedGraph& graph, int hops, const Traffic& traffic,
                                   bool limited) {
  const Ranks& ranks = *graph.ranks();
  const CsrView own = graph.view();
  Region region = {{own.row_ptr, own.row_ptr + own.num_nodes + 1},
                   {own.col, own.col + own.num_entries()},
                   {own.weight, own.weight + own.num_entries()},
                   graph.original(),
                   graph.place()};
  std::unordered_map<std::int32_t, std::int32_t> index;  // of nodes of others, by place
  for (std::size_t i = static_cast<std::size_t>(own.num_nodes); i < region.place.size(); ++i)
    index.emplace(region.place[i], static_cast<std::int32_t>(i));
  const std::vector<std::int64_t>& begin = graph.begin();
  const std::int64_t first = begin[static_cast<std::size_t>(ranks.rank())];
  double spent = 0;
  for (int level = 1; level < hops; ++level) {
    const std::size_t done = region.row_ptr.size() - 1, end = region.place.size();
    const double wanted =
        ranks.sum(at::tensor({static_cast<double>(end - done)}, at::kDouble), "walks").item<double>();
    if (wanted == 0) break;
    spent += wanted * traffic.bytes_a_row;
    if (limited && spent > traffic.walkers) return std::nullopt;
    // Rows come in the order in which they were asked for: rank by rank.
    PerRank<std::int32_t> ask = lists_for<std::int32_t>(ranks);
    PerRank<std::size_t> node_of = lists_for<std::size_t>(ranks);
    for (std::size_t i = done; i < end; ++i) {
      const auto owner = static_cast<std::size_t>(owner_of(begin, region.place[i]));
      ask[owner].push_back(static_cast<std::int32_t>(region.place[i] - begin[owner]));
      node_of[owner].push_back(i);
    }
    const PerRank<std::int32_t> asked = exchange_lists(ranks, ask, "walks");
    PerRank<std::int32_t> degrees = lists_for<std::int32_t>(ranks);
    PerRank<FetchedEntry> entries = lists_for<FetchedEntry>(ranks);
    for (std::size_t r = 0; r < asked.size(); ++r) {
      for (const std::int32_t row : asked[r]) {
        degrees[r].push_back(static_cast<std::int32_t>(own.degree(row)));
        for (std::int64_t e = own.row_ptr[row]; e < own.row_ptr[row + 1]; ++e)
          entries[r].push_back({graph.place()[own.col[e]], graph.original()[own.col[e]], own.weight[e]});
      }
    }
    const PerRank<std::int32_t> lengths = exchange_lists(ranks, degrees, "walks");
    const PerRank<FetchedEntry> rows = exchange_lists(ranks, entries, "walks");
    // Where each node's row stands in what came.
    std::vector<std::tuple<std::size_t, std::size_t, std::size_t>> found(end - done);  // rank, begin, length
    for (std::size_t r = 0; r < lengths.size(); ++r) {
      std::size_t at = 0;
      for (std::size_t k = 0; k < lengths[r].size(); ++k) {
        found[node_of[r][k] - done] = {r, at, static_cast<std::size_t>(lengths[r][k])};
        at += static_cast<std::size_t>(lengths[r][k]);
      }
    }
    for (const auto& [r, at, length] : found) {
      for (std::size_t k = at; k < at + length; ++k) {
        const FetchedEntry& entry = rows[r][k];
        std::int32_t column = entry.place - static_cast<std::int32_t>(first);
        if (column < 0 || column >= own.num_nodes) {
          const auto [known, added] =
              index.emplace(entry.place, static_cast<std::int32_t>(region.place.size()));
          if (added) {
            region.place.push_back(entry.place);
            region.original.push_back(entry.original);
          }
          column = known->second;
        }
        region.col.push_back(column);
        region.weight.push_back(entry.weight);
      }
      region.row_ptr.push_back(static_cast<std::int64_t>(region.col.size()));
    }
  }
  region.row_ptr.resize(region.place.size() + 1, region.row_ptr.back());
  return region;
}

// All visits of the walks of own nodes, by start, hop and walk.
std::vector<Visit> send_walkers(const DistributedGraph& graph, const WalkPlan& plan) {
  const Ranks& ranks = *graph.ranks();
  const std::vector<std::int64_t>& begin = graph.begin();
  const auto first = static_cast<std::int32_t>(begin[static_cast<std::size_t>(ranks.rank())]);
  CsrView rows = graph.view();
  rows.number = graph.original().data();
  const NeighbourTable table = make_neighbour_table(rows, plan);
  std::vector<LooseWalker> walkers;  // home: the start's place
  for (std::int32_t node = 0; node < rows.num_nodes; ++node) {
    for (std::int32_t walk = 0; walk < plan.num_walks; ++walk) {
      const int length = walk_length(plan, rows.number_of(node), walk);
      if (length > 0) walkers.push_back({rows.number_of(node), first + node, walk, node, length, 1.0f});
    }
  }
  PerRank<Visit> visits = lists_for<Visit>(ranks);
  for (int hop = 0; hop < plan.max_hops; ++hop) {
    poll_interruption();
    std::erase_if(walkers, [&](const LooseWalker& walker) {
      return walker.length <= hop || rows.degree(walker.node) == 0;
    });
    const double left =
        ranks.sum(at::tensor({static_cast<double>(walkers.size())}, at::kDouble), "walks").item<double>();
    if (left == 0) break;
    step_walkers(plan, table, hop, walkers);
    PerRank<SentWalker> leaving = lists_for<SentWalker>(ranks);
    std::size_t kept = 0;
    for (const LooseWalker& walker : walkers) {
      const std::int32_t place = graph.place()[walker.node];
      const int home = owner_of(begin, walker.home);
      visits[static_cast<std::size_t>(home)].push_back(
          {static_cast<std::int32_t>(walker.home - begin[static_cast<std::size_t>(home)]), walker.walk,
           hop + 1, place, graph.original()[walker.node], walker.load});
      if (walker.node < rows.num_nodes) {
        walkers[kept++] = walker;
      } else {
        leaving[static_cast<std::size_t>(owner_of(begin, place))].push_back(
            {walker.home, static_cast<std::int32_t>(walker.start), walker.walk, place, walker.length,
             walker.load});
      }
    }
    walkers.resize(kept);
    for (const std::vector<SentWalker>& list : exchange_lists(ranks, leaving, "walkers")) {
      for (const SentWalker& walker : list) {
        walkers.push_back({walker.start_original, walker.start_place, walker.walk, walker.node - first,
                           walker.length, walker.load});
      }
    }
  }
  std::vector<Visit> own;
  for (const std::vector<Visit>& list : exchange_lists(ranks, visits, "visits"))
    own.insert(own.end(), list.begin(), list.end());
  std::sort(own.begin(), own.end(), [](const Visit& a, const Visit& b) {
    return std::tie(a.start, a.hop, a.walk) < std::tie(b.start, b.hop, b.walk);
  });
  return own;
}

// Rows of features and the place of each of their columns.
struct PlacedRows {
  std::vector<std::int64_t> row_ptr = {0}, deposit_ptr = {0};
  std::vector<std::int32_t> col, place;
  std::vector<std::int16_t> hop;
  std::vector<float> load;
};

// From columns that are rows of the region to original numbers, ascending.
PlacedRows by_original(const Region& region, const FeaturePieces& pieces) {
  std::vector<std::int64_t> row_ptr(static_cast<std::size_t>(pieces.num_rows) + 1),
      deposit_ptr(static_cast<std::size_t>(pieces.nnz) + 1);
  std::vector<std::int32_t> col(static_cast<std::size_t>(pieces.nnz));
  std::vector<std::int16_t> hop(static_cast<std::size_t>(pieces.num_deposits));
  std::vector<float> load(hop.size());
  pieces.copy_to(row_ptr.data(), col.data(), deposit_ptr.data(), hop.data(), load.data());
  PlacedRows rows;
  rows.row_ptr = row_ptr;
  rows.col.reserve(col.size());
  rows.place.reserve(col.size());
  rows.deposit_ptr.reserve(deposit_ptr.size());
  rows.hop.reserve(hop.size());
  rows.load.reserve(load.size());
  std::vector<std::pair<std::int32_t, std::int64_t>> order;  // original number, entry
  for (std::size_t row = 0; row + 1 < row_ptr.size(); ++row) {
    order.clear();
    for (std::int64_t e = row_ptr[row]; e < row_ptr[row + 1]; ++e)
      order.emplace_back(region.original[col[e]], e);
    std::sort(order.begin(), order.end());
    for (const auto& [original, e] : order) {
      rows.col.push_back(original);
      rows.place.push_back(region.place[col[e]]);
      rows.hop.insert(rows.hop.end(), hop.begin() + deposit_ptr[e], hop.begin() + deposit_ptr[e + 1]);
      rows.load.insert(rows.load.end(), load.begin() + deposit_ptr[e], load.begin() + deposit_ptr[e + 1]);
      rows.deposit_ptr.push_back(static_cast<std::int64_t>(rows.hop.size()));
    }
  }
  return rows;
}

PlacedRows coalesce_visits(const DistributedGraph& graph, const WalkPlan& plan,
                           const std::vector<Visit>& visits) {
  PlacedRows rows;
  FeatureRows found;
  Coalescer coalescer;
  const float scale = 1.0f / static_cast<float>(plan.num_walks);
  std::unordered_map<std::int32_t, std::int32_t> place_of;  // original -> place, of one row
  std::size_t visit = 0;
  std::int64_t entries = 0;
  for (std::int32_t start = 0; start < graph.num_own(); ++start) {
    place_of.clear();
    place_of.emplace(graph.original()[start], graph.place()[start]);
    coalescer.begin_row(1 + plan.num_walks * plan.max_hops);
    coalescer.add(graph.original()[start], 0, static_cast<float>(plan.num_walks));
    for (; visit < visits.size() && visits[visit].start == start; ++visit) {
      coalescer.add(visits[visit].original, visits[visit].hop, visits[visit].load);
      place_of.emplace(visits[visit].original, visits[visit].place);
    }
    coalescer.finish_row(scale, found);
    for (; entries < found.col.size(); ++entries)
      rows.place.push_back(place_of.at(found.col.begin()[entries]));
    rows.row_ptr.push_back(entries);
  }
  rows.place.shrink_to_fit();
  rows.col.assign(found.col.begin(), found.col.end());
  rows.hop.assign(found.hop.begin(), found.hop.end());
  rows.load.assign(found.load.begin(), found.load.end());
  rows.deposit_ptr.reserve(rows.col.size() + 1);
  for (const std::int32_t count : found.deposits_in_entry)
    rows.deposit_ptr.push_back(rows.deposit_ptr.back() + count);
  return rows;
}

// Whether the walks of the whole graph would be enumerated (see sample.h).
bool enumerates(const DistributedGraph& graph, const WalkPlan& plan) {
  const CsrView rows = graph.view();
  std::int64_t most = 0, least = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t i = 0; i < rows.num_nodes; ++i) {
    if (rows.degree(i) == 0) continue;
    least = std::min(least, rows.degree(i));
    most = std::max(most, rows.degree(i));
  }
  const at::Tensor ends = graph.ranks()->largest(at::tensor({most, -least}, at::kLong), "degrees");
  const std::int64_t largest = ends[0].item<std::int64_t>();
  return ensemble_is_exhaustive(plan, largest == 0 ? 0 : -ends[1].item<std::int64_t>(), largest);
}

// The region, or nothing where walkers shall be sent.
std::optional<Region> choose_route(const DistributedGraph& graph, const WalkPlan& plan,
                                   const WalkOptions& options, WalkRoute route, bool needs_region) {
  if (route == WalkRoute::walkers && !needs_region) return std::nullopt;
  const Traffic traffic = predict_traffic(graph, options);
  return fetch_region(graph, plan.max_hops, traffic, route == WalkRoute::automatic && !needs_region);
}

}  // namespace

DistributedWalkFeatures sample_walk_features(const DistributedGraph& graph, const WalkOptions& options,
                                             bool importance_weights, WalkRoute route) {
  const WalkPlan plan = compile_plan(options, importance_weights, true);
  const bool exact = enumerates(graph, plan);
  const std::optional<Region> region = choose_route(graph, plan, options, route, exact);
  PlacedRows rows;
  if (region) {
    const CsrView view = region->view();
    rows = by_original(*region, exact ? enumerate_feature_pieces(view, plan, graph.num_own())
                                      : sample_feature_pieces(view, plan, graph.num_own()));
  } else {
    rows = coalesce_visits(graph, plan, send_walkers(graph, plan));
  }
  DistributedWalkFeatures result;
  result.route = region ? WalkRoute::halo : WalkRoute::walkers;
  result.place = take_vector(std::move(rows.place));
  WalkFeatures& features = result.features;
  features.row_ptr = take_vector(std::move(rows.row_ptr));
  features.col = take_vector(std::move(rows.col));
  features.deposit_ptr = take_vector(std::move(rows.deposit_ptr));
  features.hop = take_vector(std::move(rows.hop));
  features.load = take_vector(std::move(rows.load));
  features.num_columns = graph.total_nodes();
  features.max_hops = options.max_hops;
  features.exact = exact;
  return result;
}

DistributedFeatures sample_features(const DistributedGraph& graph, const FeatureOptions& options,
                                    WalkRoute route) {
  DistributedFeatures result;
  result.ensembles = options.ensembles;
  result.query = sample_walk_features(graph, options.walks, options.importance_weights, route);
  if (options.ensembles == Ensembles::asymmetric) return result;
  const bool symmetric = graph.is_symmetric();
  WalkOptions key_walks = options.walks;
  if (options.ensembles == Ensembles::independent) {
    key_walks.ensemble += 1;
  } else if (symmetric) {
    result.key = result.query;
    return result;
  }
  result.key = sample_walk_features(symmetric ? graph : graph.transposed(), key_walks,
                                    options.importance_weights, route);
  return result;
}

at::Tensor sample_walks(const DistributedGraph& graph, const WalkOptions& options, WalkRoute route) {
  const WalkPlan plan = compile_plan(options, /*importance_weights=*/false, /*need_loads=*/true);
  const std::int64_t hops = options.max_hops, stride = hops + 1;
  at::Tensor paths = at::full({graph.num_own(), options.num_walks, stride}, -1, at::kInt);
  std::int32_t* out = paths.data_ptr<std::int32_t>();
  const std::optional<Region> region = choose_route(graph, plan, options, route, /*needs_region=*/false);
  if (region) {
    sample_paths(region->view(), plan, hops, out, graph.num_own());
    for (std::int64_t i = 0; i < paths.numel(); ++i) out[i] = out[i] < 0 ? -1 : region->original[out[i]];
    return paths;
  }
  for (std::int64_t i = 0; i < graph.num_own() * options.num_walks; ++i)
    out[i * stride] = graph.original()[i / options.num_walks];
  for (const Visit& visit : send_walkers(graph, plan))
    out[(visit.start * options.num_walks + visit.walk) * stride + visit.hop] = visit.original;
  return paths;
}

template <>
std::span<const Word<WalkRoute>> words<WalkRoute>() {
  static constexpr Word<WalkRoute> kWords[] = {
      {WalkRoute::automatic, "auto", "whichever sends fewer bytes"},
      {WalkRoute::halo, "halo", "fetch the rows of all nodes within reach, for short walks"},
      {WalkRoute::walkers, "walkers", "send walkers to the owner of their node, for long walks"},
  };
  return kWords;
}

}  // namespace topomask
