#include "topomask/graph.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "graph/cpu/components.h"
#include "graph/cpu/limits.h"
#include "graph/cpu/rows.h"
#include "graph/cpu/transform.h"
#include "graph/gpu.h"
#include "graph/tensors.h"

namespace topomask {
namespace {

void check_finite(const char* where, const float* values, std::int64_t count) {
  for (std::int64_t e = 0; e < count; ++e) {
    check(std::isfinite(values[e]), "{}: weight {} is {}, expected a finite number", where, e, values[e]);
  }
}

bool is_symmetric_view(const CsrView& graph) {
  return equal_rows(graph, transpose(graph).view());
}

}  // namespace

Graph::Graph() : Graph(from_csr({}, false)) {}

Graph::Graph(at::Tensor row_ptr_, at::Tensor col_, at::Tensor weight_, bool directed_,
             std::int64_t out_degree_)
    : row_ptr(std::move(row_ptr_)),
      col(std::move(col_)),
      weight(std::move(weight_)),
      directed(directed_),
      out_degree(out_degree_) {}

Graph Graph::from_csr(CsrArrays rows, bool directed) {
  check(!rows.row_ptr.empty() && rows.row_ptr.front() == 0 &&
            rows.row_ptr.back() == static_cast<std::int64_t>(rows.col.size()) &&
            rows.col.size() == rows.weight.size(),
        "Graph::from_csr: expected row_ptr from 0 to the number of columns and weights, got {} columns and "
        "{} weights",
        rows.col.size(), rows.weight.size());
  return {take_vector(std::move(rows.row_ptr)), take_vector(std::move(rows.col)),
          take_vector(std::move(rows.weight)), directed};
}

Graph Graph::from_edges(const EdgeList& edges, const GraphPolicy& policy) {
  BuiltRows built = build_rows(edges, policy);
  return from_csr(std::move(built.rows), built.directed);
}

Graph Graph::from_dense(const at::Tensor& adjacency) {
  check(adjacency.defined() && adjacency.dim() == 2 && adjacency.size(0) == adjacency.size(1),
        "Graph::from_dense: expected a matrix [N, N], got {}", describe(adjacency));
  check(!adjacency.is_complex(), "Graph::from_dense: expected real numbers, got {}", describe(adjacency));
  check_num_nodes("Graph::from_dense", adjacency.size(0));
  const at::Tensor dense = adjacency.detach().to(at::kCPU, at::kFloat).contiguous();
  const std::int64_t num_nodes = dense.size(0);
  const float* value = dense.const_data_ptr<float>();
  CsrArrays rows;
  for (std::int64_t i = 0; i < num_nodes; ++i) {
    for (std::int64_t j = 0; j < num_nodes; ++j, ++value) {
      check(std::isfinite(*value), "Graph::from_dense: entry ({}, {}) is {}, expected a finite number", i, j,
            *value);
      if (*value == 0) continue;
      rows.col.push_back(static_cast<std::int32_t>(j));
      rows.weight.push_back(*value);
    }
    rows.row_ptr.push_back(static_cast<std::int64_t>(rows.col.size()));
  }
  const bool directed = !is_symmetric_view(rows.view());
  return from_csr(std::move(rows), directed).to(adjacency.device());
}

Graph Graph::from_csr_tensors(const at::Tensor& row_ptr, const at::Tensor& col, const at::Tensor& weight) {
  constexpr const char* kWhere = "Graph::from_csr_tensors";
  check(row_ptr.defined() && row_ptr.dim() == 1 && row_ptr.size(0) >= 1 && is_index(row_ptr),
        "{}: expected row_ptr [N+1] of int32 or int64, got {}", kWhere, describe(row_ptr));
  check(col.defined() && col.dim() == 1 && is_index(col), "{}: expected col [E] of int32 or int64, got {}",
        kWhere, describe(col));
  check(!weight.defined() || (weight.dim() == 1 && weight.size(0) == col.size(0) && !weight.is_complex()),
        "{}: expected real weight [{}] like col, got {}", kWhere, col.size(0), describe(weight));
  check_num_nodes(kWhere, row_ptr.size(0) - 1);
  check_num_entries(kWhere, static_cast<double>(col.size(0)));

  const at::Tensor starts = row_ptr.to(at::kCPU, at::kLong).contiguous();
  const at::Tensor columns = col.to(at::kCPU, at::kLong).contiguous();
  const at::Tensor values = weight.defined() ? weight.detach().to(at::kCPU, at::kFloat).contiguous()
                                             : at::ones({col.size(0)}, at::kFloat);
  const std::int64_t num_nodes = starts.size(0) - 1, num_entries = columns.size(0);
  const std::int64_t *start = starts.const_data_ptr<std::int64_t>(),
                     *column = columns.const_data_ptr<std::int64_t>();
  check(start[0] == 0, "{}: expected row_ptr to begin with 0, got {}", kWhere, start[0]);
  check(start[num_nodes] == num_entries, "{}: expected row_ptr to end with the {} entries of col, got {}",
        kWhere, num_entries, start[num_nodes]);
  for (std::int64_t i = 0; i < num_nodes; ++i) {
    check(start[i] <= start[i + 1], "{}: expected row_ptr to be non-decreasing, got {} before {} at row {}",
          kWhere, start[i], start[i + 1], i);
  }
  std::vector<std::int32_t> narrow(static_cast<std::size_t>(num_entries));
  for (std::int64_t e = 0; e < num_entries; ++e) {
    check(column[e] >= 0 && column[e] < num_nodes, "{}: expected columns from 0 to {}, got {} at entry {}",
          kWhere, num_nodes - 1, column[e], e);
    narrow[e] = static_cast<std::int32_t>(column[e]);
  }
  const float* value = values.const_data_ptr<float>();
  check_finite(kWhere, value, num_entries);

  // The transpose is sorted, and so is its transpose; comparing the two decides `directed`.
  const CsrArrays reversed = transpose({num_nodes, start, narrow.data(), value});
  CsrArrays rows = transpose(reversed.view());
  const bool directed = !equal_rows(rows.view(), reversed.view());
  return from_csr(std::move(rows), directed).to(row_ptr.device());
}

CsrView Graph::view() const {
  const auto is_rows_tensor = [](const at::Tensor& tensor, at::ScalarType dtype) {
    return tensor.defined() && tensor.dim() == 1 && tensor.device().is_cpu() && tensor.is_contiguous() &&
           tensor.scalar_type() == dtype;
  };
  check(is_rows_tensor(row_ptr, at::kLong) && row_ptr.size(0) >= 1,
        "Graph::view: expected row_ptr [N+1] of int64, contiguous on the CPU, got {}", describe(row_ptr));
  check(is_rows_tensor(col, at::kInt),
        "Graph::view: expected col [E] of int32, contiguous on the CPU, got {}", describe(col));
  check(is_rows_tensor(weight, at::kFloat) && weight.size(0) == col.size(0),
        "Graph::view: expected weight [{}] of float32, contiguous on the CPU, got {}", col.size(0),
        describe(weight));
  const CsrView rows = {num_nodes(), row_ptr.const_data_ptr<std::int64_t>(),
                        col.const_data_ptr<std::int32_t>(), weight.const_data_ptr<float>()};
  check(rows.num_entries() == col.size(0), "Graph::view: row_ptr ends with {}, but col has {} entries",
        rows.num_entries(), col.size(0));
  return rows;
}

Graph Graph::to(c10::Device device) const {
  return {row_ptr.to(device), col.to(device), weight.to(device), directed, out_degree};
}

at::Tensor Graph::to_dense() const {
  if (row_ptr.is_cuda()) return to_dense_cuda(*this);
  const CsrView rows = view();
  at::Tensor dense = at::zeros({rows.num_nodes, rows.num_nodes}, at::kDouble);
  double* out = dense.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < rows.num_nodes; ++i) {
    for (std::int64_t e = rows.row_ptr[i]; e < rows.row_ptr[i + 1]; ++e) {
      out[i * rows.num_nodes + rows.col[e]] += static_cast<double>(rows.weight[e]);
    }
  }
  return dense;
}

