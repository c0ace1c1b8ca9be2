#include "attention/nan_cases.h"
#include "gpu.h"
#include "topomask/graph_builders.h"

namespace topomask {
namespace {

using NotANumberOnGpu = testing::OnGpu<testing::NanCase>;

TEST_P(NotANumberOnGpu, StaysOne) {
  const auto pattern_of = [](const Graph& graph) {
    return *NeighbourMask(graph, 2).entries().front().pattern;
  };
  EdgeList star;  // its centre has more entries than a segment of the mask engine
  star.num_nodes = 700;
  for (std::int32_t i = 1; i < 700; ++i) {
    star.source.push_back(0);
    star.target.push_back(i);
  }
  const SparsePattern few = pattern_of(path_graph(9)), many = pattern_of(path_graph(200)),
                      hub = *NeighbourMask(Graph::from_edges(star), 1).entries().front().pattern;
  const std::vector<at::ScalarType> dtypes = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};
  for (const std::int64_t d : {8, 40, 64, 128, 9}) {
    testing::expect_nan_kept(GetParam(), few, d, dtypes, at::kCUDA);
    testing::expect_nan_kept(GetParam(), many, d, dtypes, at::kCUDA);
  }
  if (GetParam().engine == Engine::mask) {
    for (const std::int64_t d : {64, 9}) testing::expect_nan_kept(GetParam(), hub, d, dtypes, at::kCUDA);
  }
}

INSTANTIATE_TEST_SUITE_P(All, NotANumberOnGpu, ::testing::ValuesIn(testing::nan_cases()));

}  // namespace
}  // namespace topomask
