// Rows of M_hat = Phi Psi^T from sampled features, one at a time, without torch.
#pragma once

#include <cstdint>
#include <vector>

namespace topomask {

// The deposits of WalkFeatures as raw arrays; does not own its memory.
struct FeatureView {
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
  const std::int64_t* row_ptr = nullptr;      // [num_rows + 1]
  const std::int32_t* col = nullptr;          // [nnz]
  const std::int64_t* deposit_ptr = nullptr;  // [nnz + 1]
  const std::int16_t* hop = nullptr;          // [deposits]
  const float* load = nullptr;                // [deposits]

  std::int64_t nnz() const { return row_ptr[num_rows]; }
};

// values[e] = sum over the deposits of entry e of load * f[hop], in double precision; f is 0 beyond its end.
void evaluate_deposits(const FeatureView& features, const std::vector<double>& modulation,
                       std::vector<double>& values);

// A sparse matrix by columns: the entries of column q are [ptr[q], ptr[q+1]).
struct SparseColumns {
  std::vector<std::int64_t> ptr = {0};
  std::vector<std::int32_t> row;
  std::vector<double> value;

  std::int64_t count(std::int64_t q) const { return ptr[q + 1] - ptr[q]; }
};

// Sorts the rows into columns. Columns with wanted[q] == 0 stay empty; an empty `wanted` wants all.
// `values` may be empty: then only the pattern is kept.
void gather_columns(const FeatureView& features, const std::vector<double>& values,
                    const std::vector<std::uint8_t>& wanted, SparseColumns& columns);

// One row of M_hat. `visited` lists its pattern; `value` is zero outside of it.
struct MaskRow {
  std::vector<double> value;          // [N]
  std::vector<std::uint8_t> present;  // [N]
  std::vector<std::int32_t> visited;

  explicit MaskRow(std::int64_t num_nodes);
  void compute(const FeatureView& query, const std::vector<double>& query_values, const SparseColumns& keys,
               std::int64_t node);
  // The size of the row's pattern alone.
  std::int64_t count(const FeatureView& query, const SparseColumns& keys, std::int64_t node);

 private:
  void clear();
};

}  // namespace topomask
