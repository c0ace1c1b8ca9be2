#include "topomask/memory_plan.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/dot.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/units.h"
#include "graph/cpu/transform.h"
#include "masks/cpu/sparse_product.h"
#include "masks/cuda/device_rows.h"
#include "masks/sparse_ops.h"
#include "topomask/graph_family.h"
#include "topomask/graph_spec.h"

namespace topomask {
namespace {

// Of M, whose entries are counted. A prime: evenly spread rows then do not all meet the border of a grid.
constexpr std::int64_t kRowsOfMask = 1009;

constexpr double ChainCounts::*kChainSizes[] = {&ChainCounts::nodes,        &ChainCounts::entries,
                                                &ChainCounts::features,     &ChainCounts::deposits,
                                                &ChainCounts::key_features, &ChainCounts::key_deposits,
                                                &ChainCounts::pairs,        &ChainCounts::mask_entries};

ChainCounts count_whole(const Graph& graph, const FeatureOptions& options) {
  const GraphFeatures features = sample_features(graph, options);
  const WalkFeatures &query = features.query, &key = features.key;
  ChainCounts counts;
  counts.ensembles = options.ensembles;
  counts.nodes = static_cast<double>(graph.num_nodes());
  counts.entries = static_cast<double>(graph.num_entries());
  counts.features = static_cast<double>(query.nnz());
  counts.deposits = static_cast<double>(query.num_deposits());
  counts.source = "counted on this graph";
  if (counts.one_hot()) {
    counts.pairs = counts.mask_entries = counts.features;
    return counts;
  }
  const bool own_keys = !key.col.is_same(query.col);
  if (own_keys) {
    counts.key_features = static_cast<double>(key.nnz());
    counts.key_deposits = static_cast<double>(key.num_deposits());
  }
  const SparsePattern rows = SparsePattern::from_rows(query.row_ptr, query.col);
  const SparsePattern columns = own_keys ? SparsePattern::from_rows(key.row_ptr, key.col) : rows;
  const auto sizes = [](const SparsePattern& of) { return of.transposed_ptr.diff().to(at::kDouble); };
  counts.pairs = sizes(rows).dot(sizes(columns)).item<double>();
  counts.mask_entries = estimate_product_nnz(rows_of(rows), transposed_rows_of(columns), kRowsOfMask);
  return counts;
}

void scale_counts(ChainCounts& counts, double nodes) {
  const double factor = nodes / std::max(1.0, counts.nodes);
  for (double ChainCounts::*size : kChainSizes) counts.*size *= factor;
}

// Bytes of the tensors, by what they hold.
constexpr double kIndexBytes = 4, kOffsetBytes = 8, kWeightBytes = 4;
constexpr double kDepositBytes = 6;                          // a hop and a load
constexpr double kColumnBytes = kIndexBytes + kOffsetBytes;  // of a transpose: a row and a place
constexpr double kTransposing = 28 + kColumnBytes;           // lists, what a sort needs, the result
constexpr double kStagedBytes = 14, kMostStaged = 96 << 20;  // walks on their way (features_cuda.cpp)
constexpr double kBitmapBytes = 512 << 20;                   // of rows of M that are long (sparse_product.cu)
// Products are listed where they take no more than this share of an H200's memory (sparse_product_cuda.cpp).
constexpr double kMostListed = 141e9 / 256, kPairBytes = 8, kListingBytes = 40;

class Ledger {
 public:
  // `at_once`: the most that the step holds, what it leaves included.
  void step(std::string_view name, double lasting, double at_once) {
    const double peak = held_ + std::max(lasting, at_once);
    plan_.steps.push_back({name, lasting, peak});
    plan_.peak = std::max(plan_.peak, peak);
    held_ += lasting;
  }
  MemoryPlan take() { return std::move(plan_); }

