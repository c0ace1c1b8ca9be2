#include "distributed/mask_parts.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "core/check.h"
#include "core/interruption.h"
#include "distributed/messages.h"
#include "graph/tensors.h"

namespace topomask {

namespace {

// Rows of features as plain arrays.
struct FeatureView {
  explicit FeatureView(const DistributedWalkFeatures& of)
      : rows(of.features.num_nodes()),
        nnz(of.features.nnz()),
        row_ptr(of.features.row_ptr.const_data_ptr<std::int64_t>()),
        place(of.place.const_data_ptr<std::int32_t>()),
        deposit_ptr(of.features.deposit_ptr.const_data_ptr<std::int64_t>()),
        hop(of.features.hop.const_data_ptr<std::int16_t>()),
        load(of.features.load.const_data_ptr<float>()) {}

  std::int64_t rows, nnz;
  const std::int64_t* row_ptr;
  const std::int32_t* place;
  const std::int64_t* deposit_ptr;
  const std::int16_t* hop;
  const float* load;
};

// Rows of features with columns of any numbering, which end up in ascending order.
class FeatureBuilder {
 public:
  // Reserves the largest possible size: a growing vector would take up to twice the memory.
  void reserve(const FeatureView& most) {
    const auto entries = static_cast<std::size_t>(most.nnz),
               deposits = static_cast<std::size_t>(most.deposit_ptr[most.nnz]);
    row_ptr_.reserve(static_cast<std::size_t>(most.rows) + 1);
    col_.reserve(entries);
    deposit_ptr_.reserve(entries + 1);
    hop_.reserve(deposits);
    load_.reserve(deposits);
  }
  void add(std::int32_t column, const std::int16_t* hop, const float* load, std::int64_t deposits) {
    row_.push_back({column, hop, load, deposits});
  }
  void add(std::int32_t column, const FeatureView& from, std::int64_t entry) {
    const std::int64_t first = from.deposit_ptr[entry];
    add(column, from.hop + first, from.load + first, from.deposit_ptr[entry + 1] - first);
  }
  void end_row() {
    std::sort(row_.begin(), row_.end(), [](const Entry& a, const Entry& b) { return a.column < b.column; });
    for (const Entry& entry : row_) {
      col_.push_back(entry.column);
      hop_.insert(hop_.end(), entry.hop, entry.hop + entry.deposits);
      load_.insert(load_.end(), entry.load, entry.load + entry.deposits);
      deposit_ptr_.push_back(static_cast<std::int64_t>(hop_.size()));
    }
    row_ptr_.push_back(static_cast<std::int64_t>(col_.size()));
    row_.clear();
  }
  WalkFeatures finish(std::int64_t num_columns) {
    WalkFeatures features;
    features.row_ptr = taken(row_ptr_);
    features.col = taken(col_);
    features.deposit_ptr = taken(deposit_ptr_);
    features.hop = taken(hop_);
    features.load = taken(load_);
    features.num_columns = num_columns;
    return features;
  }

 private:
  template <class Value>
  static at::Tensor taken(std::vector<Value>& values) {
    if (values.capacity() > values.size() + values.size() / 8) values.shrink_to_fit();
    return take_vector(std::move(values));
  }

  struct Entry {
    std::int32_t column;
    const std::int16_t* hop;
    const float* load;
    std::int64_t deposits;
  };
  std::vector<Entry> row_;
  std::vector<std::int64_t> row_ptr_ = {0}, deposit_ptr_ = {0};
  std::vector<std::int32_t> col_;
  std::vector<std::int16_t> hop_;
  std::vector<float> load_;
};

// Position in an ascending list, or -1.
std::int32_t position_in(const std::vector<std::int32_t>& sorted, std::int32_t value) {
  const auto found = std::lower_bound(sorted.begin(), sorted.end(), value);
  return found != sorted.end() && *found == value ? static_cast<std::int32_t>(found - sorted.begin()) : -1;
}

// The places that a rank owns: a range.
struct OwnPlaces {
  explicit OwnPlaces(const DistributedGraph& graph)
      : first(static_cast<std::int32_t>(graph.begin()[static_cast<std::size_t>(graph.ranks()->rank())])),
        count(static_cast<std::int32_t>(graph.num_own())) {}
  bool has(std::int32_t place) const { return place >= first && place < first + count; }

