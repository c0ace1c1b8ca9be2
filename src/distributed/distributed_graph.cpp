#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/check.h"
#include "core/hash.h"
#include "core/tensors.h"
#include "distributed/messages.h"
#include "distributed/node_exchange.h"
#include "graph/cpu/limits.h"
#include "graph/cpu/transform.h"
#include "graph/part_rows.h"
#include "graph/tensors.h"
#include "topomask/distributed.h"

namespace topomask {

struct DistributedGraph::Entry {
  std::int32_t row;              // local
  std::int32_t place, original;  // of the column
  float weight;
};

namespace {

std::vector<std::int64_t> begins_of(const Ranks& ranks, std::int64_t own) {
  const at::Tensor counts = ranks.all_gather(at::tensor({own}, at::kLong), "the sizes of the parts");
  std::vector<std::int64_t> begin = {0};
  for (int r = 0; r < ranks.size(); ++r)
    begin.push_back(begin.back() + counts.const_data_ptr<std::int64_t>()[r]);
  return begin;
}

// Throws on every rank unless all have the same number.
void check_same(const Ranks& ranks, std::int64_t number, const char* sentence) {
  const at::Tensor all = ranks.all_gather(at::tensor({number}, at::kLong), "what the ranks were given");
  const std::int64_t* value = all.const_data_ptr<std::int64_t>();
  for (int r = 1; r < ranks.size(); ++r)
    check(value[r] == value[0], "ranks: {}: rank {} differs from rank 0", sentence, r);
}

std::int64_t hash_of(const Graph& graph, const Partition& partition) {
  Hash64 hash;
  hash.add(static_cast<std::uint64_t>(graph.directed));
  const auto add = [&](const at::Tensor& tensor) {
    const at::Tensor whole = tensor.contiguous();
    hash.add(std::string_view(static_cast<const char*>(whole.const_data_ptr()), whole.nbytes()));
  };
  for (const at::Tensor& tensor : {graph.row_ptr, graph.col, graph.weight, partition.assignment}) add(tensor);
  return static_cast<std::int64_t>(hash.value());
}

}  // namespace

DistributedGraph DistributedGraph::with_entries(const std::vector<Entry>& entries) const {
  DistributedGraph made;
  made.ranks_ = ranks_;
  made.begin_ = begin_;
  made.directed_ = directed_;
  const std::int64_t own = num_own(), first = begin_[static_cast<std::size_t>(ranks_->rank())];
  made.original_.assign(original_.begin(), original_.begin() + own);
  made.place_.assign(place_.begin(), place_.begin() + own);

  std::vector<std::pair<std::int32_t, std::int32_t>> halo;  // place, original
  const auto is_own = [&](std::int32_t place) { return place >= first && place < first + own; };
  for (const Entry& entry : entries) {
    if (!is_own(entry.place)) halo.emplace_back(entry.place, entry.original);
  }
  std::sort(halo.begin(), halo.end());
  halo.erase(std::unique(halo.begin(), halo.end()), halo.end());
  std::vector<std::int32_t> halo_places;
  for (const auto& [place, original] : halo) {
    halo_places.push_back(place);
    made.original_.push_back(original);
    made.place_.push_back(place);
  }
  made.row_ptr_.assign(static_cast<std::size_t>(own) + 1, 0);
  made.col_.reserve(entries.size());
  made.weight_.reserve(entries.size());
  for (const Entry& entry : entries) {
    ++made.row_ptr_[static_cast<std::size_t>(entry.row) + 1];
    const std::int64_t column =
        is_own(entry.place) ? entry.place - first
                            : own + (std::lower_bound(halo_places.begin(), halo_places.end(), entry.place) -
                                     halo_places.begin());
    made.col_.push_back(static_cast<std::int32_t>(column));
    made.weight_.push_back(entry.weight);
  }
  std::partial_sum(made.row_ptr_.begin(), made.row_ptr_.end(), made.row_ptr_.begin());
  made.halo_ = std::make_shared<const NodeExchange>(ranks_, begin_, halo_places);
  return made;
}

DistributedGraph DistributedGraph::from_graph(const Graph& anywhere, const Partition& partition,
                                              const RanksPtr& ranks) {
  const Graph graph = anywhere.to(at::kCPU);
  ranks->together("the parts", [&] {
    check(partition.parts == ranks->size(),
          "DistributedGraph: the partition has {} parts, but there are {} ranks", partition.parts,
          ranks->size());
  });
  check_same(*ranks, hash_of(graph, partition), "every rank must have the same graph and partition");
  const CsrView rows = graph.view();
  const ShardNumbering numbering = numbering_of(partition, rows.num_nodes);
  DistributedGraph owners;
  owners.ranks_ = ranks;
  owners.directed_ = graph.directed;
  for (std::int64_t part = 0; part <= partition.parts; ++part) owners.begin_.push_back(numbering.begin(part));
  std::vector<Entry> entries;
  for (const std::int32_t node : numbering.nodes(ranks->rank())) {
    const auto row = static_cast<std::int32_t>(owners.original_.size());
    owners.original_.push_back(node);
    owners.place_.push_back(static_cast<std::int32_t>(numbering.place(node)));
    for (std::int64_t e = rows.row_ptr[node]; e < rows.row_ptr[node + 1]; ++e) {
      entries.push_back(
          {row, static_cast<std::int32_t>(numbering.place(rows.col[e])), rows.col[e], rows.weight[e]});
    }
  }
  owners.row_ptr_.assign(owners.original_.size() + 1, 0);
  return owners.with_entries(entries);
}

DistributedGraph DistributedGraph::from_shards(const std::string& folder, const RanksPtr& ranks) {
  Shard shard;
  std::int64_t hash = 0;
  ranks->together("the shards", [&] {
    const ShardIndex index = read_shard_index(folder);
    check(index.parts == ranks->size(), "{}: has {} shards, but there are {} ranks", folder, index.parts,
          ranks->size());
    Hash64 both;
    both.add(index.graph_hash);
    both.add(index.partition_hash);
    hash = static_cast<std::int64_t>(both.value());
    shard = read_shard(folder, ranks->rank());
  });
  check_same(*ranks, hash, "every rank must have shards of one partition of one graph");
  return from_shard(shard, ranks);
}

DistributedGraph DistributedGraph::from_shard(const Shard& shard, const RanksPtr& ranks) {
  const std::int64_t own = shard.nodes.numel(), halo = shard.halo.numel();
  std::vector<std::int64_t> send_counts, receive_counts;
  ranks->together("the shards", [&] {
    check(shard.parts == ranks->size() && shard.part == ranks->rank(),
          "DistributedGraph: rank {} of {} was given shard {} of {}", ranks->rank(), ranks->size(),
          shard.part, shard.parts);
    const std::int64_t* send_ptr = shard.send_ptr.const_data_ptr<std::int64_t>();
    const std::int64_t* halo_ptr = shard.halo_ptr.const_data_ptr<std::int64_t>();
    for (std::int64_t r = 0; r < shard.parts; ++r) {
      send_counts.push_back(send_ptr[r + 1] - send_ptr[r]);
      receive_counts.push_back(halo_ptr[r + 1] - halo_ptr[r]);
    }
  });
  const std::vector<std::int64_t> announced = ranks->exchange_counts(send_counts, "the halo");
  ranks->together("the halo", [&] {
    check(announced == receive_counts,
          "DistributedGraph: the shards do not fit together; they must be of one partition");
  });
  // The owners' places of the halo, and their originals to be sure.
  at::Tensor sent = at::empty({shard.send.numel(), 2}, at::kLong);
  const std::int64_t* node = shard.nodes.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < shard.send.numel(); ++i) {
    const std::int64_t local = shard.send.const_data_ptr<std::int32_t>()[i];
    sent.data_ptr<std::int64_t>()[2 * i] = shard.first + local;
    sent.data_ptr<std::int64_t>()[2 * i + 1] = node[local];
  }
  const at::Tensor received = ranks->start_exchange(sent, send_counts, receive_counts, "the halo").wait();
  DistributedGraph owners;
  owners.ranks_ = ranks;
  owners.directed_ = shard.directed;
  owners.begin_ = begins_of(*ranks, own);
  std::vector<Entry> entries;
  ranks->together("the halo", [&] {
    const std::int64_t* found = received.const_data_ptr<std::int64_t>();
    for (std::int64_t k = 0; k < halo; ++k) {
      check(found[2 * k + 1] == shard.halo.const_data_ptr<std::int64_t>()[k],
            "DistributedGraph: the shards do not fit together; they must be of one partition");
    }
    for (std::int64_t i = 0; i < own; ++i) {
      owners.original_.push_back(static_cast<std::int32_t>(node[i]));
      owners.place_.push_back(static_cast<std::int32_t>(shard.first + i));
    }
    const std::int64_t* row_ptr = shard.row_ptr.const_data_ptr<std::int64_t>();
    const std::int32_t* col = shard.col.const_data_ptr<std::int32_t>();
    const float* weight = shard.weight.const_data_ptr<float>();
    for (std::int64_t i = 0; i < own; ++i) {
      for (std::int64_t e = row_ptr[i]; e < row_ptr[i + 1]; ++e) {
        const std::int64_t c = col[e];
        const std::int64_t place = c < own ? shard.first + c : found[2 * (c - own)];
        const std::int64_t original = c < own ? node[c] : found[2 * (c - own) + 1];
        entries.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(place),
                           static_cast<std::int32_t>(original), weight[e]});
      }
    }
  });
  owners.row_ptr_.assign(static_cast<std::size_t>(own) + 1, 0);
  return owners.with_entries(entries);
}

