#include "theory/cpu/mask_rows.h"

#include "walks/cpu/modulate.h"

namespace topomask {

void evaluate_deposits(const FeatureView& features, const std::vector<double>& modulation,
                       std::vector<double>& values) {
  values.resize(static_cast<std::size_t>(features.nnz()));
  modulate(DepositView{features.nnz(), features.deposit_ptr, features.hop, features.load}, modulation.data(),
           1, static_cast<std::int64_t>(modulation.size()), values.data());
}

void gather_columns(const FeatureView& features, const std::vector<double>& values,
                    const std::vector<std::uint8_t>& wanted, SparseColumns& columns) {
  const std::int64_t nnz = features.nnz();
  const auto keep = [&](std::int32_t q) { return wanted.empty() || wanted[q] != 0; };
  columns.ptr.assign(static_cast<std::size_t>(features.num_columns) + 1, 0);
  for (std::int64_t e = 0; e < nnz; ++e) {
    if (keep(features.col[e])) ++columns.ptr[features.col[e] + 1];
  }
  for (std::int64_t q = 0; q < features.num_columns; ++q) columns.ptr[q + 1] += columns.ptr[q];
  columns.row.resize(static_cast<std::size_t>(columns.ptr.back()));
  columns.value.resize(values.empty() ? 0 : columns.row.size());
  std::vector<std::int64_t> next(columns.ptr.begin(), columns.ptr.end() - 1);
  for (std::int64_t node = 0; node < features.num_rows; ++node) {
    for (std::int64_t e = features.row_ptr[node]; e < features.row_ptr[node + 1]; ++e) {
      if (!keep(features.col[e])) continue;
      const std::int64_t place = next[features.col[e]]++;
      columns.row[place] = static_cast<std::int32_t>(node);
      if (!values.empty()) columns.value[place] = values[e];
    }
  }
}

MaskRow::MaskRow(std::int64_t num_nodes)
    : value(static_cast<std::size_t>(num_nodes), 0.0), present(static_cast<std::size_t>(num_nodes), 0) {}

void MaskRow::clear() {
  for (const std::int32_t j : visited) {
    value[j] = 0;
    present[j] = 0;
  }
  visited.clear();
}

void MaskRow::compute(const FeatureView& query, const std::vector<double>& query_values,
                      const SparseColumns& keys, std::int64_t node) {
  clear();
  for (std::int64_t e = query.row_ptr[node]; e < query.row_ptr[node + 1]; ++e) {
    const std::int32_t q = query.col[e];
    const double factor = query_values[e];
    for (std::int64_t k = keys.ptr[q]; k < keys.ptr[q + 1]; ++k) {
      const std::int32_t j = keys.row[k];
      if (present[j] == 0) {
        present[j] = 1;
        visited.push_back(j);
      }
      value[j] += factor * keys.value[k];
    }
  }
}

std::int64_t MaskRow::count(const FeatureView& query, const SparseColumns& keys, std::int64_t node) {
  clear();
  for (std::int64_t e = query.row_ptr[node]; e < query.row_ptr[node + 1]; ++e) {
    const std::int32_t q = query.col[e];
    for (std::int64_t k = keys.ptr[q]; k < keys.ptr[q + 1]; ++k) {
      if (present[keys.row[k]] == 0) {
        present[keys.row[k]] = 1;
        visited.push_back(keys.row[k]);
      }
    }
  }
  return static_cast<std::int64_t>(visited.size());
}

}  // namespace topomask
