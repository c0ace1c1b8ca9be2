#include <metis.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>

#include "core/check.h"
#include "graph/cpu/partitions.h"

namespace topomask {
namespace {

struct MetisGraph {
  std::vector<idx_t> begin, neighbour, work;
};

MetisGraph metis_graph(const CsrView& graph, const std::vector<std::int64_t>& work, std::int64_t parts) {
  MetisGraph result;
  result.begin.reserve(static_cast<std::size_t>(graph.num_nodes) + 1);
  result.neighbour.reserve(static_cast<std::size_t>(graph.num_entries()));
  result.begin.push_back(0);
  const std::int64_t total = std::accumulate(work.begin(), work.end(), std::int64_t{0});
  // A hub with more work than a part should have counts as a whole part: METIS would cut what is left into
  // parts without nodes, and complain about it on stdout.
  const std::int64_t most = std::max<std::int64_t>(total / parts, 1);
  for (std::int64_t i = 0; i < graph.num_nodes; ++i) {
    std::int64_t before = -1;
    for (std::int64_t e = graph.row_ptr[i]; e < graph.row_ptr[i + 1]; ++e) {
      const std::int32_t other = graph.col[e];
      if (other != i && other != before) result.neighbour.push_back(other);
      before = other;
    }
    result.begin.push_back(static_cast<idx_t>(result.neighbour.size()));
    result.work.push_back(static_cast<idx_t>(std::min(work[i], most)));
  }
  return result;
}

}  // namespace

std::vector<std::int32_t> partition_by_metis(const CsrView& graph, const std::vector<std::int64_t>& work,
                                             std::int64_t parts, double imbalance, std::uint64_t seed) {
  const std::int64_t total = std::accumulate(work.begin(), work.end(), std::int64_t{0});
  check(total + graph.num_entries() <= std::numeric_limits<idx_t>::max(),
        "partition: this METIS takes graphs of less than {} nodes and entries, got {}; use stream or morton",
        std::numeric_limits<idx_t>::max(), total + graph.num_entries());
  MetisGraph input = metis_graph(graph, work, parts);
  std::array<idx_t, METIS_NOPTIONS> options{};
  METIS_SetDefaultOptions(options.data());
  options[METIS_OPTION_NUMBERING] = 0;
  // METIS seeds the C library's generator with 31 bits.
  options[METIS_OPTION_SEED] = static_cast<idx_t>((seed ^ (seed >> 31) ^ (seed >> 62)) & 0x7fffffff);
  options[METIS_OPTION_UFACTOR] = static_cast<idx_t>(std::clamp(std::lround(1000 * imbalance), 1l, 1000000l));
  auto nodes = static_cast<idx_t>(graph.num_nodes), constraints = idx_t{1}, count = static_cast<idx_t>(parts),
       cut = idx_t{0};
  std::vector<idx_t> part(static_cast<std::size_t>(graph.num_nodes));
  // rand() is shared by all threads: one METIS at a time, or results would depend on the others.
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const int status =
      METIS_PartGraphKway(&nodes, &constraints, input.begin.data(), input.neighbour.data(), input.work.data(),
                          nullptr, nullptr, &count, nullptr, nullptr, options.data(), &cut, part.data());
  check(status != METIS_ERROR_MEMORY, "partition: METIS ran out of memory; use stream or morton");
  check(status == METIS_OK, "partition: METIS gave up with status {}", status);
  return {part.begin(), part.end()};
}

}  // namespace topomask
