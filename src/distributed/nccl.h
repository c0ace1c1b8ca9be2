// NCCL as torch has it, where it was there at build time (TOPOMASK_WITH_NCCL).
#pragma once

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace topomask {

#ifdef TOPOMASK_WITH_NCCL
// Its `wait` blocks until all has come or throws at the time limit.
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            std::chrono::milliseconds limit);
#endif

}  // namespace topomask
