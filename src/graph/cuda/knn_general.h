// Neighbours of points of any kind: float or double, up to kMaxDimension dimensions, in a periodic box or
// not. The same functions as in knn.h, which calls these where its own kernels do not apply.
#pragma once

#include "graph/cuda/knn.h"

namespace topomask::cuda {

std::size_t general_workspace_bytes(const NeighbourArguments& arguments);
cudaError_t general_nearest_neighbours(const NeighbourArguments& arguments, const NeighbourListsOut& out,
                                       cudaStream_t stream);
cudaError_t general_count_within(const NeighbourArguments& arguments, std::int32_t* num_found,
                                 cudaStream_t stream);
cudaError_t general_list_within(const NeighbourArguments& arguments, const std::int64_t* row_ptr,
                                std::int32_t* col, void* distance2, cudaStream_t stream);

}  // namespace topomask::cuda