DistributedGraph DistributedGraph::from_edges(std::int64_t total_nodes, const at::Tensor& nodes,
                                              const at::Tensor& edges, const at::Tensor& weight,
                                              bool directed, const RanksPtr& ranks) {
  constexpr const char* kWhere = "DistributedGraph::from_edges";
  struct Known {
    std::int32_t original, place;
  };
  at::Tensor own_nodes, from_to, weights;
  ranks->together("the edges", [&] {
    check_num_nodes(kWhere, total_nodes);
    check(nodes.defined() && nodes.dim() == 1 && is_index(nodes),
          "{}: expected nodes [n] of integers, got {}", kWhere, describe(nodes));
    check(edges.defined() && edges.dim() == 2 && edges.size(0) == 2 && is_index(edges),
          "{}: expected edges [2, e] of integers, got {}", kWhere, describe(edges));
    check(!weight.defined() || (weight.dim() == 1 && weight.size(0) == edges.size(1) && !weight.is_complex()),
          "{}: expected weight [{}] like the edges, got {}", kWhere, edges.size(1), describe(weight));
    own_nodes = nodes.to(at::kCPU, at::kLong).contiguous();
    from_to = edges.to(at::kCPU, at::kLong).contiguous();
    weights = weight.defined() ? weight.detach().to(at::kCPU, at::kFloat).contiguous() : weight;
    const std::int64_t* node = own_nodes.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < own_nodes.numel(); ++i) {
      check(node[i] >= 0 && node[i] < total_nodes && (i == 0 || node[i] > node[i - 1]),
            "{}: nodes must ascend from 0 to below {}, got {} at {}", kWhere, total_nodes, node[i], i);
    }
    const std::int64_t* end = from_to.const_data_ptr<std::int64_t>();
    const std::int64_t count = from_to.size(1);
    for (std::int64_t e = 0; e < count; ++e) {
      check(std::binary_search(node, node + own_nodes.numel(), end[e]),
            "{}: edge {} belongs to node {}, which this rank does not own", kWhere, e, end[e]);
      check(end[count + e] >= 0 && end[count + e] < total_nodes,
            "{}: edge {} joins node {}, expected 0 to {}", kWhere, e, end[count + e], total_nodes - 1);
      check(!weights.defined() || std::isfinite(weights.const_data_ptr<float>()[e]),
            "{}: weight {} is not finite", kWhere, e);
    }
  });
  DistributedGraph owners;
  owners.ranks_ = ranks;
  owners.directed_ = directed;
  owners.begin_ = begins_of(*ranks, own_nodes.numel());
  check(owners.begin_.back() == total_nodes, "{}: the ranks own {} nodes together, expected each of {} once",
        kWhere, owners.begin_.back(), total_nodes);
  check_same(*ranks, directed, "the graph must be directed on all ranks or on none");

  // Who owns what is kept spread over the ranks by original numbers: node g is looked up at rank g R / N.
  const auto keeper = [&](std::int64_t node) {
    return static_cast<std::size_t>(node * ranks->size() / std::max<std::int64_t>(1, total_nodes));
  };
  const std::int64_t own = own_nodes.numel(), first = owners.begin_[static_cast<std::size_t>(ranks->rank())];
  const std::int64_t* node = own_nodes.const_data_ptr<std::int64_t>();
  PerRank<Known> said = lists_for<Known>(*ranks);
  for (std::int64_t i = 0; i < own; ++i) {
    owners.original_.push_back(static_cast<std::int32_t>(node[i]));
    owners.place_.push_back(static_cast<std::int32_t>(first + i));
    said[keeper(node[i])].push_back({owners.original_.back(), owners.place_.back()});
  }
  std::vector<Known> kept;
  for (const std::vector<Known>& list : exchange_lists(*ranks, said, "who owns what"))
    kept.insert(kept.end(), list.begin(), list.end());
  std::sort(kept.begin(), kept.end(), [](const Known& a, const Known& b) { return a.original < b.original; });
  ranks->together("who owns what", [&] {
    for (std::size_t i = 1; i < kept.size(); ++i) {
      check(kept[i].original != kept[i - 1].original, "{}: two ranks own node {}", kWhere, kept[i].original);
    }
  });

  const std::int64_t count = from_to.size(1);
  const std::int64_t* end = from_to.const_data_ptr<std::int64_t>();
  PerRank<std::int32_t> asked = lists_for<std::int32_t>(*ranks);
  for (std::int64_t e = 0; e < count; ++e)
    asked[keeper(end[count + e])].push_back(static_cast<std::int32_t>(end[count + e]));
  for (std::vector<std::int32_t>& list : asked) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  const PerRank<std::int32_t> questions = exchange_lists(*ranks, asked, "who owns what");
  PerRank<std::int32_t> answers = lists_for<std::int32_t>(*ranks);
  for (std::size_t r = 0; r < questions.size(); ++r) {
    for (const std::int32_t original : questions[r]) {
      const auto found = std::lower_bound(kept.begin(), kept.end(), original,
                                          [](const Known& a, std::int32_t b) { return a.original < b; });
      answers[r].push_back(found->place);  // each of the N nodes is kept somewhere: the counts said so
    }
  }
  const PerRank<std::int32_t> places = exchange_lists(*ranks, answers, "who owns what");
  std::vector<Entry> entries;
  for (std::int64_t e = 0; e < count; ++e) {
    const auto to = static_cast<std::int32_t>(end[count + e]);
    const std::size_t where = keeper(to);
    const auto at = std::lower_bound(asked[where].begin(), asked[where].end(), to) - asked[where].begin();
    const auto row = static_cast<std::int32_t>(std::lower_bound(node, node + own, end[e]) - node);
    entries.push_back({row, places[where][static_cast<std::size_t>(at)], to,
                       weights.defined() ? weights.const_data_ptr<float>()[e] : 1.0f});
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.row, a.original) < std::pair(b.row, b.original);
  });
  owners.row_ptr_.assign(static_cast<std::size_t>(own) + 1, 0);
  return owners.with_entries(entries);
}

