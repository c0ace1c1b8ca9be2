#include "attention/cuda/row_attention_launch.cuh"

namespace topomask::row_attention {

TOPOMASK_DEFINE_VECTORS(bfloat16, __nv_bfloat16)

}  // namespace topomask::row_attention
