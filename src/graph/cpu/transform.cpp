#include "graph/cpu/transform.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/parallel.h"
#include "core/running_sum.h"
#include "core/transpose.h"

namespace topomask {
namespace {

constexpr std::int64_t kRowsPerTask = 4096;

CsrArrays allocate_rows(std::vector<std::int64_t> degree_after_zero) {
  CsrArrays rows;
  rows.row_ptr = std::move(degree_after_zero);
  running_sum(rows.row_ptr.data(), static_cast<std::int64_t>(rows.row_ptr.size()));
  rows.col.resize(static_cast<std::size_t>(rows.row_ptr.back()));
  rows.weight.resize(rows.col.size());
  return rows;
}

}  // namespace

CsrArrays transpose(const CsrView& graph) {
  CsrArrays result;
  result.row_ptr.resize(static_cast<std::size_t>(graph.num_nodes) + 1);
  result.col.resize(static_cast<std::size_t>(graph.num_entries()));
  result.weight.resize(result.col.size());
  transpose_rows(graph.num_nodes, graph.num_nodes, graph.row_ptr, graph.col, result.row_ptr.data(),
                 [&](std::int64_t slot, std::int64_t row, std::int64_t entry) {
                   result.col[slot] = static_cast<std::int32_t>(row);
                   result.weight[slot] = graph.weight[entry];
                 });
  return result;
}

bool equal_rows(const CsrView& a, const CsrView& b) {
  const std::int64_t entries = a.num_entries();
  return a.num_nodes == b.num_nodes && entries == b.num_entries() &&
         std::equal(a.row_ptr, a.row_ptr + a.num_nodes + 1, b.row_ptr) &&
         std::equal(a.col, a.col + entries, b.col) && std::equal(a.weight, a.weight + entries, b.weight);
}

CsrArrays subgraph(const CsrView& graph, const std::vector<std::int32_t>& kept) {
  std::vector<std::int32_t> new_id(static_cast<std::size_t>(graph.num_nodes), -1);
  for (std::size_t i = 0; i < kept.size(); ++i) new_id[kept[i]] = static_cast<std::int32_t>(i);
  CsrArrays result;
  for (const std::int32_t old : kept) {
    for (std::int64_t e = graph.row_ptr[old]; e < graph.row_ptr[old + 1]; ++e) {
      if (new_id[graph.col[e]] < 0) continue;
      result.col.push_back(new_id[graph.col[e]]);
      result.weight.push_back(graph.weight[e]);
    }
    result.row_ptr.push_back(static_cast<std::int64_t>(result.col.size()));
  }
  return result;
}

CsrArrays ball(const CsrView& graph, std::int64_t most) {
  std::vector<bool> inside(static_cast<std::size_t>(graph.num_nodes), false);
  std::vector<std::int32_t> kept;
  const auto full = [&] { return static_cast<std::int64_t>(kept.size()) >= most; };
  const auto add = [&](std::int64_t node) {
    if (inside[node] || full()) return;
    inside[node] = true;
    kept.push_back(static_cast<std::int32_t>(node));
  };
  std::size_t next = 0;
  for (std::int64_t k = 0; k < graph.num_nodes && !full(); ++k) {
    add((graph.num_nodes / 2 + k) % graph.num_nodes);
    for (; next < kept.size() && !full(); ++next) {
      for (std::int64_t e = graph.row_ptr[kept[next]]; e < graph.row_ptr[kept[next] + 1]; ++e)
        add(graph.col[e]);
    }
  }
  std::sort(kept.begin(), kept.end());
  return subgraph(graph, kept);
}

CsrArrays permute(const CsrView& graph, const std::vector<std::int32_t>& order) {
  std::vector<std::int32_t> position(order.size());
  std::vector<std::int64_t> degree(order.size() + 1, 0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    position[order[i]] = static_cast<std::int32_t>(i);
    degree[i + 1] = graph.degree(order[i]);
  }
  CsrArrays relabelled = allocate_rows(std::move(degree));
  parallel_for(graph.num_nodes, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t from = graph.row_ptr[order[i]], to = relabelled.row_ptr[i];
      for (std::int64_t e = 0; e < graph.degree(order[i]); ++e) {
        relabelled.col[to + e] = position[graph.col[from + e]];
        relabelled.weight[to + e] = graph.weight[from + e];
      }
    }
  });
  // Two transposes are a stable counting sort of every row.
  return transpose(transpose(relabelled.view()).view());
}

CsrArrays symmetric_pattern(const CsrView& graph) {
  const CsrArrays reversed = transpose(graph);
  CsrArrays result;
  result.row_ptr.reserve(static_cast<std::size_t>(graph.num_nodes) + 1);
  result.col.reserve(2 * reversed.col.size());
  for (std::int64_t i = 0; i < graph.num_nodes; ++i) {
    const std::int64_t begin = result.row_ptr.back();
    std::merge(graph.col + graph.row_ptr[i], graph.col + graph.row_ptr[i + 1],
               reversed.col.begin() + reversed.row_ptr[i], reversed.col.begin() + reversed.row_ptr[i + 1],
               std::back_inserter(result.col));
    result.col.erase(std::unique(result.col.begin() + begin, result.col.end()), result.col.end());
    result.row_ptr.push_back(static_cast<std::int64_t>(result.col.size()));
  }
  result.weight.assign(result.col.size(), 1.0f);
  return result;
}

std::vector<double> absolute_row_sums(const CsrView& graph) {
  std::vector<double> sums(static_cast<std::size_t>(graph.num_nodes), 0);
  parallel_for(graph.num_nodes, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t e = graph.row_ptr[i]; e < graph.row_ptr[i + 1]; ++e) {
        sums[i] += std::abs(static_cast<double>(graph.weight[e]));
      }
    }
  });
  return sums;
}

std::vector<double> absolute_column_sums(const CsrView& graph) {
  std::vector<double> sums(static_cast<std::size_t>(graph.num_nodes), 0);
  for (std::int64_t e = 0; e < graph.num_entries(); ++e) {
    sums[graph.col[e]] += std::abs(static_cast<double>(graph.weight[e]));
  }
  return sums;
}

std::vector<float> scale_entries(const CsrView& graph, const std::vector<double>& left,
                                 const std::vector<double>& right) {
  std::vector<float> scaled(static_cast<std::size_t>(graph.num_entries()));
  parallel_for(graph.num_nodes, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t e = graph.row_ptr[i]; e < graph.row_ptr[i + 1]; ++e) {
        scaled[e] = static_cast<float>(graph.weight[e] * (left[i] * right[graph.col[e]]));
      }
    }
  });
  return scaled;
}

}  // namespace topomask