  std::int32_t first, count;
};

// Different places in ascending order, and how often each was given. Most are own ones, which are counted and
// found in a table instead of by sorting and searching.
class PlaceSet {
 public:
  PlaceSet(const OwnPlaces& own, std::span<const std::int32_t> given)
      : own_(own), table_(static_cast<std::size_t>(own.count), 0) {
    std::vector<std::int32_t> others;
    for (const std::int32_t place : given) {
      if (own.has(place)) {
        ++table_[static_cast<std::size_t>(place - own.first)];
      } else {
        others.push_back(place);
      }
    }
    std::sort(others.begin(), others.end());
    auto other = others.begin();
    const auto add_others_before = [&](std::int64_t end) {
      while (other != others.end() && *other < end) {
        const auto next = std::upper_bound(other, others.end(), *other);
        add(*other, static_cast<std::int32_t>(next - other));
        other = next;
      }
    };
    add_others_before(own.first);
    for (std::int32_t i = 0; i < own.count; ++i) {
      std::int32_t& entry = table_[static_cast<std::size_t>(i)];
      if (entry > 0) add(own.first + i, entry);
      entry = entry > 0 ? static_cast<std::int32_t>(places_.size()) - 1 : -1;
    }
    add_others_before(std::numeric_limits<std::int64_t>::max());
  }

  const std::vector<std::int32_t>& places() const { return places_; }
  const std::vector<std::int32_t>& counts() const { return counts_; }
  // Position among the places, or -1.
  std::int32_t position(std::int32_t place) const {
    return own_.has(place) ? table_[static_cast<std::size_t>(place - own_.first)]
                           : position_in(places_, place);
  }
  bool has(std::int32_t place) const { return position(place) >= 0; }

 private:
  void add(std::int32_t place, std::int32_t count) {
    places_.push_back(place);
    counts_.push_back(count);
  }

