// Random graphs. One sequential stream of random numbers each, so that a seed means one graph everywhere.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "core/parallel.h"
#include "core/random.h"
#include "graph/cpu/generators.h"
#include "graph/cpu/limits.h"

namespace topomask {
namespace {

// Keep streams for different purposes apart under one seed.
constexpr std::uint32_t kErdosRenyiStream = 0x45520001u;
constexpr std::uint32_t kBarabasiAlbertStream = 0x42410001u;
constexpr std::uint32_t kRandomRegularStream = 0x52520001u;

}  // namespace

CsrArrays mirror_lower_rows(std::span<const std::int64_t> lower_ptr,
                            std::span<const std::int32_t> lower_col) {
  const std::int64_t num_nodes = static_cast<std::int64_t>(lower_ptr.size()) - 1;
  CsrArrays rows;
  rows.row_ptr.assign(lower_ptr.size(), 0);
  for (std::int64_t i = 0; i < num_nodes; ++i) rows.row_ptr[i + 1] = lower_ptr[i + 1] - lower_ptr[i];
  for (const std::int32_t below : lower_col) ++rows.row_ptr[below + 1];
  std::partial_sum(rows.row_ptr.begin(), rows.row_ptr.end(), rows.row_ptr.begin());
  rows.col.resize(static_cast<std::size_t>(rows.row_ptr.back()));
  rows.weight.assign(rows.col.size(), 1.0f);
  // Row i is complete below i before any larger node appends itself, and those come in ascending order.
  std::vector<std::int64_t> next(rows.row_ptr.begin(), rows.row_ptr.end() - 1);
  for (std::int64_t i = 0; i < num_nodes; ++i) {
    for (std::int64_t e = lower_ptr[i]; e < lower_ptr[i + 1]; ++e) {
      rows.col[next[i]++] = lower_col[e];
      rows.col[next[lower_col[e]]++] = static_cast<std::int32_t>(i);
    }
  }
  return rows;
}

// Batagelj & Brandes 2005: jump over the absent pairs with geometric steps, O(N + E).
CsrArrays erdos_renyi_rows(std::int64_t num_nodes, double probability, std::uint64_t seed) {
  check_num_nodes("erdos_renyi", num_nodes);
  check(probability >= 0 && probability <= 1, "erdos_renyi: expected a probability in [0, 1], got {}",
        probability);
  const double pairs = 0.5 * static_cast<double>(num_nodes) * static_cast<double>(num_nodes - 1);
  check_num_entries("erdos_renyi", 2 * probability * pairs);
  std::vector<std::int64_t> lower_ptr(static_cast<std::size_t>(num_nodes) + 1, 0);
  std::vector<std::int32_t> lower_col;
  lower_col.reserve(static_cast<std::size_t>(pairs * probability + 4 * std::sqrt(pairs * probability)));
  RandomStream random(seed, kErdosRenyiStream);
  // log1p keeps its digits for the tiny probabilities of large sparse graphs; p = 1 gives -inf and jumps of
  // one.
  const double log_absent = std::log1p(-probability);
  std::int64_t row = 1, column = -1;
  while (row < num_nodes && probability > 0) {
    const double skip = std::floor(std::log1p(-random.next_double()) / log_absent);
    if (!(skip < pairs)) break;
    column += 1 + static_cast<std::int64_t>(skip);
    while (row < num_nodes && column >= row) {
      column -= row;
      lower_ptr[++row] = static_cast<std::int64_t>(lower_col.size());
    }
    if (row < num_nodes) lower_col.push_back(static_cast<std::int32_t>(column));
  }
  for (; row < num_nodes; ++row) lower_ptr[row + 1] = static_cast<std::int64_t>(lower_col.size());
  return mirror_lower_rows(lower_ptr, lower_col);
}

// Barabási & Albert 1999: a star on nodes 0 (the hub) to m, then each new node picks m distinct earlier ones
// with probability proportional to their degree. `ends` holds every node once per edge it has, so a uniform
// pick from it is a pick by degree.
CsrArrays barabasi_albert_rows(std::int64_t num_nodes, std::int64_t edges_per_node, std::uint64_t seed) {
  check_num_nodes("barabasi_albert", num_nodes);
  check(edges_per_node >= 1 && edges_per_node < num_nodes,
        "barabasi_albert: expected at least 1 and fewer than N = {} edges per node, got {}", num_nodes,
        edges_per_node);
  const std::int64_t m = edges_per_node, num_edges = m * (num_nodes - m);
  check_num_entries("barabasi_albert", 2.0 * static_cast<double>(m) * static_cast<double>(num_nodes - m));
  std::vector<std::int64_t> lower_ptr(static_cast<std::size_t>(num_nodes) + 1, 0);
  std::vector<std::int32_t> lower_col, ends;
  lower_col.reserve(static_cast<std::size_t>(num_edges));
  ends.reserve(static_cast<std::size_t>(2 * num_edges));
  const auto connect = [&](std::int64_t node, std::int32_t earlier) {
    ends.push_back(static_cast<std::int32_t>(node));
    ends.push_back(earlier);
  };
  std::vector<std::int32_t> picked_by(static_cast<std::size_t>(num_nodes), -1);
  RandomStream random(seed, kBarabasiAlbertStream);
  for (std::int64_t node = 1; node < num_nodes; ++node) {
    const std::size_t first = lower_col.size();
    if (node <= m) {
      lower_col.push_back(0);
    } else {
      while (lower_col.size() < first + static_cast<std::size_t>(m)) {
        const std::int32_t pick = ends[random.next_below(ends.size())];
        if (picked_by[pick] == node) continue;
        picked_by[pick] = static_cast<std::int32_t>(node);
        lower_col.push_back(pick);
      }
      std::sort(lower_col.begin() + first, lower_col.end());
    }
    for (std::size_t e = first; e < lower_col.size(); ++e) connect(node, lower_col[e]);
    lower_ptr[node + 1] = static_cast<std::int64_t>(lower_col.size());
  }
  return mirror_lower_rows(lower_ptr, lower_col);
}

namespace {

// A perfect matching on N * d slots, d per node: the configuration model. mate[s] is the slot joined to slot
// s.
class SlotMatching {
 public:
  SlotMatching(std::int64_t num_nodes, std::int64_t degree)
      : num_nodes_(num_nodes), degree_(degree), mate_(static_cast<std::size_t>(num_nodes * degree)) {}

