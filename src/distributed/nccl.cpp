#define USE_C10D_NCCL  // what the wheel was built with; its headers do not say so themselves
#include "distributed/nccl.h"

#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace topomask {

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            std::chrono::milliseconds limit) {
  // By default torch ends the whole process when a peer is lost. We want to say one sentence instead.
  setenv("TORCH_NCCL_BLOCKING_WAIT", "1", /*overwrite=*/0);
  const auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = limit;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
}

}  // namespace topomask