  OwnPlaces own_;
  std::vector<std::int32_t> table_;  // [own places]: counts at first, then positions
  std::vector<std::int32_t> places_, counts_;
};

PlaceSet columns_of(const OwnPlaces& own, const FeatureView& features) {
  return {own, {features.place, static_cast<std::size_t>(features.nnz)}};
}

bool share_walks(const DistributedFeatures& features) {
  return features.key.features.col.defined() &&
         features.key.features.col.is_same(features.query.features.col);
}

std::shared_ptr<const SparsePattern> pattern_with(const WalkFeatures& features) {
  return std::make_shared<const SparsePattern>(
      SparsePattern::from_rows(features.row_ptr, features.col, features.num_columns));
}

// The same as a square matrix on a GPU.
WalkFeatures square_on(c10::Device gpu, WalkFeatures features, std::int64_t side) {
  const std::int64_t rows = features.num_nodes();
  if (side > rows) {
    const at::Tensor end = features.row_ptr.narrow(0, rows, 1);
    features.row_ptr = at::cat({features.row_ptr, end.expand({side - rows})});
  }
  features.num_columns = side;
  return features.to(gpu);
}

MaskPiece make_piece(WalkFeatures query, WalkFeatures key, c10::Device device) {
  MaskPiece piece;
  const bool one_hot = !key.row_ptr.defined(), same = !one_hot && key.col.is_same(query.col);
  if (device.is_cuda()) {
    const std::int64_t side = std::max({query.num_nodes(), query.num_columns, one_hot ? 0 : key.num_nodes()});
    query = square_on(device, std::move(query), side);
    if (!one_hot) key = same ? query : square_on(device, std::move(key), side);
  }
  piece.query = std::move(query);
  piece.key = std::move(key);
  piece.query_pattern = pattern_with(piece.query);
  if (one_hot || piece.empty()) return piece;
  piece.product =
      make_product_patterns(piece.query_pattern, same ? piece.query_pattern : pattern_with(piece.key));
  return piece;
}

// Entries of Psi that other ranks hold in columns that own rows of Phi meet: by row, then by column.
struct RemoteKeys {
  struct Entry {
    std::int32_t row, column;  // places
    std::int32_t deposits;
  };
  std::vector<Entry> entries;
  std::vector<std::int64_t> first;  // of each entry's deposits
  std::vector<std::int16_t> hop;
  std::vector<float> load;
};

// The owner of a column learns who meets it with queries and who holds keys in it, and introduces them.
RemoteKeys fetch_remote_keys(const DistributedGraph& graph, const DistributedFeatures& features) {
  const Ranks& ranks = *graph.ranks();
  const OwnPlaces own(graph);
  const FeatureView query(features.query), key(features.key);
  const auto tell_owners = [&](const FeatureView& of) {
    PerRank<std::int32_t> lists = lists_for<std::int32_t>(ranks);
    const PlaceSet columns = columns_of(own, of);
    for (const std::int32_t column : columns.places())
      lists[static_cast<std::size_t>(owner_of(graph.begin(), column))].push_back(column);
    return exchange_lists(ranks, lists, "columns");
  };
  const PerRank<std::int32_t> meeting = tell_owners(query),
                              holding = share_walks(features) ? meeting : tell_owners(key);
  // Few own columns cross a border; only of those it matters who meets them.
  std::vector<std::int32_t> foreign;
  for (const PerRank<std::int32_t>* lists : {&meeting, &holding}) {
    for (std::size_t r = 0; r < lists->size(); ++r) {
      if (static_cast<int>(r) != ranks.rank())
        foreign.insert(foreign.end(), (*lists)[r].begin(), (*lists)[r].end());
    }
  }
  const PlaceSet crossing(own, foreign);
  struct Wish {
    std::int32_t column, rank;
  };
  PerRank<std::int32_t> wishing(crossing.places().size());  // the ranks that meet each of them
  for (std::size_t r = 0; r < meeting.size(); ++r) {
    for (const std::int32_t column : meeting[r]) {
      if (const std::int32_t at = crossing.position(column); at >= 0)
        wishing[static_cast<std::size_t>(at)].push_back(static_cast<std::int32_t>(r));
    }
  }
  PerRank<Wish> introductions = lists_for<Wish>(ranks);
  for (std::size_t r = 0; r < holding.size(); ++r) {
    for (const std::int32_t column : holding[r]) {
      const std::int32_t at = crossing.position(column);
      if (at < 0) continue;
      for (const std::int32_t rank : wishing[static_cast<std::size_t>(at)]) {
        if (rank != static_cast<std::int32_t>(r)) introductions[r].push_back({column, rank});
      }
    }
  }
  PerRank<std::int32_t> wanted = lists_for<std::int32_t>(ranks);  // by each rank, of own keys
  for (const std::vector<Wish>& list : exchange_lists(ranks, introductions, "columns")) {
    for (const Wish& wish : list) wanted[static_cast<std::size_t>(wish.rank)].push_back(wish.column);
  }
  PerRank<RemoteKeys::Entry> entries = lists_for<RemoteKeys::Entry>(ranks);
  PerRank<std::int16_t> hops = lists_for<std::int16_t>(ranks);
  PerRank<float> loads = lists_for<float>(ranks);
  for (std::size_t r = 0; r < wanted.size(); ++r) {
    if (wanted[r].empty()) continue;
    poll_interruption();
    const PlaceSet columns(own, wanted[r]);
    for (std::int64_t row = 0; row < key.rows; ++row) {
      for (std::int64_t e = key.row_ptr[row]; e < key.row_ptr[row + 1]; ++e) {
        if (!columns.has(key.place[e])) continue;
        const std::int64_t first = key.deposit_ptr[e], last = key.deposit_ptr[e + 1];
        entries[r].push_back({graph.place()[row], key.place[e], static_cast<std::int32_t>(last - first)});
        hops[r].insert(hops[r].end(), key.hop + first, key.hop + last);
        loads[r].insert(loads[r].end(), key.load + first, key.load + last);
      }
    }
  }
  RemoteKeys remote;
  // Ranks own ascending places: one after the other, the rows ascend.
  for (const auto& list : exchange_lists(ranks, entries, "features"))
    remote.entries.insert(remote.entries.end(), list.begin(), list.end());
  for (const auto& list : exchange_lists(ranks, hops, "features"))
    remote.hop.insert(remote.hop.end(), list.begin(), list.end());
  for (const auto& list : exchange_lists(ranks, loads, "features"))
    remote.load.insert(remote.load.end(), list.begin(), list.end());
  std::int64_t at = 0;
  for (const RemoteKeys::Entry& entry : remote.entries) {
    remote.first.push_back(at);
    at += entry.deposits;
  }
  return remote;
}

}  // namespace

at::Tensor with_empty_rows(const at::Tensor& x, std::int64_t rows) {
  const std::int64_t missing = rows - x.size(-2);
  return missing == 0 ? x : at::constant_pad_nd(x, {0, 0, 0, missing});
}

at::Tensor query_part(const at::Tensor& f) {
  return f.dim() == 3 ? f.select(1, 0) : f;
}

at::Tensor key_part(const at::Tensor& f) {
  return f.dim() == 3 ? f.select(1, 1) : f;
}

at::Tensor MaskPiece::values(const at::Tensor& f) const {
  // Stays part of the autograd graph: the backward pass is collective, so every rank must take part in it.
  if (empty()) return f.flatten(1).narrow(1, 0, 0);
  const at::Tensor of_query = query.values(query_part(f));
  if (one_hot_keys()) return of_query;
  const bool same = product.key == product.query && f.dim() == 2;
  return sparse_product(product, of_query, same ? of_query : key.values(key_part(f)));
}

MaskRows make_mask_rows(const DistributedGraph& graph, const DistributedFeatures& features,
                        c10::Device device) {
  const bool one_hot = features.ensembles == Ensembles::asymmetric;
  const FeatureView query(features.query), key(one_hot ? features.query : features.key);
  const OwnPlaces places(graph);
  const std::int32_t own = places.count, first = places.first;
  const RemoteKeys remote = one_hot ? RemoteKeys{} : fetch_remote_keys(graph, features);

  // Columns that lead to other ranks. Whoever owns a column holds a key in it, that of the node itself, so
  // columns of others are always among them.
  std::vector<std::int32_t> columns_of_others;
  for (const RemoteKeys::Entry& entry : remote.entries) columns_of_others.push_back(entry.column);
  const PlaceSet leading(places, columns_of_others);
  std::vector<std::int64_t> rows;  // of the boundary
  std::vector<bool> at_boundary(static_cast<std::size_t>(own), false);
  std::vector<std::int32_t> columns_of_rows;
  for (std::int32_t i = 0; i < own; ++i) {
    for (std::int64_t e = query.row_ptr[i]; e < query.row_ptr[i + 1] && !at_boundary[i]; ++e)
      at_boundary[i] = !places.has(query.place[e]) || leading.has(query.place[e]);
    if (!at_boundary[i]) continue;
    rows.push_back(i);
    columns_of_rows.insert(columns_of_rows.end(), query.place + query.row_ptr[i],
                           query.place + query.row_ptr[i + 1]);
  }
  const PlaceSet met(places, columns_of_rows);

  MaskRows result;
  {
    WalkFeatures left, right;
    if (!one_hot) {
      FeatureBuilder of_key;
      of_key.reserve(key);
      for (std::int32_t i = 0; i < own; ++i) {
        for (std::int64_t e = key.row_ptr[i]; e < key.row_ptr[i + 1]; ++e) {
          if (places.has(key.place[e])) of_key.add(key.place[e] - first, key, e);
        }
        of_key.end_row();
      }
      right = of_key.finish(own);
    }
    // Where queries and keys share their walks they share their rows here, too, which halves the memory and
    // the gradients of M. What the few rows of the boundary give is thrown away.
    constexpr std::size_t kFew = 8;
    if (share_walks(features) && kFew * rows.size() <= static_cast<std::size_t>(own)) {
      left = right;
    } else {
      FeatureBuilder of_query;
      of_query.reserve(query);
      for (std::int32_t i = 0; i < own; ++i) {
        for (std::int64_t e = query.row_ptr[i]; e < query.row_ptr[i + 1] && !at_boundary[i]; ++e)
          of_query.add(query.place[e] - first, query, e);
        of_query.end_row();
      }
      left = of_query.finish(own);
    }
    result.interior = make_piece(std::move(left), std::move(right), device);
  }

  std::vector<std::int64_t> touched;
  std::vector<std::int32_t> halo;
  FeatureBuilder of_query, of_key;
  WalkFeatures right;
  if (one_hot) {
    for (const std::int32_t place : met.places()) {
      if (places.has(place)) touched.push_back(place - first);
      if (!places.has(place)) halo.push_back(place);
    }
    const auto columns = static_cast<std::int32_t>(touched.size());
    const auto column_of = [&](std::int32_t place) {
      if (!places.has(place)) return columns + position_in(halo, place);
      return static_cast<std::int32_t>(std::lower_bound(touched.begin(), touched.end(), place - first) -
                                       touched.begin());
    };
    for (const std::int64_t i : rows) {
      for (std::int64_t e = query.row_ptr[i]; e < query.row_ptr[i + 1]; ++e)
        of_query.add(column_of(query.place[e]), query, e);
      of_query.end_row();
    }
    result.boundary =
        make_piece(of_query.finish(static_cast<std::int64_t>(touched.size() + halo.size())), right, device);
  } else {
    for (const std::int64_t i : rows) {
      for (std::int64_t e = query.row_ptr[i]; e < query.row_ptr[i + 1]; ++e)
        of_query.add(met.position(query.place[e]), query, e);
      of_query.end_row();
    }
    for (std::int32_t j = 0; j < own; ++j) {
      bool meets = false;
      for (std::int64_t e = key.row_ptr[j]; e < key.row_ptr[j + 1]; ++e) {
        const std::int32_t column = met.position(key.place[e]);
        if (column < 0) continue;
        of_key.add(column, key, e);
        meets = true;
      }
      if (!meets) continue;
      of_key.end_row();
      touched.push_back(j);
    }
    for (std::size_t i = 0; i < remote.entries.size(); ++i) {
      const RemoteKeys::Entry& entry = remote.entries[i];
      of_key.add(met.position(entry.column), remote.hop.data() + remote.first[i],
                 remote.load.data() + remote.first[i], entry.deposits);
      if (i + 1 < remote.entries.size() && remote.entries[i + 1].row == entry.row) continue;
      of_key.end_row();
      halo.push_back(entry.row);
    }
    const auto columns = static_cast<std::int64_t>(met.places().size());
    result.boundary = make_piece(of_query.finish(columns), of_key.finish(columns), device);
  }
  result.rows = take_vector(std::move(rows)).to(device);
  result.touched = take_vector(std::move(touched)).to(device);
  result.exchange = NodeExchange(graph.ranks(), graph.begin(), halo).to(device);
  return result;
}

MaskColumns make_mask_columns(const DistributedGraph& graph, const DistributedFeatures& features,
                              c10::Device device) {
  const OwnPlaces places(graph);
  const auto side_of = [&](const DistributedWalkFeatures& of) {
    const FeatureView view(of);
    std::vector<std::int32_t> others;
    const PlaceSet columns = columns_of(places, view);
    for (const std::int32_t place : columns.places()) {
      if (!places.has(place)) others.push_back(place);
    }
    std::vector<std::pair<std::int32_t, std::int64_t>> row;  // column, entry
    std::vector<std::int32_t> col;
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < view.rows; ++i) {
      row.clear();
      for (std::int64_t e = view.row_ptr[i]; e < view.row_ptr[i + 1]; ++e) {
        const std::int32_t place = view.place[e];
        row.emplace_back(places.has(place) ? place - places.first : places.count + position_in(others, place),
                         e);
      }
      std::sort(row.begin(), row.end());
      for (const auto& [column, entry] : row) {
        col.push_back(column);
        order.push_back(entry);
      }
    }
    MaskColumns::Side side;
    WalkFeatures renumbered;  // no deposits: the pattern alone
    renumbered.row_ptr = of.features.row_ptr;
    renumbered.col = take_vector(std::move(col));
    renumbered.deposit_ptr = renumbered.hop = renumbered.load = at::empty({0});
    renumbered.num_columns = places.count + static_cast<std::int64_t>(others.size());
    if (device.is_cuda()) renumbered = square_on(device, renumbered, renumbered.num_columns);
    side.pattern = pattern_with(renumbered);
    side.features = of.features.to(device);
    side.order = take_vector(std::move(order)).to(device);
    side.exchange = NodeExchange(graph.ranks(), graph.begin(), others).to(device);
    return side;
  };
  MaskColumns columns;
  columns.query = side_of(features.query);
  if (features.ensembles == Ensembles::asymmetric) return columns;
  columns.key = share_walks(features) ? columns.query : side_of(features.key);
  return columns;
}

