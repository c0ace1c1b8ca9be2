// What the operators share: arguments as torch passes them, checked, to the types of the library.
#pragma once

#include <ATen/core/Tensor.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/suggest.h"
#include "topomask/graph.h"
#include "topomask/mask.h"

namespace topomask::ops {

// A graph as operators return it: row_ptr [N+1] int64, col [E] int32, weight [E] float32.
using GraphTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

inline GraphTensors tensors_of(const Graph& graph) {
  return {graph.row_ptr, graph.col, graph.weight};
}

// The rows are checked, for an operator may be called with anything.
Graph graph_from(const at::Tensor& row_ptr, const at::Tensor& col, const at::Tensor& weight, bool directed);

// A pattern with its transpose: row_ptr, col, transposed_ptr, transposed_row, transposed_entry. Their sizes
// and types are checked here; their contents were by the operator that made them.
struct PatternArgument {
  PatternArgument(const char* op, const char* argument, at::TensorList tensors);
  std::int64_t num_nodes() const { return pattern->num_nodes(); }
  std::int64_t nnz() const { return pattern->nnz(); }
  const at::Tensor& row_ptr() const { return pattern->row_ptr; }

  std::shared_ptr<const SparsePattern> pattern;
};

// Throws unless this build of the library computes where the tensor is.
void check_place(const char* op, const char* argument, const at::Tensor& tensor);
// What belongs to a graph is made on the CPU.
void check_on_cpu(const char* op, const char* argument, const at::Tensor& tensor);
// Throws unless both are on one device.
void check_same_place(const char* op, const char* argument, const at::Tensor& tensor, const char* other,
                      const at::Tensor& reference);

enum class Reals {
  wide,              // float32 and float64
  or_narrow_on_gpu,  // and on a GPU bfloat16 and float16
};
// Real numbers of that shape, where the library computes. -1: any size.
void check_real(const char* op, const char* argument, const at::Tensor& tensor, at::IntArrayRef shape,
                Reals allowed = Reals::wide);
// float32 or float64, contiguous.
at::Tensor real_argument(const char* op, const char* argument, const at::Tensor& tensor,
                         at::IntArrayRef shape);

template <class Value>
using Choices = std::vector<std::pair<std::string_view, Value>>;

template <class Value>
Value choose(const char* argument, std::string_view word, const Choices<Value>& choices) {
  std::vector<std::string_view> names;
  for (const auto& [name, value] : choices) {
    if (name == word) return value;
    names.push_back(name);
  }
  const std::string suggestion = did_you_mean(word, std::span<const std::string_view>(names));
  if (!suggestion.empty()) fail("{}: unknown value '{}'{}", argument, word, suggestion);
  fail("{}: unknown value '{}', expected {}", argument, word, fmt::join(names, ", "));
}

}  // namespace topomask::ops
