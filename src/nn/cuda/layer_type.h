// What activations are stored as; sums and parameters are float32.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace topomask {

enum class LayerType { float32, bfloat16, float16 };

// Sums over rows are cut into so many slices, which are added up afterwards in their order: no result depends
// on which block of threads comes first.
constexpr int kRowSlices = 512;

}  // namespace topomask