PairCounts count_pairs(const DistributedGraph& graph, const DistributedFeatures& features) {
  struct Share {
    std::int32_t column, entries;
  };
  const Ranks& ranks = *graph.ranks();
  const OwnPlaces own(graph);
  const auto totals = [&](const DistributedWalkFeatures& of) {
    const PlaceSet columns = columns_of(own, FeatureView(of));
    PerRank<Share> shares = lists_for<Share>(ranks);
    for (std::size_t i = 0; i < columns.places().size(); ++i) {
      const std::int32_t column = columns.places()[i];
      shares[static_cast<std::size_t>(owner_of(graph.begin(), column))].push_back(
          {column, columns.counts()[i]});
    }
    std::vector<double> sums(static_cast<std::size_t>(graph.num_own()), 0.0);
    for (const auto& list : exchange_lists(ranks, shares, "columns")) {
      for (const Share& share : list)
        sums[static_cast<std::size_t>(share.column - own.first)] += share.entries;
    }
    return sums;
  };
  double pairs = 0;
  auto entries = static_cast<double>(features.query.features.nnz());
  if (features.ensembles == Ensembles::asymmetric) {
    pairs = entries;
  } else {
    entries += static_cast<double>(features.key.features.nnz());
    const std::vector<double> query = totals(features.query),
                              key = share_walks(features) ? query : totals(features.key);
    for (std::size_t i = 0; i < query.size(); ++i) pairs += query[i] * key[i];
  }
  const at::Tensor sums = ranks.sum(at::tensor({pairs, entries}, at::kDouble), "columns");
  return {sums[0].item<double>(), sums[1].item<double>()};
}

Engine engine_for(const PairCounts& counts, double m, double d_v) {
  return counts.pairs * (m + d_v) <= counts.entries * m * (d_v + 1) ? Engine::mask : Engine::feature;
}

}  // namespace topomask