std::int64_t DistributedGraph::largest_part() const {
  std::int64_t most = 0;
  for (std::size_t r = 0; r + 1 < begin_.size(); ++r) most = std::max(most, begin_[r + 1] - begin_[r]);
  return most;
}

at::Tensor DistributedGraph::nodes() const {
  return take_vector(std::vector<std::int64_t>(original_.begin(), original_.begin() + num_own()));
}

CsrView DistributedGraph::view() const {
  return {num_own(), row_ptr_.data(), col_.data(), weight_.data()};
}

at::Tensor DistributedGraph::degrees() const {
  return take_vector(absolute_row_sums(view()));
}

at::Tensor DistributedGraph::halo_rows(const at::Tensor& own) const {
  check(own.dim() >= 1 && own.size(0) == num_own(),
        "DistributedGraph: expected one row for each of {} own nodes, got {}", num_own(), describe(own));
  return halo_->start(own.index_select(0, halo_->send_rows().to(own.device())), "the halo").wait();
}

DistributedGraph DistributedGraph::normalised(Normalisation how) const {
  if (how == Normalisation::none) return *this;
  const auto inverse = [](std::vector<double> sums, bool root) {
    for (double& sum : sums) sum = sum > 0 ? 1 / (root ? std::sqrt(sum) : sum) : 0;
    return sums;
  };
  std::vector<double> left(static_cast<std::size_t>(num_own()), 1.0), right(original_.size(), 1.0);
  if (how == Normalisation::symmetric) {
    left = inverse(absolute_row_sums(view()), true);
    // The rows of the transpose are columns in the order of their rows: the same sums as in one process.
    const std::vector<double> columns =
        directed_ ? inverse(absolute_row_sums(transposed().view()), true) : left;
    std::copy(columns.begin(), columns.end(), right.begin());
    const at::Tensor halo = halo_rows(take_vector(columns));
    std::copy_n(halo.const_data_ptr<double>(), halo.numel(), right.begin() + num_own());
  } else if (how == Normalisation::random_walk) {
    left = inverse(absolute_row_sums(view()), false);
  } else {
    double largest = 0;
    const CsrView rows = view();
    for (std::int64_t i = 0; i < rows.num_nodes; ++i) {
      for (std::int64_t e = rows.row_ptr[i]; e < rows.row_ptr[i + 1]; ++e) {
        largest = std::max(
            largest, std::abs(static_cast<double>(rows.weight[e])) * static_cast<double>(rows.degree(i)));
      }
    }
    largest = ranks_->largest(at::tensor({largest}, at::kDouble), "degrees").item<double>();
    if (largest > 0) std::fill(left.begin(), left.end(), 1 / largest);
  }
  DistributedGraph scaled = *this;
  scaled.weight_ = scale_entries(view(), left, right);
  return scaled;
}

