#include "bench/walker_loop.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>

#include <algorithm>

#include "core/parallel.h"

namespace topomask::cli {

WalkerLoop::WalkerLoop(const Graph& graph, std::int64_t num_walks, int hops, std::optional<double> p_halt,
                       std::uint64_t seed)
    : num_walkers_(graph.num_nodes() * num_walks),
      hops_(hops),
      p_halt_(p_halt),
      generator_(at::make_generator<at::CPUGeneratorImpl>(seed)) {
  const CsrView rows = graph.view();
  row_ptr_.assign(rows.row_ptr, rows.row_ptr + rows.num_nodes + 1);
  col_.assign(rows.col, rows.col + rows.num_entries());
  start_.resize(static_cast<std::size_t>(num_walkers_));
  // All walkers of a node in a row: the order with the best locality for the loop.
  for (std::int64_t walker = 0; walker < num_walkers_; ++walker) {
    start_[static_cast<std::size_t>(walker)] = walker / num_walks;
  }
}

WalkerLoop::Uniforms WalkerLoop::draw() const {
  const auto uniform = [this] { return at::rand({num_walkers_, hops_}, generator_, at::kFloat); };
  return {uniform(), p_halt_ ? uniform() : at::Tensor()};
}

at::Tensor WalkerLoop::walk(const Uniforms& uniforms) const {
  constexpr std::int64_t kGrain = 2048;  // walkers a thread takes at least
  at::Tensor visited = at::empty({num_walkers_, hops_ + 1}, at::kLong);
  std::int64_t* const out = visited.mutable_data_ptr<std::int64_t>();
  const std::int64_t *const row_ptr = row_ptr_.data(), *const col = col_.data(), *const start = start_.data();
  const float* const step = uniforms.step.const_data_ptr<float>();
  const float* const halt = uniforms.halt.defined() ? uniforms.halt.const_data_ptr<float>() : nullptr;
  const auto p_halt = static_cast<float>(p_halt_.value_or(0));
  parallel_for(num_walkers_, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t walker = begin; walker < end; ++walker) {
      std::int64_t* const walk = out + walker * (hops_ + 1);
      std::int64_t node = start[walker];
      walk[0] = node;
      for (int hop = 0; hop < hops_; ++hop) {
        const std::int64_t first = row_ptr[node], degree = row_ptr[node + 1] - first;
        if (degree == 0 || (halt != nullptr && halt[walker * hops_ + hop] < p_halt)) {
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
