#include "bench_walks.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "core/parallel.h"
#include "core/random.h"

namespace topomask::cli {
namespace {

constexpr std::int64_t kGrain = 2048;  // walkers a thread takes at least

// Uniform floats in [0, 1), in parallel: four of them per Philox block.
std::vector<float> draw_uniforms(std::int64_t count, std::uint64_t seed, std::uint32_t purpose) {
  std::vector<float> uniform(static_cast<std::size_t>(count));
  const std::int64_t blocks = (count + 3) / 4;
  parallel_for(blocks, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const RandomBlock words =
          philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, purpose},
                 static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
      const std::int64_t last = std::min<std::int64_t>(4, count - 4 * block);
      for (std::int64_t i = 0; i < last; ++i) {
        uniform[static_cast<std::size_t>(4 * block + i)] =
            static_cast<float>(words[static_cast<std::size_t>(i)] >> 8) * 0x1p-24f;
      }
    }
  });
  return uniform;
}

}  // namespace

WalkerLoop::WalkerLoop(const Graph& graph, std::int64_t num_walks, int hops, std::optional<double> p_halt,
                       std::uint64_t seed)
    : num_walkers_(graph.num_nodes() * num_walks), hops_(hops) {
  const CsrView rows = graph.view();
  row_ptr_.assign(rows.row_ptr, rows.row_ptr + rows.num_nodes + 1);
  col_.assign(rows.col, rows.col + rows.num_entries());
  start_.resize(static_cast<std::size_t>(num_walkers_));
  // All walkers of a node in a row: the order with the best locality for the loop.
  for (std::int64_t walker = 0; walker < num_walkers_; ++walker) {
    start_[static_cast<std::size_t>(walker)] = walker / num_walks;
  }
  step_uniform_ = draw_uniforms(num_walkers_ * hops, seed, 1);
  if (p_halt) {
    p_halt_ = static_cast<float>(*p_halt);
    halt_uniform_ = draw_uniforms(num_walkers_ * hops, seed, 2);
  }
}

at::Tensor WalkerLoop::run() const {
  // The result is allocated within the run: so does the library that is being compared.
  at::Tensor visited = at::empty({num_walkers_, hops_ + 1}, at::kLong);
  std::int64_t* const out = visited.mutable_data_ptr<std::int64_t>();
  const std::int64_t *const row_ptr = row_ptr_.data(), *const col = col_.data(), *const start = start_.data();
  const float* const step = step_uniform_.data();
  const float* const halt = halt_uniform_.empty() ? nullptr : halt_uniform_.data();
  parallel_for(num_walkers_, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t walker = begin; walker < end; ++walker) {
      std::int64_t* const walk = out + walker * (hops_ + 1);
      std::int64_t node = start[walker];
      walk[0] = node;
      for (int hop = 0; hop < hops_; ++hop) {
        const std::int64_t first = row_ptr[node], degree = row_ptr[node + 1] - first;
        if (degree == 0 || (halt != nullptr && halt[walker * hops_ + hop] < p_halt_)) {
          std::fill(walk + hop + 1, walk + hops_ + 1, -1);
          break;
        }
        node =
            col[first + static_cast<std::int64_t>(step[walker * hops_ + hop] * static_cast<float>(degree))];
        walk[hop + 1] = node;
      }
    }
  });
  return visited;
}

}  // namespace topomask::cli
