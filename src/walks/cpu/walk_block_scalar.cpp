// The walker-by-walker sampler: the plain statement of what every sampler here computes, and the only one for
// weight-proportional and repelling steps.
#include <algorithm>
#include <tuple>

#include "core/random.h"
#include "walks/cpu/walk_block.h"

namespace topomask {

void WalkBlock::prepare(std::int64_t first, std::int64_t starts, const WalkPlan& plan) {
  first_start = first;
  num_starts = starts;
  const std::int64_t walkers = starts * plan.num_walks;
  if (walkers != num_walkers) {
    num_walkers = walkers;
    const auto padded = static_cast<std::size_t>(walkers + kPadding);
    for (auto* array : {&node, &id, &length, &start_of, &walk_of}) array->resize(padded);
    for (auto& words : word) words.resize(padded);
    load.resize(padded);
    for (std::int64_t walker = 0; walker < walkers; ++walker) {
      start_of[walker] = static_cast<std::int32_t>(walker / plan.num_walks);
      walk_of[walker] = static_cast<std::int32_t>(walker % plan.num_walks);
    }
  }
  hop_begin.assign(1, 0);
}

void WalkBlock::reserve_visits(std::int64_t total) {
  const auto padded = static_cast<std::size_t>(total + kPadding);
  if (visit_node.size() >= padded) return;
  for (auto* array : {&visit_node, &visit_id}) array->resize(padded + padded / 2);
  visit_load.resize(padded + padded / 2);
}

std::int64_t starts_per_block(const WalkPlan& plan) {
  constexpr std::int64_t kWalkersPerBlock = 512;
  return std::max<std::int64_t>(1, kWalkersPerBlock / plan.num_walks);
}

namespace {

RandomBlock draw(const WalkPlan& plan, std::int64_t start, std::uint32_t second, std::uint32_t third,
                 Purpose purpose) {
  return philox({static_cast<std::uint32_t>(start), second, third, plan.purpose_word(purpose)}, plan.key0,
                plan.key1);
}

int draw_length(const WalkPlan& plan, std::int64_t start, std::int64_t walk) {
  if (plan.always_max) return plan.max_hops;
  const std::int64_t half = plan.num_walks / 2;
  const bool partner = plan.antithetic && walk >= half;
  const auto key_walk = static_cast<std::uint32_t>(partner ? walk - half : walk);
  const std::uint32_t shift = partner ? 0x80000000u : 0u;  // (t + 1/2) mod 1
  RandomBlock block{};
  for (int hop = 0; hop < plan.max_hops; ++hop) {
    if (hop % 4 == 0) block = draw(plan, start, key_walk, static_cast<std::uint32_t>(hop / 4), Purpose::halt);
    if (block[hop % 4] + shift < plan.halt_below[hop]) return hop;
  }
  return plan.max_hops;
}

// Chooses a row index for each walker of one group: the live walkers of one start that stand on `node`.
class RepellingGroup {
 public:
  RepellingGroup(const WalkPlan& plan, const NeighbourTable& table, std::int64_t start, std::int32_t node,
                 int hop, std::int64_t size)
      : plan_(plan),
        table_(table),
        start_(start),
        node_(node),
        hop_(hop),
        size_(size),
        degree_(table.graph.degree(node)) {}

  std::int64_t choice(std::int64_t rank) {
    if (plan_.weighted_steps || size_ <= degree_) {
      // Systematic sampling: rank/m + u, along the neighbours or along their cumulative weights.
      const std::uint32_t offset = offset_word(0);
      if (plan_.weighted_steps) {
        // The group may have any size, and walkers of adjacent ranks often came the same way with the same
        // load. In the order of ranks they would leave the same way too, however many there are.
        rank = shuffled_rank(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(size_), block_);
      }
      const auto word = static_cast<std::uint32_t>(offset + (static_cast<std::uint64_t>(rank) << 32) / size_);
      return plan_.weighted_steps ? table_.weighted_choice(node_, word)
                                  : scale_word(word, static_cast<std::uint32_t>(degree_));
    }
    // More walkers than neighbours: every full block of `degree` walkers visits all neighbours, rotated by an
    // offset of its own; the rest takes consecutive neighbours from a fresh offset.
    const std::int64_t rotation =
        scale_word(offset_word(rank / degree_), static_cast<std::uint32_t>(degree_));
    return (rank % degree_ + rotation) % degree_;
  }

 private:
  std::uint32_t offset_word(std::int64_t index) {
    if (index / 4 != drawn_) {
      drawn_ = index / 4;
      block_ =
          draw(plan_, start_, static_cast<std::uint32_t>(table_.graph.number_of(node_)),
               static_cast<std::uint32_t>(hop_) + (static_cast<std::uint32_t>(drawn_) << 15), Purpose::repel);
    }
    return block_[index % 4];
  }