Graph Graph::transposed() const {
  if (row_ptr.is_cuda()) return transposed_cuda(*this);
  return from_csr(transpose(view()), directed);
}

bool Graph::is_symmetric() const {
  if (row_ptr.is_cuda()) {
    const Graph columns = transposed_cuda(*this);
    return at::equal(columns.row_ptr, row_ptr) && at::equal(columns.col, col) &&
           at::equal(columns.weight, weight);
  }
  return is_symmetric_view(view());
}

Graph Graph::with_weight(at::Tensor new_weight) const {
  check(new_weight.defined() && new_weight.dim() == 1 && new_weight.size(0) == num_entries() &&
            new_weight.scalar_type() == at::kFloat,
        "Graph::with_weight: expected weight [{}] of float32, got {}", num_entries(), describe(new_weight));
  return {row_ptr, col, std::move(new_weight), directed, out_degree};
}

Graph Graph::permuted(const at::Tensor& order) const {
  if (row_ptr.is_cuda()) {
    return permuted_cuda(*this,
                         order_tensor(permutation_from(order, num_nodes(), "Graph::permuted")).to(device()));
  }
  const CsrView rows = view();
  Graph result =
      from_csr(permute(rows, permutation_from(order, rows.num_nodes, "Graph::permuted")), directed);
  result.out_degree = out_degree;
  return result;
}