 private:
  MemoryPlan plan_;
  double held_ = 0;
};

// As the mask engine decides without gradients (mask_engine_cuda.cpp), if rows share enough columns.
bool in_tiles(const ChainCounts& c, const AttentionShape& shape) {
  return shape.dtype == at::kBFloat16 && shape.d <= kMostTiledChannels && shape.d_v <= kMostTiledChannels &&
         c.mask_entries <= static_cast<double>(kMostTiledEntries);
}

}  // namespace

MaskProfile ChainCounts::profile() const {
  const auto whole = [](double x) { return static_cast<std::int64_t>(std::min(x, 0x1p61)); };
  MaskProfile mask;
  mask.name = one_hot() ? "grf-asymmetric" : "grf";
  mask.num_nodes = whole(nodes);
  mask.heads = heads;
  mask.entries = whole(mask_entries);
  mask.entries_counted = false;
  const double keys = one_hot() ? 0 : key_features > 0 ? key_features : features;
  mask.value_multiply_adds = (one_hot() ? 0 : pairs) + deposits + key_deposits;
  mask.sparse_factors = !one_hot();
  mask.left_entries = one_hot() ? 0 : whole(features);
  mask.right_entries = whole(keys);
  mask.multiply_adds_per_column = features + keys;
  mask.bytes_per_column = 12 * (features + keys);
  return mask;
}

ChainCounts count_chain(const Graph& anywhere, const FeatureOptions& options, std::int64_t most) {
  check(most >= 1, "count_chain: most must be positive, got {}", most);
  if (anywhere.num_nodes() <= most) return count_whole(anywhere.to(at::kCPU), options);
  const Graph graph = anywhere.to(at::kCPU);
  const Graph part = Graph::from_csr(ball(graph.view(), most), graph.directed);
  ChainCounts counts = count_whole(part, options);
  counts.source = fmt::format("counted on {} nodes of this graph, and scaled", part.num_nodes());
  scale_counts(counts, static_cast<double>(graph.num_nodes()));
  counts.entries = static_cast<double>(graph.num_entries());
  return counts;
}

std::optional<ChainCounts> count_chain(const std::string& spec, Normalisation normalisation,
                                       const FeatureOptions& options, std::int64_t most) {
  check(most >= 4, "count_chain: most must be at least 4, got {}", most);
  const std::optional<GraphFamily> family = graph_family(spec);
  if (!family || family->nodes <= most) return std::nullopt;
  const auto pilot = [&](std::int64_t nodes) {
    return count_whole(normalise(load_graph(family->resized(nodes)).graph, normalisation), options);
  };
  ChainCounts counts = pilot(most);
  counts.source = fmt::format("counted on {}, and scaled", family->resized(most));
  const double growth = static_cast<double>(family->nodes) / counts.nodes;
  scale_counts(counts, static_cast<double>(family->nodes));
  if (family->dimension > 0) return counts;
  // Hubs grow with a random graph, and pairs of walks that meet on them grow faster than the nodes.
  const ChainCounts small = pilot(most / 4);
  const double step = static_cast<double>(family->nodes) / growth / small.nodes;
  for (double ChainCounts::*size : {&ChainCounts::pairs, &ChainCounts::mask_entries}) {
    const double before = small.*size * step * growth;  // as large as it were without
    if (before > 0 && counts.*size > before)
      counts.*size *= std::pow(growth, std::min(1.0, std::log(counts.*size / before) / std::log(step)));
  }
  counts.mask_entries = std::min({counts.mask_entries, counts.pairs, counts.nodes * counts.nodes});
  return counts;
}

MemoryPlan plan_memory(const ChainCounts& c, const AttentionShape& shape, Engine engine, bool backward) {
  check(engine == Engine::mask || engine == Engine::feature, "plan_memory: expected engine mask or feature");
  const auto element = static_cast<double>(c10::elementSize(shape.dtype));
  const double wide = shape.dtype == at::kDouble ? 8 : 4;
  const auto pairs = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.d),
             d_v = static_cast<double>(shape.d_v);
  const double offsets = kOffsetBytes * c.nodes,
               row = element * pairs * c.nodes;  // a number of every row and head
  const bool own_keys = c.key_features > 0;
  Ledger ledger;
  const double rows_of_w = offsets + 2 * kWeightBytes * c.entries;
  // Sums of rows, and the weights once more.
  ledger.step("graph", rows_of_w, rows_of_w + offsets + kWeightBytes * c.entries);
  const double operands = row * (2 * d + d_v + (backward ? d_v : 0));
  ledger.step("q, k and v", operands, operands);

