#include "walks/cpu/sample.h"

#include <algorithm>
#include <functional>

#include "core/interruption.h"
#include "core/parallel.h"
#include "walks/cpu/walk_block.h"

namespace topomask {

namespace {

constexpr std::int64_t kRowsPerPiece = 4096;

std::int64_t count_starts(const CsrView& graph, std::int64_t num_starts) {
  return num_starts < 0 ? graph.num_nodes : num_starts;
}

void run_block(const WalkPlan& plan, const NeighbourTable& table, std::int64_t begin, std::int64_t end,
               WalkBlock& block) {
  block.prepare(begin, end - begin, plan);
  block.all_walk_on = plan.always_max && !table.has_sinks;
  if (walks_can_use_vectors(plan, table)) {
    walk_block_vector(plan, table, block);
  } else {
    walk_block_scalar(plan, table, block);
  }
}

// Where the visits of one start node at one hop end, given where they begin.
std::int64_t end_of_start(const WalkBlock& block, const WalkPlan& plan, std::int64_t start, int hop,
                          std::int64_t visit) {
  if (block.all_walk_on) return visit + plan.num_walks;
  const std::int64_t end_id = (start + 1) * plan.num_walks;
  while (visit < block.hop_begin[hop + 1] && block.visit_id[visit] < end_id) ++visit;
  return visit;
}

// Writes the visits of a finished block as one row of `stride` nodes per walker; the rows already hold -1
// where walks may end early.
void write_paths(const WalkBlock& block, std::int64_t stride, std::int32_t* out) {
  for (std::int64_t walker = 0; walker < block.num_walkers; ++walker) {
    out[walker * stride] = static_cast<std::int32_t>(block.first_start) + block.start_of[walker];
  }
  if (block.all_walk_on) {
    write_full_paths(block, stride, out);
    return;
  }
  for (int hop = 0; hop < block.num_hops(); ++hop) {
    for (std::int64_t visit = block.hop_begin[hop]; visit < block.hop_begin[hop + 1]; ++visit) {
      out[block.visit_id[visit] * stride + hop + 1] = block.visit_node[visit];
    }
  }
}

// Coalesces the visits of a finished block, start by start.
void coalesce_block(const WalkPlan& plan, const WalkBlock& block, std::vector<std::int64_t>& cursor,
                    Coalescer& coalescer, FeatureRows& rows) {
  const int hops = block.num_hops();
  cursor.assign(block.hop_begin.begin(), block.hop_begin.end());
  const float scale = 1.0f / static_cast<float>(plan.num_walks);
  for (std::int64_t start = 0; start < block.num_starts; ++start) {
    coalescer.begin_row(1 + plan.num_walks * hops);
    coalescer.add(static_cast<std::int32_t>(block.first_start + start), 0,
                  static_cast<float>(plan.num_walks));
    for (int hop = 0; hop < hops; ++hop) {
      std::int64_t& visit = cursor[hop];
      const std::int64_t end = end_of_start(block, plan, start, hop, visit);
      for (; visit < end; ++visit) {
        coalescer.add(block.visit_node[visit], hop + 1, block.visit_load[visit]);
      }
    }
    coalescer.finish_row(scale, rows);
  }
}

// Runs `fill(first_row, last_row, rows)` for every piece in parallel and adds up the sizes.
FeaturePieces fill_pieces(std::int64_t num_rows,
                          const std::function<void(std::int64_t, std::int64_t, FeatureRows&)>& fill) {
  FeaturePieces result;
  result.num_rows = num_rows;
  const std::int64_t num_pieces = (num_rows + kRowsPerPiece - 1) / kRowsPerPiece;
  result.pieces.resize(static_cast<std::size_t>(num_pieces));
  parallel_for(num_pieces, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t piece = begin; piece < end; ++piece) {
      poll_interruption();
      fill(piece * kRowsPerPiece, std::min(num_rows, (piece + 1) * kRowsPerPiece), result.pieces[piece]);
    }
  });
  for (const FeatureRows& rows : result.pieces) {
    result.nnz += rows.col.size();
    result.num_deposits += rows.hop.size();
  }
  return result;
}

// Every walk from one node after the other; keeps its memory.
struct Enumerator {
  struct Reached {
    std::int32_t node;
    float load;
  };
  std::vector<Reached> level, next_level;
  Coalescer coalescer;

  void append_row(const CsrView& graph, const WalkPlan& plan, std::int64_t start, FeatureRows& rows);
};

// (W^h)_ij for all hops h, or the probabilities of visits without importance weights.
void Enumerator::append_row(const CsrView& graph, const WalkPlan& plan, std::int64_t start,
                            FeatureRows& rows) {
  level.assign(1, {static_cast<std::int32_t>(start), 1.0f});
  coalescer.begin_row(1 + plan.num_walks * plan.max_hops);
  coalescer.add(level[0].node, 0, 1.0f);
  for (int hop = 1; hop <= plan.max_hops; ++hop) {
    next_level.clear();
    for (const Reached& from : level) {
      for (std::int64_t entry = graph.row_ptr[from.node]; entry < graph.row_ptr[from.node + 1]; ++entry) {
        // Without importance weights a visit counts by how often it happens: 1 / out-degree per hop.
        const float factor = plan.importance_weights ? graph.weight[entry]
                                                     : 1.0f / static_cast<float>(graph.degree(from.node));
        next_level.push_back({graph.col[entry], from.load * factor});
        coalescer.add(graph.col[entry], hop, next_level.back().load);
      }
    }
    level.swap(next_level);
  }
  coalescer.finish_row(1.0f, rows);
}

}  // namespace