Graph normalise(const Graph& graph, Normalisation how) {
  if (how == Normalisation::none) return graph;
  if (graph.row_ptr.is_cuda()) return normalise_cuda(graph, how);
  const CsrView rows = graph.view();
  std::vector<double> left(static_cast<std::size_t>(rows.num_nodes), 1.0), right = left;
  // Zero only where every entry of the row (or column) is zero, so whatever it scales stays zero.
  const auto inverse = [](std::vector<double> sums, bool root) {
    for (double& sum : sums) sum = sum > 0 ? 1 / (root ? std::sqrt(sum) : sum) : 0;
    return sums;
  };
  if (how == Normalisation::symmetric) {
    left = inverse(absolute_row_sums(rows), true);
    right = graph.directed ? inverse(absolute_column_sums(rows), true) : left;
  } else if (how == Normalisation::random_walk) {
    left = inverse(absolute_row_sums(rows), false);
  } else {
    double largest = 0;
    for (std::int64_t i = 0; i < rows.num_nodes; ++i) {
      for (std::int64_t e = rows.row_ptr[i]; e < rows.row_ptr[i + 1]; ++e) {
        largest = std::max(
            largest, std::abs(static_cast<double>(rows.weight[e])) * static_cast<double>(rows.degree(i)));
      }
    }
    if (largest > 0) std::fill(left.begin(), left.end(), 1 / largest);
  }
  return graph.with_weight(take_vector(scale_entries(rows, left, right)));
}

GraphSummary summarise(const Graph& anywhere) {
  const Graph graph = anywhere.to(at::kCPU);
  const CsrView rows = graph.view();
  GraphSummary summary;
  summary.nodes = rows.num_nodes;
  summary.directed = graph.directed;
  summary.components = static_cast<std::int64_t>(weak_components(rows).size.size());
  if (rows.num_nodes == 0) return summary;
  summary.degree_min = rows.degree(0);
  std::vector<bool> touched(static_cast<std::size_t>(rows.num_nodes), false);
  for (std::int64_t i = 0; i < rows.num_nodes; ++i) {
    summary.degree_min = std::min(summary.degree_min, rows.degree(i));
    summary.degree_max = std::max(summary.degree_max, rows.degree(i));
    for (std::int64_t e = rows.row_ptr[i]; e < rows.row_ptr[i + 1]; ++e) {
      summary.self_loops += rows.col[e] == i;
      touched[i] = touched[rows.col[e]] = true;
    }
  }
  const std::int64_t entries = rows.num_entries();
  summary.isolated = std::count(touched.begin(), touched.end(), false);
  summary.edges = graph.directed ? entries : (entries - summary.self_loops) / 2 + summary.self_loops;
  summary.degree_mean = static_cast<double>(entries) / static_cast<double>(rows.num_nodes);
  if (entries > 0) {
    const auto [low, high] = std::minmax_element(rows.weight, rows.weight + entries);
    summary.weight_min = static_cast<double>(*low);
    summary.weight_max = static_cast<double>(*high);
  }
  return summary;
}

}  // namespace topomask
