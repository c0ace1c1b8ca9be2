// Compressed sparse rows without torch, as the framework-free kernels read and return them.
#pragma once

#include <cstdint>
#include <vector>

namespace topomask {

// Raw rows of a graph on the CPU, for the framework-free kernels. Does not own its memory.
struct CsrView {
  std::int64_t num_nodes = 0;
  const std::int64_t* row_ptr = nullptr;  // [N+1], non-decreasing
  const std::int32_t* col = nullptr;      // [E], ascending within a row
  const float* weight = nullptr;          // [E], finite, may be negative
  // [N] or null: the numbers that random words are drawn for, where these rows are a part of a graph.
  const std::int32_t* number = nullptr;

  std::int64_t number_of(std::int64_t node) const { return number == nullptr ? node : number[node]; }
  std::int64_t num_entries() const { return row_ptr == nullptr ? 0 : row_ptr[num_nodes]; }
  std::int64_t degree(std::int64_t node) const { return row_ptr[node + 1] - row_ptr[node]; }
};

// Rows that own their memory: what the framework-free graph code returns.
struct CsrArrays {
  std::vector<std::int64_t> row_ptr = {0};  // [N+1]
  std::vector<std::int32_t> col;            // [E]
  std::vector<float> weight;                // [E]

  std::int64_t num_nodes() const { return static_cast<std::int64_t>(row_ptr.size()) - 1; }
  CsrView view() const { return {num_nodes(), row_ptr.data(), col.data(), weight.data()}; }
};

}  // namespace topomask
