#include "attention/cuda/row_attention_launch.cuh"

namespace topomask::row_attention {

TOPOMASK_DEFINE_VECTORS(float32, float)

}  // namespace topomask::row_attention
