// Rows of activations: what they are stored as (sums and parameters are float32), and how many there are.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace topomask {

enum class LayerType { float32, bfloat16, float16 };

// What every pass works on: [rows, channels], channels a multiple of 4.
struct LayerRows {
  std::int64_t rows = 0;
  int channels = 0;
  LayerType type = LayerType::float32;
};

// Sums over rows are cut into this many slices, which are then added up in order: no result depends on which
// block of threads comes first.
constexpr int kRowSlices = 512;

}  // namespace topomask
