// The vector sampler: the same walks as walk_block_scalar.cpp, one walker per lane.
//
// Highway compiles this file once per instruction set and picks the widest at run time. What limits it is the
// gathers, so the table form needs a single one per step for the node and one for the load.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "walks/cpu/walk_block_vector.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include <hwy/highway.h>

#include <cstring>

#include "core/random.h"
#include "walks/cpu/walk_block.h"

HWY_BEFORE_NAMESPACE();
namespace topomask::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR  // no vectors to speak of

void walk_block(const WalkPlan& plan, const NeighbourTable& table, WalkBlock& block) {
  walk_block_scalar(plan, table, block);
}

void write_full_paths(const WalkBlock& block, std::int64_t stride, std::int32_t* out) {
  for (std::int64_t walker = 0; walker < block.num_walkers; ++walker) {
    for (std::int64_t hop = 0; hop < block.num_hops(); ++hop) {
      out[walker * stride + hop + 1] = block.visit_node[hop * block.num_walkers + walker];
    }
  }
}

#else

namespace hn = hwy::HWY_NAMESPACE;

using U32 = hn::ScalableTag<std::uint32_t>;
using I32 = hn::ScalableTag<std::int32_t>;
using F32 = hn::ScalableTag<float>;
using U64 = hn::Repartition<std::uint64_t, U32>;
using VecU = hn::Vec<U32>;
using VecI = hn::Vec<I32>;

// High halves of the 64-bit products of all lanes.
HWY_INLINE VecU multiply_high(VecU a, VecU b) {
  const U32 u32;
  const U64 u64;
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::BitCast(u32, hn::ShiftRight<32>(hn::BitCast(u64, a))),
                               hn::BitCast(u32, hn::ShiftRight<32>(hn::BitCast(u64, b))));
  return hn::OddEven(hn::BitCast(u32, odd), hn::BitCast(u32, hn::ShiftRight<32>(even)));
}

struct VectorBlock {
  VecU word[4];
};

// Philox on the even 32-bit lanes of its arguments. The odd lanes hold leftovers that MulEven never looks at,
// so a product is at once its own low half, and shifted right, its high half.
HWY_INLINE VectorBlock philox_even_lanes(VecU c0, VecU c1, VecU c2, VecU c3, std::uint32_t key0,
                                         std::uint32_t key1) {
  const U32 u32;
  const VecU multiplier0 = hn::Set(u32, kPhiloxMultiplier0);
  const VecU multiplier1 = hn::Set(u32, kPhiloxMultiplier1);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const auto product0 = hn::MulEven(c0, multiplier0);
    const auto product1 = hn::MulEven(c2, multiplier1);
    c0 = hn::Xor3(hn::BitCast(u32, hn::ShiftRight<32>(product1)), c1, hn::Set(u32, key0));
    c1 = hn::BitCast(u32, product1);
    c2 = hn::Xor3(hn::BitCast(u32, hn::ShiftRight<32>(product0)), c3, hn::Set(u32, key1));
    c3 = hn::BitCast(u32, product0);
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

HWY_INLINE VectorBlock philox_vector(VecU c0, VecU c1, std::uint32_t c2_scalar, std::uint32_t c3_scalar,
                                     std::uint32_t key0, std::uint32_t key1) {
  const U32 u32;
  const U64 u64;
  const VecU c2 = hn::Set(u32, c2_scalar);
  const VecU c3 = hn::Set(u32, c3_scalar);
  const auto odd_to_even = [&](VecU v) { return hn::BitCast(u32, hn::ShiftRight<32>(hn::BitCast(u64, v))); };
  const VectorBlock even = philox_even_lanes(c0, c1, c2, c3, key0, key1);
  const VectorBlock odd = philox_even_lanes(odd_to_even(c0), odd_to_even(c1), c2, c3, key0, key1);
  VectorBlock both;
  for (int k = 0; k < 4; ++k) {
    const VecU moved = hn::BitCast(u32, hn::ShiftLeft<32>(hn::BitCast(u64, odd.word[k])));
    both.word[k] = hn::OddEven(moved, even.word[k]);
  }
  return both;
}

// The numbers that random words are drawn for, of starts [0, num_starts) of the block. Lanes past the end may
// hold starts of other blocks: any valid one will do there.
HWY_INLINE VecU drawn_for(const CsrView& graph, const WalkBlock& block, VecI start) {
  const U32 u32;
  const I32 i32;
  const VecI first_start = hn::Set(i32, static_cast<std::int32_t>(block.first_start));
  if (graph.number == nullptr) return hn::BitCast(u32, hn::Add(start, first_start));
  const VecI last = hn::Set(i32, static_cast<std::int32_t>(block.num_starts - 1));
  const VecI valid = hn::Max(hn::Zero(i32), hn::Min(start, last));
  return hn::BitCast(u32, hn::GatherIndex(i32, graph.number, hn::Add(valid, first_start)));
}

// Lengths of all walkers of the block, from the halting words alone.
void draw_lengths(const WalkPlan& plan, const CsrView& graph, WalkBlock& block) {
  const U32 u32;
  const I32 i32;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(u32));
  const VecI half = hn::Set(i32, static_cast<std::int32_t>(plan.num_walks / 2));
  const std::uint32_t purpose = plan.purpose_word(Purpose::halt);
  for (std::int64_t i = 0; i < block.num_walkers; i += lanes) {
    const VecU start = drawn_for(graph, block, hn::LoadU(i32, &block.start_of[i]));
    VecI walk = hn::LoadU(i32, &block.walk_of[i]);
    VecU shift = hn::Zero(u32);
    if (plan.antithetic) {
      const auto partner = hn::Not(hn::Lt(walk, half));
      walk = hn::IfThenElse(partner, hn::Sub(walk, half), walk);
      shift = hn::IfThenElseZero(hn::RebindMask(u32, partner), hn::Set(u32, 0x80000000u));
    }
    VecI length = hn::Set(i32, plan.max_hops);
    for (int hop = 0; hop < plan.max_hops; hop += 4) {
      const VectorBlock random = philox_vector(
          start, hn::BitCast(u32, walk), static_cast<std::uint32_t>(hop / 4), purpose, plan.key0, plan.key1);
      for (int k = 0; k < 4 && hop + k < plan.max_hops; ++k) {
        const auto halted = hn::Lt(hn::Add(random.word[k], shift), hn::Set(u32, plan.halt_below[hop + k]));
        length = hn::Min(length, hn::IfThenElse(hn::RebindMask(i32, halted), hn::Set(i32, hop + k),
                                                hn::Set(i32, plan.max_hops)));
      }
      if (hn::AllTrue(i32, hn::Lt(length, hn::Set(i32, plan.max_hops)))) break;
    }
    hn::StoreU(length, i32, &block.length[i]);
  }
}

