// More numbers in q, and more entries in M, than 31 bits count; and the memory of it, foreseen and measured.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <map>

#include "gpu.h"
#include "topomask/attention.h"
#include "topomask/graph_builders.h"
#include "topomask/grf_mask.h"
#include "topomask/memory_plan.h"

namespace topomask {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);

struct LargeCase {
  std::int64_t side, d;
  FeatureOptions options;

  std::int64_t nodes() const { return side * side; }
  std::string spec() const { return "grid:" + std::to_string(side) + "x" + std::to_string(side); }
};

LargeCase large_case(std::int64_t side, std::int64_t d, std::int64_t walks, double p_halt, int max_hops) {
  LargeCase made{side, d, {}};
  made.options.walks.num_walks = walks;
  made.options.walks.p_halt = p_halt;
  made.options.walks.max_hops = max_hops;
  return made;
}

MemoryPlan foreseen(const LargeCase& one) {
  std::optional<ChainCounts> counts = count_chain(one.spec(), Normalisation::symmetric, one.options);
  if (!counts) counts = count_chain(grid_graph({one.side, one.side}), one.options);
  return plan_memory(*counts, {1, 1, one.nodes(), one.d, one.d, at::kBFloat16}, Engine::mask, false);
}

// The chain, step by step.
struct Chain {
  Graph graph;
  at::Tensor q, k, v, f;
  std::shared_ptr<const GrfMask> mask;
  at::Tensor out;

  explicit Chain(const LargeCase& one)
      : graph(normalise(grid_graph({one.side, one.side}).to(kGpu), Normalisation::symmetric)) {
    const at::NoGradGuard no_grad;
    at::manual_seed(5);
    const auto random = [&] {
      return at::randn({1, 1, one.nodes(), one.d}, at::TensorOptions(kGpu).dtype(at::kBFloat16));
    };
    q = random();
    k = random();
    v = random();
    f = at::exp(-0.5 * at::arange(one.options.walks.max_hops + 1, at::TensorOptions(kGpu).dtype(at::kFloat)));
    mask = std::make_shared<const GrfMask>(graph, one.options, f);
    AttentionOptions options;
    options.engine = Engine::mask;
    out = attention(q, k, v, mask, options);
  }
};

// A row of a sparse matrix on the host.
std::map<std::int64_t, double> row_of(const at::Tensor& row_ptr, const at::Tensor& col,
                                      const at::Tensor& value, std::int64_t row) {
  const auto begin = row_ptr[row].item<std::int64_t>(), count = row_ptr[row + 1].item<std::int64_t>() - begin;
  const at::Tensor columns = col.narrow(0, begin, count).cpu().to(at::kLong),
                   values = value.narrow(0, begin, count).cpu().to(at::kDouble);
  std::map<std::int64_t, double> entries;
  for (std::int64_t e = 0; e < count; ++e)
    entries[columns[e].item<std::int64_t>()] = values[e].item<double>();
  return entries;
}

// Rows here and there against what they mean: M = Phi Phi^T, and attention over the entries of a row.
void expect_right_rows(const Chain& chain, const LargeCase& one) {
  const at::NoGradGuard no_grad;
  const SparseEntries entries = chain.mask->entries().at(0);
  const WalkFeatures& phi = chain.mask->features(0).query;
  const at::Tensor phi_values = phi.values(chain.f), values = entries.values[0];
  for (const std::int64_t row : {std::int64_t{0}, one.nodes() / 3, one.nodes() / 2 + 7, one.nodes() - 1}) {
    SCOPED_TRACE(row);
    const auto own = row_of(phi.row_ptr, phi.col, phi_values, row);
    const auto found = row_of(entries.pattern->row_ptr, entries.pattern->col, values, row);
    EXPECT_TRUE(found.contains(row));
    at::Tensor columns = at::empty({static_cast<std::int64_t>(found.size())}, at::kLong);
    at::Tensor weights = at::empty({1, columns.size(0)}, at::kDouble);
    std::int64_t at = 0;
    for (const auto& [column, value] : found) {
      double dot = 0;
      for (const auto& [node, load] : row_of(phi.row_ptr, phi.col, phi_values, column)) {
        if (const auto met = own.find(node); met != own.end()) dot += met->second * load;
      }
      EXPECT_NEAR(value, dot, 1e-4 * std::abs(dot)) << column;
      columns[at] = column;
      weights[0][at++] = dot;
    }
    const at::Tensor there = columns.to(kGpu);
    const auto features = [](const at::Tensor& x) { return x.cpu().to(at::kDouble).relu() + 1e-3; };
    const at::Tensor keys = features(chain.k[0][0].index_select(0, there)),
                     query = features(chain.q[0][0].narrow(0, row, 1)),
                     of_keys = chain.v[0][0].index_select(0, there).cpu().to(at::kDouble);
    const at::Tensor scores = at::mm(query, keys.t()) * weights,
                     expected = at::mm(scores, of_keys) / scores.sum(),
                     got = chain.out[0][0].narrow(0, row, 1).cpu().to(at::kDouble);
    EXPECT_LT((got - expected).abs().max().item<double>(), 0.02 * expected.abs().max().item<double>());
  }
}

TEST(CudaLarge, MemoryIsForeseen) {
  TOPOMASK_NEEDS_GPU();
  const LargeCase one = large_case(1500, 64, 4, 0.5, 3);
  const MemoryPlan plan = foreseen(one);
  if (static_cast<double>(free_memory(kGpu)) < plan.peak) GTEST_SKIP() << "too little memory";
  reset_peak_memory(kGpu);
  const std::int64_t before = peak_memory(kGpu);
  const Chain chain(one);
  synchronise(kGpu);
  const auto measured = static_cast<double>(peak_memory(kGpu) - before);
  EXPECT_LT(measured, 1.1 * plan.peak) << plan.to_string();
  EXPECT_GT(measured, 0.7 * plan.peak) << plan.to_string();
  expect_right_rows(chain, one);
}

TEST(CudaLarge, BeyondThirtyOneBits) {
  TOPOMASK_NEEDS_GPU();
  const LargeCase one = large_case(6000, 64, 16, 0.2, 5);
  const MemoryPlan plan = foreseen(one);
  if (static_cast<double>(free_memory(kGpu)) < 1.1 * plan.peak)
    GTEST_SKIP() << "too little memory for " << plan.peak << " bytes";
  const Chain chain(one);
  constexpr std::int64_t kLimit = std::int64_t{1} << 31;
  EXPECT_GT(chain.q.numel(), kLimit);
  EXPECT_GT(chain.mask->profile().entries, kLimit);
  expect_right_rows(chain, one);
}

}  // namespace
}  // namespace topomask