  void shuffle(RandomStream& random) {
    std::vector<std::int32_t> slots(mate_.size());
    std::iota(slots.begin(), slots.end(), 0);
    for (std::size_t left = slots.size(); left > 1; left -= 2) {
      // A random partner for the last slot; the pair leaves the pool.
      std::swap(slots[left - 2], slots[random.next_below(left - 1)]);
      join(slots[left - 1], slots[left - 2]);
    }
  }

  // Makes the graph simple by switching each loop or parallel edge with random other edges (McKay & Wormald
  // 1990). A shuffle has about (d^2 - 1) / 4 such edges whatever N is. Returns false when it got stuck.
  bool repair(RandomStream& random) {
    constexpr int kAttempts = 1000;
    for (const std::int32_t slot : bad_slots()) {
      for (int attempt = 0; is_bad(slot); ++attempt) {
        if (attempt == kAttempts) return false;
        const std::int32_t end = mate_[slot];
        const auto other = static_cast<std::int32_t>(random.next_below(mate_.size()));
        const std::int32_t other_end = mate_[other];
        // The two new edges must be new: slot - other and end - other_end.
        if (other == slot || other == end || adjacent(slot, other) || adjacent(end, other_end)) continue;
        const bool same_pair = (node(slot) == node(end) && node(other) == node(other_end)) ||
                               (node(slot) == node(other_end) && node(other) == node(end));
        if (same_pair) continue;
        join(slot, other);
        join(end, other_end);
      }
    }
    return true;
  }

  std::vector<std::int32_t> sorted_neighbours() const {
    std::vector<std::int32_t> neighbours(mate_.size());
    parallel_for(num_nodes_, 4096, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t s = begin * degree_; s < end * degree_; ++s) neighbours[s] = node(mate_[s]);
      for (std::int64_t v = begin; v < end; ++v) {
        std::sort(neighbours.begin() + v * degree_, neighbours.begin() + (v + 1) * degree_);
      }
    });
    return neighbours;
  }

