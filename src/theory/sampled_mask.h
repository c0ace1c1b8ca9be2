// The torch side of mask_rows.h: features sampled with some options, ready for rows of M_hat.
#pragma once

#include "theory/cpu/mask_rows.h"
#include "topomask/features.h"

namespace topomask {

inline FeatureView feature_view(const WalkFeatures& features) {
  return {features.num_nodes(),
          features.num_columns,
          features.row_ptr.const_data_ptr<std::int64_t>(),
          features.col.const_data_ptr<std::int32_t>(),
          features.deposit_ptr.const_data_ptr<std::int64_t>(),
          features.hop.const_data_ptr<std::int16_t>(),
          features.load.const_data_ptr<float>()};
}

// Keeps the features alive for as long as the views on them are used.
struct SampledMask {
  GraphFeatures features;
  FeatureView query, key;
  std::vector<double> query_values, key_values;

  SampledMask(const Graph& graph, const FeatureOptions& options, const std::vector<double>& query_modulation,
              const std::vector<double>& key_modulation)
      : features(sample_features(graph, options)),
        query(feature_view(features.query)),
        key(feature_view(features.key)) {
    evaluate_deposits(query, query_modulation, query_values);
    if (key_is_query()) {
      key_values = query_values;
    } else {
      evaluate_deposits(key, key_modulation, key_values);
    }
  }
  SampledMask(const SampledMask&) = delete;
  SampledMask& operator=(const SampledMask&) = delete;

  // Shared ensembles on a symmetric W: Psi is Phi itself.
  bool key_is_query() const { return key.load == query.load && key.col == query.col; }
};

}  // namespace topomask
