// Exact nearest neighbours of points in up to three dimensions on a GPU. Framework-free.
//
// Points are sorted along a Z-order curve and boxed: 32 points a leaf, 32 boxes a box of the next level. A
// warp takes eight queries that follow each other on the curve and walks down from the top, one box a lane,
// then one candidate a lane; whatever lies farther from a query than the farthest neighbour it still wants is
// left out. Distances are compared in double and ties go to the smaller index, as on the CPU; floats only
// filter.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace topomask::cuda {

constexpr std::int64_t kMaxNeighbours = 64;

struct KnnArguments {
  const float* coordinate = nullptr;  // [count, dimension]; a point that is not finite is nobody's neighbour
  std::int64_t count = 0;
  int dimension = 3;       // 1 to 3
  int k = 0;               // 1 to kMaxNeighbours, less than count
  bool ascending = false;  // neighbours by index, as the columns of a graph; else nearest first

  std::int32_t* neighbour = nullptr;  // [count, k] out
  std::int64_t* row_ptr = nullptr;    // [count+1] out, or null
  float* weight = nullptr;            // [count, k] out: ones, or null

  void* workspace = nullptr;  // knn_workspace_bytes
};

std::size_t knn_workspace_bytes(std::int64_t count);
cudaError_t nearest_neighbours(const KnnArguments& arguments, cudaStream_t stream);

// Z-order keys of points, the same as on the CPU: 21 bits an axis, in double. `partial`: kBoxBlocks * 6
// floats, scratch.
constexpr int kBoxBlocks = 128;
cudaError_t morton_keys(const float* coordinate, std::int64_t count, int dimension, float* partial,
                        std::uint64_t* key, std::int32_t* index, cudaStream_t stream);

}  // namespace topomask::cuda
