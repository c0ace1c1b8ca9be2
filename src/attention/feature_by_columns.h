// The feature engine by columns of Phi: what a forward pass takes.
//
//   Z_c = sum over the rows j that visit c of Psi_jc phi(k_j) [v_j|1]^T     |S_c| x m x (d + 1)
//   part_ic = Phi_ic phi(q_i)^T Z_c for the rows i that visit c, summed over c
//
// Both are products of gathered rows; Z_c stays on chip. Nothing of size N m d exists.
#pragma once

#include "topomask/attention.h"
#include "topomask/cost_model.h"

namespace topomask {

struct ColumnWork {
  double multiply_adds = 0;
  double numbers = 0;  // gathered or written, of the operands' type
  double columns = 0;  // begun
};

// shape.d counts features. Needs a mask with sparse factors.
inline ColumnWork feature_by_columns(const MaskProfile& mask, const AttentionShape& shape) {
  const auto m = static_cast<double>(shape.d), d = static_cast<double>(shape.d_v);
  // A pattern per head counts its own entries; a shared one serves every head.
  const double uses =
      static_cast<double>(shape.batch) * (mask.pattern_per_head ? 1 : static_cast<double>(shape.heads));
  const double entries = uses * static_cast<double>(mask.left_entries + mask.right_entries);
  return {entries * m * (d + 1), entries / 2 * (m + 2 * d + 2),
          static_cast<double>(shape.batch * shape.heads) * static_cast<double>(shape.num_nodes)};
}

// On a CPU that of one thread.
inline double feature_by_columns_seconds(const ColumnWork& work, double element_bytes,
                                         const DeviceRates& rates) {
  return work.multiply_adds / rates.feature_by_column + work.numbers * element_bytes / rates.bandwidth +
         work.columns * rates.column_start;
}

}  // namespace topomask