 private:
  std::int32_t node(std::int32_t slot) const {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(slot) / static_cast<std::uint32_t>(degree_));
  }
  void join(std::int32_t a, std::int32_t b) {
    mate_[a] = b;
    mate_[b] = a;
  }
  // Would joining the nodes of two slots give a loop or a parallel edge?
  bool adjacent(std::int32_t a, std::int32_t b) const {
    const std::int32_t u = node(a), v = node(b);
    if (u == v) return true;
    for (std::int64_t s = u * degree_; s < (u + 1) * degree_; ++s) {
      if (node(mate_[s]) == v) return true;
    }
    return false;
  }
  bool is_bad(std::int32_t slot) const {
    const std::int32_t u = node(slot), v = node(mate_[slot]);
    if (u == v) return true;
    for (std::int64_t s = u * degree_; s < (u + 1) * degree_; ++s) {
      if (s != slot && node(mate_[s]) == v) return true;
    }
    return false;
  }
  std::vector<std::int32_t> bad_slots() const {
    const std::vector<std::int32_t> neighbours = sorted_neighbours();
    std::vector<std::int32_t> bad;
    for (std::int64_t v = 0; v < num_nodes_; ++v) {
      const auto begin = neighbours.begin() + v * degree_, end = begin + degree_;
      if (std::adjacent_find(begin, end) == end &&
          !std::binary_search(begin, end, static_cast<std::int32_t>(v)))
        continue;
      for (std::int64_t s = v * degree_; s < (v + 1) * degree_; ++s) {
        if (is_bad(static_cast<std::int32_t>(s))) bad.push_back(static_cast<std::int32_t>(s));
      }
    }
    return bad;
  }

  std::int64_t num_nodes_, degree_;
  std::vector<std::int32_t> mate_;
};

// Every pair that `sparse` does not join.
CsrArrays complement(const std::vector<std::int32_t>& sparse, std::int64_t num_nodes,
                     std::int64_t sparse_degree) {
  const std::int64_t degree = num_nodes - 1 - sparse_degree;
  CsrArrays rows;
  rows.row_ptr.resize(static_cast<std::size_t>(num_nodes) + 1);
  rows.col.reserve(static_cast<std::size_t>(num_nodes * degree));
  for (std::int64_t v = 0; v < num_nodes; ++v) {
    auto absent = sparse.begin() + v * sparse_degree;
    const auto absent_end = absent + sparse_degree;
    for (std::int64_t u = 0; u < num_nodes; ++u) {
      if (absent != absent_end && *absent == u) {
        ++absent;
      } else if (u != v) {
        rows.col.push_back(static_cast<std::int32_t>(u));
      }
    }
    rows.row_ptr[v + 1] = (v + 1) * degree;
  }
  rows.weight.assign(rows.col.size(), 1.0f);
  return rows;
}

}  // namespace

CsrArrays random_regular_rows(std::int64_t num_nodes, std::int64_t degree, std::uint64_t seed) {
  check_num_nodes("random_regular", num_nodes);
  check(degree >= 0 && (degree < num_nodes || degree == 0),
        "random_regular: expected a degree of at least 0 and less than N = {}, got {}", num_nodes, degree);
  check(num_nodes % 2 == 0 || degree % 2 == 0, "random_regular: expected N * degree to be even, got {} * {}",
        num_nodes, degree);
  check(degree == 0 || num_nodes <= kMaxNodes / degree,
        "random_regular: expected N * degree to be at most 2^31 - 1, got {} * {}", num_nodes, degree);

  // Beyond half of all pairs it is the absent ones that are drawn: a sparse matching is easy to repair.
  const bool dense = 2 * degree > num_nodes - 1;
  const std::int64_t drawn = dense ? std::max<std::int64_t>(num_nodes - 1 - degree, 0) : degree;
  RandomStream random(seed, kRandomRegularStream);
  SlotMatching matching(num_nodes, drawn);
  do {
    matching.shuffle(random);
  } while (!matching.repair(random));
  if (dense) return complement(matching.sorted_neighbours(), num_nodes, drawn);
  CsrArrays rows;
  rows.row_ptr.resize(static_cast<std::size_t>(num_nodes) + 1);
  for (std::int64_t v = 0; v <= num_nodes; ++v) rows.row_ptr[v] = v * degree;
  rows.col = matching.sorted_neighbours();
  rows.weight.assign(rows.col.size(), 1.0f);
  return rows;
}

}  // namespace topomask
