#include "attention/cuda/row_attention_launch.cuh"

namespace topomask::row_attention {

TOPOMASK_DEFINE_VECTORS(float16, __half)

}  // namespace topomask::row_attention