// Packs the walkers that go on for another hop to the front, in place. Returns how many there are.
std::int64_t keep_walking(const NeighbourTable& table, WalkBlock& block, std::int64_t live, int hop) {
  const U32 u32;
  const I32 i32;
  const F32 f32;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(i32));
  const int first_word = hop % 4;  // earlier words are used up; with 0, new ones will be drawn
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < live; i += lanes) {
    const VecI length = hn::LoadU(i32, &block.length[i]);
    const VecI node = hn::LoadU(i32, &block.node[i]);
    auto walking = hn::Gt(length, hn::Set(i32, hop));
    if (i + lanes > live) walking = hn::And(walking, hn::FirstN(i32, static_cast<std::size_t>(live - i)));
    if (table.has_sinks) {
      const VecI safe = hn::IfThenElseZero(walking, node);
      const VecI exits =
          table.slots > 0
              ? hn::GatherIndex(i32, table.slot_node.data(), hn::Mul(safe, hn::Set(i32, table.slots)))
              : hn::Sub(hn::GatherIndex(i32, table.row_degree.data(), safe), hn::Set(i32, 1));
      walking = hn::And(walking, hn::Gt(exits, hn::Set(i32, -1)));
    }
    const VecI id = hn::LoadU(i32, &block.id[i]);
    const auto load = hn::LoadU(f32, &block.load[i]);
    if (first_word > 0) {
      for (int k = first_word; k < 4; ++k) {
        const VecU word = hn::LoadU(u32, &block.word[k][i]);
        hn::StoreU(hn::Compress(word, hn::RebindMask(u32, walking)), u32, &block.word[k][kept]);
      }
    }
    hn::StoreU(hn::Compress(length, walking), i32, &block.length[kept]);
    hn::StoreU(hn::Compress(node, walking), i32, &block.node[kept]);
    hn::StoreU(hn::Compress(id, walking), i32, &block.id[kept]);
    hn::StoreU(hn::Compress(load, hn::RebindMask(f32, walking)), f32, &block.load[kept]);
    kept += static_cast<std::int64_t>(hn::CountTrue(i32, walking));
  }
  return kept;
}

