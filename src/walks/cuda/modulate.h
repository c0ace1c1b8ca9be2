// Numeric half of the features on a GPU: values for a modulation f, and the gradient with respect to it. As
// walks/cpu/modulate.h, with device pointers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "walks/cpu/modulate.h"

namespace topomask::cuda {

// The sums run in the order of the deposits: bit for bit those of the CPU.
template <class Scalar>
cudaError_t modulate(const DepositView& deposits, const Scalar* f, std::int64_t heads, std::int64_t terms,
                     Scalar* values, cudaStream_t stream);

// How many runs of entries have partial sums of their own; depends on the number of entries alone, and so do
// the sums.
std::int64_t modulate_backward_runs(std::int64_t nnz);

// `partial`: [heads, terms, runs] double, scratch.
template <class Scalar>
cudaError_t modulate_backward(const DepositView& deposits, const Scalar* grad_values, std::int64_t heads,
                              std::int64_t terms, Scalar* grad_f, double* partial, cudaStream_t stream);

}  // namespace topomask::cuda
