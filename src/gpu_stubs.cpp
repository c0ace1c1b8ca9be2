// What every gpu.h of this library declares, for a build without CUDA: nothing runs on a GPU, and calls that
// ask for one throw and say why.
#include "attention/gpu.h"
#include "core/gpu.h"
#include "graph/gpu.h"
#include "masks/gpu.h"
#include "topomask/device.h"
#include "walks/gpu.h"

namespace topomask {

// core
int num_gpus() {
  return 0;
}
std::string gpu_identity(c10::Device) {
  fail_without_cuda();
}
std::uint64_t capture_id(c10::Device) {
  return 0;
}
bool cuda_is_built() {
  return false;
}
void synchronise(c10::Device) {}
std::int64_t peak_memory(c10::Device) {
  return 0;
}
void reset_peak_memory(c10::Device) {}
std::int64_t free_memory(c10::Device) {
  return 0;
}
std::string device_name(c10::Device) {
  return "";
}

// graph
TransposedEntries transpose_entries_cuda(const at::Tensor&, const at::Tensor&, std::int64_t, bool) {
  fail_without_cuda();
}
at::Tensor entry_rows_cuda(const at::Tensor&, std::int64_t) {
  fail_without_cuda();
}
Graph transposed_cuda(const Graph&) {
  fail_without_cuda();
}
Graph permuted_cuda(const Graph&, const at::Tensor&) {
  fail_without_cuda();
}
Graph normalise_cuda(const Graph&, Normalisation) {
  fail_without_cuda();
}
at::Tensor to_dense_cuda(const Graph&) {
  fail_without_cuda();
}
at::Tensor morton_order_cuda(const at::Tensor&) {
  fail_without_cuda();
}
bool neighbours_run_on_cuda(const NeighbourTask&) {
  return false;
}
Neighbours nearest_cuda(const NeighbourTask&) {
  fail_without_cuda();
}
NeighbourRows within_cuda(const NeighbourTask&) {
  fail_without_cuda();
}
NeighbourRows rows_of_cuda(const Neighbours&) {
  fail_without_cuda();
}
Graph knn_graph_cuda(const NeighbourTask&, bool) {
  fail_without_cuda();
}

// walks
at::Tensor sample_walks_cuda(const Graph&, const WalkPlan&, int) {
  fail_without_cuda();
}
WalkFeatures sample_walk_features_cuda(const Graph&, const WalkPlan&, int, bool) {
  fail_without_cuda();
}
WalkFeatures one_hot_features_cuda(std::int64_t, c10::Device) {
  fail_without_cuda();
}
at::Tensor modulate_cuda(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  fail_without_cuda();
}
at::Tensor modulate_backward_cuda(const at::Tensor&, std::int64_t, const at::Tensor&, const at::Tensor&,
                                  const at::Tensor&) {
  fail_without_cuda();
}

// masks
TransposedPattern transpose_of(const SparsePattern&) {
  fail_without_cuda();
}
DeviceRows device_rows(const SparsePattern&) {
  fail_without_cuda();
}
DeviceRows device_columns(const SparsePattern&) {
  fail_without_cuda();
}
at::Tensor empty_values(const SparsePattern&, at::IntArrayRef, const at::TensorOptions&) {
  fail_without_cuda();
}
at::Tensor multiply_cuda(const SparsePattern&, const at::Tensor&, const at::Tensor&, bool) {
  fail_without_cuda();
}
at::Tensor value_gradient_cuda(const SparsePattern&, const at::Tensor&, const at::Tensor&, bool,
                               std::int64_t) {
  fail_without_cuda();
}
ProductPatterns make_product_patterns_cuda(std::shared_ptr<const SparsePattern>,
                                           std::shared_ptr<const SparsePattern>,
                                           std::optional<std::int64_t>) {
  fail_without_cuda();
}
std::shared_ptr<ProductOnDevice> describe_product_cuda(const ProductPatterns&, std::optional<std::int64_t>) {
  fail_without_cuda();
}
double estimate_product_nnz_cuda(const SparsePattern&, const SparsePattern&, std::int64_t) {
  fail_without_cuda();
}
at::Tensor product_values_cuda(const ProductPatterns&, const at::Tensor&, const at::Tensor&) {
  fail_without_cuda();
}
std::pair<at::Tensor, at::Tensor> product_backward_cuda(const ProductPatterns&, const at::Tensor&,
                                                        const at::Tensor&, const at::Tensor&, bool) {
  fail_without_cuda();
}
std::shared_ptr<const ForestOnDevice> forest_on_cuda(const RootedForest&, c10::Device) {
  fail_without_cuda();
}
void forest_product_cuda(const ForestOnDevice&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                         const at::Tensor&) {
  fail_without_cuda();
}
void hypercube_heat_cuda(int, const at::Tensor&, const at::Tensor&) {
  fail_without_cuda();
}
at::Tensor hypercube_laplacian_cuda(int, const at::Tensor&) {
  fail_without_cuda();
}
at::Tensor look_up_cuda(const at::Tensor&, const at::Tensor&) {
  fail_without_cuda();
}
at::Tensor look_up_backward_cuda(const at::Tensor&, const at::Tensor&, std::int64_t) {
  fail_without_cuda();
}

// attention
EngineResult mask_engine_forward_on_gpu(const EngineInputs&, const std::vector<SparseEntries>&, bool) {
  fail_without_cuda();
}
EngineGradients mask_engine_backward_on_gpu(const at::Tensor&, const EngineInputs&,
                                            const std::vector<SparseEntries>&, const EngineResult&, bool) {
  fail_without_cuda();
}
EngineResult column_engine_forward_on_gpu(const EngineInputs&, const std::vector<SparseFactors>&) {
  fail_without_cuda();
}
EngineGradients column_engine_backward_on_gpu(const at::Tensor&, const EngineInputs&,
                                              const std::vector<SparseFactors>&, const EngineResult&, bool) {
  fail_without_cuda();
}
bool has_column_engine_on_gpu(const EngineInputs&, const std::vector<SparseFactors>&) {
  return false;
}
bool runs_on_tensor_cores(at::ScalarType, c10::Device, std::int64_t, std::int64_t) {
  return false;
}
EngineResult dense_engine_forward_on_tensor_cores(const EngineInputs&, const at::Tensor&, bool) {
  fail_without_cuda();
}
EngineGradients dense_engine_backward_on_tensor_cores(const at::Tensor&, const EngineInputs&,
                                                      const at::Tensor&, const EngineResult&, bool) {
  fail_without_cuda();
}
at::Tensor as_rows(const at::Tensor&) {
  fail_without_cuda();
}

}  // namespace topomask