void draw_step_words(const WalkPlan& plan, const CsrView& graph, WalkBlock& block, std::int64_t live,
                     int hop) {
  const U32 u32;
  const I32 i32;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(u32));
  const VecI last_id = hn::Set(i32, static_cast<std::int32_t>(block.num_walkers - 1));
  const std::uint32_t purpose = plan.purpose_word(Purpose::step);
  for (std::int64_t i = 0; i < live; i += lanes) {
    VecI start, walk;
    if (block.all_walk_on) {
      start = hn::LoadU(i32, &block.start_of[i]);
      walk = hn::LoadU(i32, &block.walk_of[i]);
    } else {
      // Lanes past the end hold old ids or padding: any valid id will do there.
      const VecI id = hn::Max(hn::Zero(i32), hn::Min(hn::LoadU(i32, &block.id[i]), last_id));
      start = hn::GatherIndex(i32, block.start_of.data(), id);
      walk = hn::GatherIndex(i32, block.walk_of.data(), id);
    }
    const VectorBlock random =
        philox_vector(drawn_for(graph, block, start), hn::BitCast(u32, walk),
                      static_cast<std::uint32_t>(hop / 4), purpose, plan.key0, plan.key1);
    for (int k = 0; k < 4; ++k) hn::StoreU(random.word[k], u32, &block.word[k][i]);
  }
}

// One hop of every live walker. `entry_of(node, word)` says where the chosen neighbour stands in `nodes`, the
// array of neighbours, and in `factors`, that of the factors on the load (null where nobody asked for loads).
template <class EntryOf>
HWY_INLINE void step_all(const WalkPlan& plan, WalkBlock& block, std::int64_t live, int hop,
                         const EntryOf& entry_of, const std::int32_t* nodes, const float* factors) {
  const U32 u32;
  const I32 i32;
  const F32 f32;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(u32));
  const std::int64_t base = block.hop_begin.back();
  block.reserve_visits(base + live);
  const auto inverse_continue = hn::Set(f32, plan.inverse_continue[hop]);
  const std::uint32_t* words = block.word[hop % 4].data();
  for (std::int64_t i = 0; i < live; i += lanes) {
    VecI node = hn::LoadU(i32, &block.node[i]);
    // Lanes past the end must not read outside the table.
    if (i + lanes > live)
      node = hn::IfThenElseZero(hn::FirstN(i32, static_cast<std::size_t>(live - i)), node);
    const VecI entry = entry_of(node, hn::LoadU(u32, words + i));
    const VecI next = hn::GatherIndex(i32, nodes, entry);
    hn::StoreU(next, i32, &block.node[i]);
    hn::StoreU(next, i32, &block.visit_node[base + i]);
    if (!block.all_walk_on) hn::StoreU(hn::LoadU(i32, &block.id[i]), i32, &block.visit_id[base + i]);
    if (factors == nullptr) continue;
    const auto factor = hn::GatherIndex(f32, factors, entry);
    const auto load = hn::Mul(hn::Mul(hn::LoadU(f32, &block.load[i]), factor), inverse_continue);
    hn::StoreU(load, f32, &block.load[i]);
    hn::StoreU(load, f32, &block.visit_load[base + i]);
  }
  block.hop_begin.push_back(base + live);
}