  const auto walked = [&](double entries, double deposits) {
    return offsets + (kIndexBytes + kOffsetBytes) * entries + kDepositBytes * deposits;
  };
  const double of_queries = walked(c.features, c.deposits);
  const double of_keys = c.one_hot() ? offsets + (kIndexBytes + kDepositBytes) * c.nodes
                         : own_keys  ? walked(c.key_features, c.key_deposits)
                                     : 0;
  const double staged = kStagedBytes * std::min(kMostStaged, 1.5 * c.deposits) +
                        36 * std::min(c.nodes, kMostStaged * c.nodes / std::max(1.0, c.deposits));
  const double joined = kOffsetBytes * std::max(c.features, c.key_features);
  // Whether W is symmetric is found by its transpose.
  const double transposing_w = c.one_hot() ? 0 : (kTransposing - kOffsetBytes) * c.entries + offsets;
  const double walking = std::max(staged, joined) + (own_keys ? rows_of_w : 0);
  ledger.step("walks", of_queries + of_keys, of_queries + std::max(transposing_w, of_keys + walking));

  const double keys = own_keys ? c.key_features : c.features;
  const auto transpose = [&](std::string_view name, double entries) {
    const double lasting = kColumnBytes * entries + offsets;
    ledger.step(name, lasting, std::max(kTransposing * entries + offsets, 5 * offsets));
  };
  if (!c.one_hot()) transpose("columns of keys", keys);
  const auto heads = static_cast<double>(c.heads);
  // Of several heads twice: head by head, and entry by entry.
  const double values_of_features = (c.heads == 1 ? 1 : 2) * heads * wide * (c.features + c.key_features);
  const double result = row * d_v, normalisers = wide * pairs * c.nodes;
  if (engine == Engine::feature) {
    if (own_keys || (c.one_hot() && backward)) transpose("columns of queries", c.features);
    const double products = c.features * pairs * (element * d_v + wide);
    const double gradients = backward ? products + row * (2 * d + d_v) + values_of_features : 0;
    ledger.step("attention", result, result + normalisers + values_of_features + products + gradients);
    return ledger.take();
  }
  if (!c.one_hot()) {
    const double pattern = offsets + kIndexBytes * c.mask_entries;
    const bool listed = c.pairs <= kMostListed;
    const double lists = listed ? kOffsetBytes * c.features : 0;
    ledger.step(
        "pattern of M", pattern + lists,
        pattern + std::max(offsets + kBitmapBytes, (kIndexBytes + kOffsetBytes) * c.features + offsets));
    if (listed) {
      const double of_product = kOffsetBytes * c.mask_entries + kPairBytes * c.pairs;
      ledger.step("products of M", of_product,
                  kListingBytes * c.pairs + kOffsetBytes * c.mask_entries + kIndexBytes * c.features);
    }
  }
  const double values = heads * wide * c.mask_entries;
  ledger.step("values of M", values, values + values_of_features);
  if (!backward) {
    double records = 0;
    if (in_tiles(c, shape)) {
      const double lists = kTileBytesOfEntry * c.mask_entries + kTileBytesOfNode * c.nodes;
      // Made when attention has room for its result: the rows as they stand and in another order, of which
      // the better tiles stay; and what it takes to find that order.
      constexpr double kOrderingBytes = 44;
      ledger.step("tiles of M", lists, result + normalisers + 2 * lists + kOrderingBytes * c.nodes);
      records = kTileRecordBytes * heads * c.mask_entries;
    }
    ledger.step("attention", result, result + normalisers + records + 2 * offsets);
    return ledger.take();
  }
  transpose("columns of M", c.mask_entries);
  const double of_pairs = pairs * wide * c.mask_entries;
  // The product of every entry; the weights of both halves, gradients of the values and what they are made
  // of.
  const double gradients = row * (2 * d + d_v) + 3 * of_pairs + 2 * values;
  ledger.step("attention", result, result + normalisers + of_pairs + gradients + values_of_features);
  return ledger.take();
}

const MemoryStep& MemoryPlan::highest() const {
  return *std::max_element(steps.begin(), steps.end(),
                           [](const MemoryStep& a, const MemoryStep& b) { return a.peak < b.peak; });
}

std::string MemoryPlan::to_string() const {
  std::string text = fmt::format("{:<20}{:>12}{:>12}\n", "memory", "stays", "peak");
  for (const MemoryStep& step : steps)
    text +=
        fmt::format("  {:<18}{:>12}{:>12}\n", step.name, format_bytes(step.lasting), format_bytes(step.peak));
  return text;
}

}  // namespace topomask
