// A search for neighbours after its arguments were checked.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>

#include "topomask/neighbours.h"

namespace topomask {

struct NeighbourTask {
  at::Tensor points;   // [N, D] float32 or float64, contiguous, D of at least 1
  at::Tensor queries;  // [Q, D], the same tensor where the points are the queries
  bool skip_own = false;
  at::Tensor ptr,
      query_ptr;       // [graphs+1] int64, contiguous, on the CPU or with the points; or both undefined
  at::Tensor box;      // [D] float64, contiguous, on the CPU or with the points; or undefined
  std::int64_t k = 0;  // of `nearest`
  double limit = std::numeric_limits<double>::infinity();  // of the squared distance
  bool full = false;                                       // all rows are known to have k neighbours
  bool only_index = false;                                 // neither distances nor counts are wanted

  std::int64_t num_points() const { return points.size(0); }
  std::int64_t num_queries() const { return queries.size(0); }
};

// Checks what can be checked without waiting for a device. `where` begins the error messages.
NeighbourTask neighbour_task(const at::Tensor& points, const NeighbourOptions& options, const char* where);

// Sets k and full.
void want_nearest(NeighbourTask& task, std::int64_t k, const char* where);
// The k nearest, on the device of the points.
Neighbours nearest_of(NeighbourTask task, const char* where);

}  // namespace topomask