DistributedGraph DistributedGraph::transposed() const {
  struct Arrow {
    std::int32_t to;                   // place
    std::int32_t from, from_original;  // place, original
    float weight;
  };
  PerRank<Arrow> sent = lists_for<Arrow>(*ranks_);
  for (std::int64_t i = 0; i < num_own(); ++i) {
    for (std::int64_t e = row_ptr_[i]; e < row_ptr_[i + 1]; ++e) {
      sent[static_cast<std::size_t>(owner_of(begin_, place_[col_[e]]))].push_back(
          {place_[col_[e]], place_[i], original_[i], weight_[e]});
    }
  }
  const auto first = static_cast<std::int32_t>(begin_[static_cast<std::size_t>(ranks_->rank())]);
  std::vector<Entry> entries;
  for (const std::vector<Arrow>& list : exchange_lists(*ranks_, sent, "the transposed graph")) {
    for (const Arrow& arrow : list)
      entries.push_back({arrow.to - first, arrow.from, arrow.from_original, arrow.weight});
  }
  // Parallel edges come from one rank and keep their order.
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.row, a.original) < std::pair(b.row, b.original);
  });
  return with_entries(entries);
}

bool DistributedGraph::is_symmetric() const {
  const DistributedGraph columns = transposed();
  bool same = row_ptr_ == columns.row_ptr_ && weight_ == columns.weight_;
  for (std::size_t e = 0; same && e < col_.size(); ++e)
    same = place_[col_[e]] == columns.place_[columns.col_[e]];
  const at::Tensor differs = at::tensor({same ? 0 : 1}, at::kLong);
  return ranks_->largest(differs, "whether W is symmetric").item<std::int64_t>() == 0;
}

}  // namespace topomask
