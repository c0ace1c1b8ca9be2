// As gpu_stubs.cpp, for the library of models: all that has a kernel there has a way over ATen too.
#include "core/gpu.h"
#include "data/gpu.h"
#include "nn/gpu.h"

namespace topomask {

// data
bool augment_runs_on_cuda(const at::Tensor&) {
  return false;
}
AugmentedBatch augment_cuda(const Batch&, const AugmentOptions&, const AugmentConstants&, const AugmentTable&,
                            const at::Tensor&) {
  fail_without_cuda();
}

// nn
bool fuses_add_norm(const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  return false;
}
std::pair<at::Tensor, at::Tensor> add_norm_cuda(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                                const at::Tensor&, const at::Tensor&, double) {
  fail_without_cuda();
}
bool fuses_rows(const at::Tensor&, const at::Tensor&) {
  return false;
}
at::Tensor bias_gelu_cuda(const at::Tensor&, const at::Tensor&) {
  fail_without_cuda();
}
bool fuses_linear(const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  return false;
}
at::Tensor linear_cuda(const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  fail_without_cuda();
}

}  // namespace topomask