  const WalkPlan& plan_;
  const NeighbourTable& table_;
  std::int64_t start_;  // the number that words are drawn for
  std::int32_t node_;   // a row
  int hop_;
  std::int64_t size_, degree_;
  std::int64_t drawn_ = -1;
  RandomBlock block_{};
};

// By what a walker multiplies its load on its way to a neighbour.
float factor_on(const NeighbourTable& table, std::int64_t node, std::int64_t choice) {
  if (table.slots == 0) return table.edge_factor[table.graph.row_ptr[node] + choice];
  return table.slot_factor[node * table.slots + choice * table.slots / table.graph.degree(node)];
}

// The row index each live walker [begin, end) of one start takes; `order` is scratch.
void repelling_choices(const WalkPlan& plan, const NeighbourTable& table, const WalkBlock& block,
                       std::int64_t begin, std::int64_t end, int hop, std::vector<std::uint64_t>& order,
                       std::vector<std::int64_t>& choice) {
  order.clear();
  for (std::int64_t i = begin; i < end; ++i) {
    order.push_back(static_cast<std::uint64_t>(block.node[i]) << 32 | static_cast<std::uint64_t>(i));
  }
  std::sort(order.begin(), order.end());
  const std::int64_t start = table.graph.number_of(block.first_start + block.start_of[block.id[begin]]);
  for (std::size_t first = 0, last = 0; first < order.size(); first = last) {
    const auto node = static_cast<std::int32_t>(order[first] >> 32);
    while (last < order.size() && static_cast<std::int32_t>(order[last] >> 32) == node) ++last;
    RepellingGroup group(plan, table, start, node, hop, static_cast<std::int64_t>(last - first));
    for (std::size_t i = first; i < last; ++i) {
      choice[order[i] & 0xFFFFFFFFu] = group.choice(static_cast<std::int64_t>(i - first));
    }
  }
}

}  // namespace

void walk_block_scalar(const WalkPlan& plan, const NeighbourTable& table, WalkBlock& block) {
  const CsrView& graph = table.graph;
  std::int64_t live = block.num_walkers;
  for (std::int64_t walker = 0; walker < live; ++walker) {
    const std::int64_t start = block.first_start + block.start_of[walker];
    block.node[walker] = static_cast<std::int32_t>(start);
    block.id[walker] = static_cast<std::int32_t>(walker);
    block.load[walker] = 1.0f;
    block.length[walker] = draw_length(plan, graph.number_of(start), block.walk_of[walker]);
  }

  std::vector<std::uint64_t> order;
  std::vector<std::int64_t> choice(static_cast<std::size_t>(block.num_walkers));
  for (int hop = 0; hop < plan.max_hops; ++hop) {
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < live; ++i) {
      if (block.length[i] <= hop || graph.degree(block.node[i]) == 0) continue;
      block.node[kept] = block.node[i];
      block.id[kept] = block.id[i];
      block.load[kept] = block.load[i];
      block.length[kept] = block.length[i];
      ++kept;
    }
    live = kept;
    if (live == 0) break;

    if (plan.repelling) {
      for (std::int64_t begin = 0, end = 0; begin < live; begin = end) {
        const std::int32_t start = block.start_of[block.id[begin]];
        while (end < live && block.start_of[block.id[end]] == start) ++end;
        repelling_choices(plan, table, block, begin, end, hop, order, choice);
      }
    } else {
      for (std::int64_t i = 0; i < live; ++i) {
        const std::int64_t start = block.first_start + block.start_of[block.id[i]];
        const std::uint32_t word =
            draw(plan, graph.number_of(start), static_cast<std::uint32_t>(block.walk_of[block.id[i]]),
                 static_cast<std::uint32_t>(hop / 4), Purpose::step)[hop % 4];
        choice[i] = plan.weighted_steps
                        ? table.weighted_choice(block.node[i], word)
                        : scale_word(word, static_cast<std::uint32_t>(graph.degree(block.node[i])));
      }
    }

    const std::int64_t base = block.hop_begin.back();
    block.reserve_visits(base + live);
    for (std::int64_t i = 0; i < live; ++i) {
      const std::int64_t entry = graph.row_ptr[block.node[i]] + choice[i];
      const float factor = factor_on(table, block.node[i], choice[i]);
      block.node[i] = graph.col[entry];
      block.load[i] = block.load[i] * factor * plan.inverse_continue[hop];
      block.visit_node[base + i] = block.node[i];
      block.visit_load[base + i] = block.load[i];
      block.visit_id[base + i] = block.id[i];
    }
    block.hop_begin.push_back(base + live);
  }
}

int walk_length(const WalkPlan& plan, std::int64_t start, std::int64_t walk) {
  return draw_length(plan, start, walk);
}

void step_walkers(const WalkPlan& plan, const NeighbourTable& table, int hop,
                  std::span<LooseWalker> walkers) {
  const CsrView& graph = table.graph;
  const auto move = [&](LooseWalker& walker, std::int64_t choice) {
    walker.load = walker.load * factor_on(table, walker.node, choice) * plan.inverse_continue[hop];
    walker.node = graph.col[graph.row_ptr[walker.node] + choice];
  };
  if (!plan.repelling) {
    for (LooseWalker& walker : walkers) {
      const std::uint32_t word = draw(plan, walker.start, static_cast<std::uint32_t>(walker.walk),
                                      static_cast<std::uint32_t>(hop / 4), Purpose::step)[hop % 4];
      move(walker, plan.weighted_steps
                       ? table.weighted_choice(walker.node, word)
                       : scale_word(word, static_cast<std::uint32_t>(graph.degree(walker.node))));
    }
    return;
  }
  std::sort(walkers.begin(), walkers.end(), [](const LooseWalker& a, const LooseWalker& b) {
    return std::tie(a.start, a.node, a.walk) < std::tie(b.start, b.node, b.walk);
  });
  for (std::size_t first = 0, last = 0; first < walkers.size(); first = last) {
    const LooseWalker leader = walkers[first];
    while (last < walkers.size() && walkers[last].start == leader.start && walkers[last].node == leader.node)
      ++last;
    RepellingGroup group(plan, table, leader.start, leader.node, hop,
                         static_cast<std::int64_t>(last - first));
    for (std::size_t i = first; i < last; ++i)
      move(walkers[i], group.choice(static_cast<std::int64_t>(i - first)));
  }
}

}  // namespace topomask
