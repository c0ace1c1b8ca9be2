// As gpu_stubs.cpp, for the library of models: all that has a kernel there has a way over ATen too.
#include "core/gpu.h"
#include "data/gpu.h"
#include "nn/gpu.h"
#include "particles/gpu.h"

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

CopiesByRow copies_by_row_cuda(const at::Tensor&, std::int64_t) {
  fail_without_cuda();
}
bool fuses_copies(const at::Tensor&, const CopiesByRow&) {
  return false;
}
at::Tensor copied_rows_cuda(const at::Tensor&, const at::Tensor&, const CopiesByRow&) {
  fail_without_cuda();
}

// particles
bool particles_run_on_cuda(const at::Tensor&) {
  return false;
}
RaySamples ray_samples_cuda(const at::Tensor&, const at::Tensor&, const at::Tensor&, const RendererOptions&) {
  fail_without_cuda();
}
at::Tensor ring_sums_cuda(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                          const std::vector<double>&, const std::vector<double>&) {
  fail_without_cuda();
}
std::pair<at::Tensor, at::Tensor> ring_sums_backward_cuda(const at::Tensor&, const at::Tensor&,
                                                          const at::Tensor&, const at::Tensor&,
                                                          const std::vector<double>&,
                                                          const std::vector<double>&, const at::Tensor&,
                                                          const at::Tensor&) {
  fail_without_cuda();
}
Rendered composited_cuda(const at::Tensor&, const at::Tensor&, const RaySamples&, double,
                         const RendererOptions&) {
  fail_without_cuda();
}

}  // namespace topomask