void walk_block(const WalkPlan& plan, const NeighbourTable& table, WalkBlock& block) {
  const U32 u32;
  const I32 i32;
  const F32 f32;
  std::int64_t live = block.num_walkers;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(i32));
  const VecI first_start = hn::Set(i32, static_cast<std::int32_t>(block.first_start));
  for (std::int64_t i = 0; i < live; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(i32, &block.start_of[i]), first_start), i32, &block.node[i]);
    hn::StoreU(hn::Set(f32, 1.0f), f32, &block.load[i]);
    if (block.all_walk_on) continue;
    hn::StoreU(hn::Iota(i32, static_cast<std::int32_t>(i)), i32, &block.id[i]);
    hn::StoreU(hn::Set(i32, plan.max_hops), i32, &block.length[i]);
  }
  if (!plan.always_max) draw_lengths(plan, table.graph, block);

  for (int hop = 0; hop < plan.max_hops; ++hop) {
    if (!block.all_walk_on) live = keep_walking(table, block, live, hop);
    if (live == 0) break;
    if (hop % 4 == 0) draw_step_words(plan, table.graph, block, live, hop);
    if (table.slots > 0) {
      const VecI slots = hn::Set(i32, table.slots);
      const auto entry_of = [&](VecI node, VecU word) {
        return hn::Add(hn::Mul(node, slots), hn::BitCast(i32, multiply_high(word, hn::BitCast(u32, slots))));
      };
      step_all(plan, block, live, hop, entry_of, table.slot_node.data(),
               plan.need_loads ? table.slot_factor.data() : nullptr);
    } else {
      const auto entry_of = [&](VecI node, VecU word) {
        const VecU degree = hn::BitCast(u32, hn::GatherIndex(i32, table.row_degree.data(), node));
        return hn::Add(hn::GatherIndex(i32, table.row_start.data(), node),
                       hn::BitCast(i32, multiply_high(word, degree)));
      };
      step_all(plan, block, live, hop, entry_of, table.graph.col,
               plan.need_loads ? table.edge_factor.data() : nullptr);
    }
  }
}

// out[w, 1 + h] = visits[h, w] in squares of four walkers by four hops, each a 128-bit store.
void write_full_paths(const WalkBlock& block, std::int64_t stride, std::int32_t* out) {
  const I32 i32;
  const hn::Repartition<std::int64_t, I32> i64;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(i32));
  const std::int64_t walkers = block.num_walkers;
  const std::int64_t hops = block.num_hops();
  const std::int32_t* visits = block.visit_node.data();
  const std::int64_t whole_walkers = walkers / lanes * lanes;
  const std::int64_t whole_hops = hops / 4 * 4;
  HWY_ALIGN std::int32_t square[4][HWY_MAX_BYTES / sizeof(std::int32_t)];
  for (std::int64_t first = 0; first < whole_walkers; first += lanes) {
    for (std::int64_t hop = 0; hop < whole_hops; hop += 4) {
      const std::int32_t* from = visits + hop * walkers + first;
      const VecI row0 = hn::LoadU(i32, from), row1 = hn::LoadU(i32, from + walkers);
      const VecI row2 = hn::LoadU(i32, from + 2 * walkers), row3 = hn::LoadU(i32, from + 3 * walkers);
      const auto low01 = hn::BitCast(i64, hn::InterleaveLower(i32, row0, row1));
      const auto high01 = hn::BitCast(i64, hn::InterleaveUpper(i32, row0, row1));
      const auto low23 = hn::BitCast(i64, hn::InterleaveLower(i32, row2, row3));
      const auto high23 = hn::BitCast(i64, hn::InterleaveUpper(i32, row2, row3));
      hn::Store(hn::BitCast(i32, hn::InterleaveLower(i64, low01, low23)), i32, square[0]);
      hn::Store(hn::BitCast(i32, hn::InterleaveUpper(i64, low01, low23)), i32, square[1]);
      hn::Store(hn::BitCast(i32, hn::InterleaveLower(i64, high01, high23)), i32, square[2]);
      hn::Store(hn::BitCast(i32, hn::InterleaveUpper(i64, high01, high23)), i32, square[3]);
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        std::memcpy(out + (first + lane) * stride + hop + 1, square[lane % 4] + lane / 4 * 4, 16);
      }
    }
  }
  for (std::int64_t walker = 0; walker < walkers; ++walker) {
    for (std::int64_t hop = walker < whole_walkers ? whole_hops : 0; hop < hops; ++hop) {
      out[walker * stride + hop + 1] = visits[hop * walkers + walker];
    }
  }
}

#endif  // HWY_TARGET

}  // namespace topomask::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace topomask {

HWY_EXPORT(walk_block);
HWY_EXPORT(write_full_paths);

bool walks_can_use_vectors(const WalkPlan& plan, const NeighbourTable& table) {
  return !plan.weighted_steps && !plan.repelling && (table.slots > 0 || !table.row_start.empty());
}

void walk_block_vector(const WalkPlan& plan, const NeighbourTable& table, WalkBlock& block) {
  HWY_DYNAMIC_DISPATCH(walk_block)(plan, table, block);
}

void write_full_paths(const WalkBlock& block, std::int64_t stride, std::int32_t* out) {
  HWY_DYNAMIC_DISPATCH(write_full_paths)(block, stride, out);
}

}  // namespace topomask

#endif  // HWY_ONCE