void sample_paths(const CsrView& graph, const WalkPlan& plan, std::int64_t hops, std::int32_t* paths,
                  std::int64_t num_starts) {
  const NeighbourTable table = make_neighbour_table(graph, plan);
  const std::int64_t stride = hops + 1;
  const std::int64_t starts = starts_per_block(plan);
  const std::int64_t all = count_starts(graph, num_starts), num_blocks = (all + starts - 1) / starts;
  const bool may_end_early = !plan.always_max || table.has_sinks || hops > plan.max_hops;
  parallel_for(num_blocks, 4, [&](std::int64_t first_block, std::int64_t last_block) {
    WalkBlock block;
    for (std::int64_t index = first_block; index < last_block; ++index) {
      poll_interruption();
      const std::int64_t begin = index * starts;
      run_block(plan, table, begin, std::min(all, begin + starts), block);
      std::int32_t* out = paths + begin * plan.num_walks * stride;
      if (may_end_early) std::fill(out, out + block.num_walkers * stride, -1);
      write_paths(block, stride, out);
    }
  });
}

FeaturePieces sample_feature_pieces(const CsrView& graph, const WalkPlan& plan, std::int64_t num_starts) {
  const NeighbourTable table = make_neighbour_table(graph, plan);
  const std::int64_t starts = starts_per_block(plan);
  return fill_pieces(count_starts(graph, num_starts),
                     [&](std::int64_t first_row, std::int64_t last_row, FeatureRows& rows) {
                       WalkBlock block;
                       Coalescer coalescer;
                       std::vector<std::int64_t> cursor;
                       for (std::int64_t begin = first_row; begin < last_row; begin += starts) {
                         poll_interruption();
                         run_block(plan, table, begin, std::min(last_row, begin + starts), block);
                         coalesce_block(plan, block, cursor, coalescer, rows);
                       }
                     });
}

bool ensemble_is_exhaustive(const CsrView& graph, const WalkPlan& plan) {
  if (!plan.repelling || plan.weighted_steps || !plan.always_max) return false;
  std::int64_t least = 0, most = 0;
  for (std::int64_t node = 0; node < graph.num_nodes; ++node) {
    const std::int64_t degree = graph.degree(node);
    if (degree == 0) continue;
    least = least == 0 ? degree : std::min(least, degree);
    most = std::max(most, degree);
    if (least != most) return false;
  }
  return ensemble_is_exhaustive(plan, least, most);
}

bool ensemble_is_exhaustive(const WalkPlan& plan, std::int64_t least_degree, std::int64_t most_degree) {
  if (!plan.repelling || plan.weighted_steps || !plan.always_max || least_degree != most_degree) return false;
  std::int64_t remaining = plan.num_walks;
  for (int hop = 0; hop < plan.max_hops && most_degree > 1; ++hop) {
    if (remaining % most_degree != 0) return false;
    remaining /= most_degree;
  }
  return true;
}

FeaturePieces enumerate_feature_pieces(const CsrView& graph, const WalkPlan& plan, std::int64_t num_starts) {
  return fill_pieces(count_starts(graph, num_starts),
                     [&](std::int64_t first_row, std::int64_t last_row, FeatureRows& rows) {
                       Enumerator enumerator;
                       for (std::int64_t start = first_row; start < last_row; ++start) {
                         enumerator.append_row(graph, plan, start, rows);
                       }
                     });
}

FeatureRows sample_feature_rows(const CsrView& graph, const WalkPlan& plan,
                                const std::vector<std::int64_t>& starts) {
  FeatureRows rows;
  if (ensemble_is_exhaustive(graph, plan)) {
    Enumerator enumerator;
    for (const std::int64_t start : starts) enumerator.append_row(graph, plan, start, rows);
    return rows;
  }
  const NeighbourTable table = make_neighbour_table(graph, plan);
  WalkBlock block;
  Coalescer coalescer;
  std::vector<std::int64_t> cursor;
  for (const std::int64_t start : starts) {
    run_block(plan, table, start, start + 1, block);
    coalesce_block(plan, block, cursor, coalescer, rows);
  }
  return rows;
}

void FeaturePieces::copy_to(std::int64_t* row_ptr, std::int32_t* col, std::int64_t* deposit_ptr,
                            std::int16_t* hop, float* load) const {
  const auto num_pieces = static_cast<std::int64_t>(pieces.size());
  std::vector<std::int64_t> first_entry(pieces.size() + 1, 0), first_deposit(pieces.size() + 1, 0);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    first_entry[i + 1] = first_entry[i] + pieces[i].col.size();
    first_deposit[i + 1] = first_deposit[i] + pieces[i].hop.size();
  }
  row_ptr[0] = 0;
  deposit_ptr[0] = 0;
  parallel_for(num_pieces, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t piece = begin; piece < end; ++piece) {
      const FeatureRows& rows = pieces[piece];
      std::int64_t* row_end = row_ptr + 1 + piece * kRowsPerPiece;
      std::int64_t entries = first_entry[piece];
      for (const std::int32_t count : rows.entries_in_row) *row_end++ = (entries += count);
      std::int64_t* entry_end = deposit_ptr + 1 + first_entry[piece];
      std::int64_t deposits = first_deposit[piece];
      for (const std::int32_t count : rows.deposits_in_entry) *entry_end++ = (deposits += count);
      std::copy(rows.col.begin(), rows.col.end(), col + first_entry[piece]);
      std::copy(rows.hop.begin(), rows.hop.end(), hop + first_deposit[piece]);
      std::copy(rows.load.begin(), rows.load.end(), load + first_deposit[piece]);
    }
  });
}

}  // namespace topomask
