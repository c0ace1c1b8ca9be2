// The mask in the order in which tensor-core fragments hold it, and what the dense kernels ask of a device.
#include "attention/cuda/dense_attention_tiles.cuh"

namespace topomask {

using namespace dense;

namespace {

// Threads are the lanes of packed 16 x 16 blocks.
template <class T>
__global__ void pack_kernel(const float* mask, std::int64_t head_stride, std::int64_t row_stride,
                            std::int64_t column_stride, int n, int blocks_per_side, std::int64_t lanes,
                            uint4* packed) {
  const std::int64_t thread = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  if (thread >= lanes) return;
  const int lane = static_cast<int>(thread % 32);
  const std::int64_t block = thread / 32;
  const int column = static_cast<int>(block % blocks_per_side) * 16 + (lane & 3) * 2;
  const std::int64_t block_row = block / blocks_per_side;
  const int row = static_cast<int>(block_row % blocks_per_side) * 16 + (lane >> 2);
  const float* head = mask + block_row / blocks_per_side * head_stride;
  const auto entry = [&](int i, int j) {
    return i < n && j < n ? head[i * row_stride + j * column_stride] : 0.f;
  };
  const auto pair = [&](int i, int j) { return pack<T>(entry(i, j), entry(i, j + 1)); };
  packed[thread] = {pair(row, column), pair(row + 8, column), pair(row, column + 8),
                    pair(row + 8, column + 8)};
}

}  // namespace

bool dense_attention_fits(int d, int d_v) {
  if (d < 8 || d_v < 8 || d > 128 || d_v > 128 || d % 8 != 0 || d_v % 8 != 0) return false;
  int device = 0, major = 0, shared_bytes = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return major >= 8 && shared_bytes >= kMostSharedBytes;
}

std::int64_t packed_mask_bytes(int mask_heads, int num_nodes) {
  const std::int64_t side = PackedMask::blocks_per_side(num_nodes);
  return mask_heads * side * side * 512;
}

cudaError_t pack_mask(const float* mask, std::int64_t head_stride, std::int64_t row_stride,
                      std::int64_t column_stride, int mask_heads, int num_nodes, HalfType type,
                      bool transposed, void* packed, cudaStream_t stream) {
  const int side = PackedMask::blocks_per_side(num_nodes);
  const std::int64_t lanes = static_cast<std::int64_t>(mask_heads) * side * side * 32;
  const auto kernel = type == HalfType::bfloat16 ? pack_kernel<__nv_bfloat16> : pack_kernel<__half>;
  kernel<<<static_cast<unsigned>((lanes + 255) / 256), 256, 0, stream>>>(
      mask, head_stride, transposed ? column_stride : row_stride, transposed ? row_stride : column_stride,
      num_nodes, side, lanes, static_cast<uint4*>(packed));
  return cudaGetLastError();
}

}  // namespace topomask
