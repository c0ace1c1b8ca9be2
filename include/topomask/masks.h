// Masks without random walks: those of the paper's related work (App. B) and its ablations, each with its
// fast product.
//
// Learnable tensors are called parameters; their first dimension is the number of heads H (1: the same mask
// for every head) and they are float32 or float64. A mask keeps the tensors it is given and converts them to
// the dtype of x, so that an optimiser may change them in place between calls. It computes on the device of
// its parameters, or, where it has none, on that of the graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "topomask/graph.h"
#include "topomask/mask.h"
#include "topomask/mask_combinators.h"
#include "topomask/words.h"

namespace topomask {

// Unmasked linear attention: all entries 1, rank 1.
class NoMask final : public Mask {
 public:
  // On a device, where one is given; else wherever x is, which may mean copies from the CPU.
  explicit NoMask(std::int64_t num_nodes, std::optional<c10::Device> device = std::nullopt);
  std::optional<c10::Device> device() const override { return device_; }
  std::string name() const override { return "none"; }
  std::int64_t num_nodes() const override { return num_nodes_; }
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override;
  Factors factors() const override;
  MaskProfile profile() const override;
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override;

 private:
  std::int64_t num_nodes_;
  std::optional<c10::Device> device_;
};

// Causal attention (Performer): M_ij = 1 for j <= i, applied as a prefix sum.
class CausalMask final : public Mask {
 public:
  // On a device, where one is given; else wherever x is, which may mean copies from the CPU.
  explicit CausalMask(std::int64_t num_nodes, std::optional<c10::Device> device = std::nullopt);
  std::optional<c10::Device> device() const override { return device_; }
  std::string name() const override { return "causal"; }
  std::int64_t num_nodes() const override { return num_nodes_; }
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override;
  MaskProfile profile() const override;
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override;

 private:
  std::int64_t num_nodes_;
  std::optional<c10::Device> device_;
};

enum class OffsetTransform {
  none,         // M_ij = b_{j-i}
  exponential,  // M_ij = exp(b_{j-i}) (Luo 2021)
  absolute,     // M_ij = |b_{j-i}|
};

// Toeplitz-masked (Luo 2021) and d-level block Toeplitz (Choromanski 2022): M_ij depends on j - i, by FFT.
class ToeplitzMask final : public Mask {
 public:
  // `extent`: 1 to 3 sizes n_a, the last coordinate varying fastest, as in grid_graph. `offsets`:
  // [H, prod(2 n_a - 1)], the grid [2 n_1 - 1, 2 n_2 - 1, ...] of b, where j - i = 0 stands in the middle:
  // node i at (i_1, ...) attends to node j at (j_1, ...) with b at index (j_1 - i_1 + n_1 - 1, ...).
  ToeplitzMask(std::vector<std::int64_t> extent, at::Tensor offsets,
               OffsetTransform transform = OffsetTransform::none);
  std::string name() const override { return "toeplitz"; }
  const std::vector<std::int64_t>& extent() const { return extent_; }
  std::int64_t num_nodes() const override { return num_nodes_; }
  std::int64_t heads() const override { return offsets_.size(0); }
  std::vector<at::Tensor> parameters() const override { return {offsets_}; }
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override;
  MaskProfile profile() const override;
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override;

 private:
  // [H, 2 n_1 - 1, ...] in the given dtype, transformed
  at::Tensor template_grid(at::ScalarType dtype) const;

  std::vector<std::int64_t> extent_;
  std::int64_t num_nodes_;
  at::Tensor offsets_;
  OffsetTransform transform_;
};

// Throws unless the graph is the grid of that extent, with or without diagonals, in row-major order.
void check_grid(const Graph& graph, const std::vector<std::int64_t>& extent);

struct RootedForest;
struct ForestOnDevice;

// Affine mapping of distances on forests (Choromanski 2022): exp(a dist(i, j) + b) within a tree, 0 between
// trees.
class ForestMask final : public Mask {
 public:
  enum class Length { hops, edge_weight };
  // `a`, `b`: [H]. The graph must be undirected without cycles and self-loops.
  ForestMask(const Graph& graph, at::Tensor a, at::Tensor b, Length length = Length::hops);
  std::string name() const override { return "forest"; }
  std::int64_t num_nodes() const override { return num_nodes_; }
  std::int64_t heads() const override { return a_.size(0); }
  std::vector<at::Tensor> parameters() const override { return {a_, b_}; }
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override;
  MaskProfile profile() const override;
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override;

 private:
  std::int64_t num_nodes_;
  at::Tensor a_, b_;
  std::shared_ptr<const RootedForest> forest_;
  std::shared_ptr<const ForestOnDevice> on_device_;  // null on the CPU
};

// Heat kernel exp(-beta L) on the hypercube of 2^d nodes (Kondor & Lafferty 2002), as d products of 2 x 2
// factors.
class HypercubeHeatMask final : public Mask {
 public:
  enum class Laplacian {
    combinatorial,  // L = D - A, as Kondor & Lafferty
    normalised,     // L = I - A / d, as the node kernels of kernels.h
  };
  // `beta`: [H]. Node i is the vertex whose coordinates are the bits of i.
  HypercubeHeatMask(int dimension, at::Tensor beta, Laplacian laplacian = Laplacian::combinatorial);
  // The same, after checking that `graph` is the hypercube of that dimension.
  static std::shared_ptr<const HypercubeHeatMask> for_graph(const Graph& graph, at::Tensor beta,
                                                            Laplacian laplacian = Laplacian::combinatorial);
  std::string name() const override { return "hypercube-heat"; }
  std::int64_t num_nodes() const override { return std::int64_t{1} << dimension_; }
  std::int64_t heads() const override { return beta_.size(0); }
  std::vector<at::Tensor> parameters() const override { return {beta_}; }
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override;
  MaskProfile profile() const override;
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override;

 private:
  int dimension_;
  at::Tensor beta_;
  Laplacian laplacian_;
};

// Graphormer's spatial encoding (Ying 2021): a learnable function of the number of hops from i to j. Dense,
// O(N^2).
class ShortestPathMask final : public Mask {
 public:
  // `table`: [H, max_distance + 2]; entry k for k hops, the last for nodes that are farther or out of reach.
  // max_distance <= 254. The distances take N^2 bytes, which must not exceed `max_bytes`.
  ShortestPathMask(const Graph& graph, at::Tensor table, std::int64_t max_bytes = std::int64_t{1} << 30);
  std::string name() const override { return "shortest-path"; }
  std::int64_t num_nodes() const override { return distance_.size(0); }
  std::int64_t heads() const override { return table_.size(0); }
  std::vector<at::Tensor> parameters() const override { return {table_}; }
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override;
  at::Tensor dense(at::ScalarType dtype) const override;
  MaskProfile profile() const override;
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override;
  const at::Tensor& distance() const { return distance_; }  // [N, N] uint8, max_distance + 1: farther

 private:
  at::Tensor table_, distance_;
};

// Centrality degree encoding (Chen 2024): sin(pi/4 (z(d_i) + z(d_j))) with a learnable z in (0, 1); exactly
// rank 2.
class DegreeMask final : public Mask {
 public:
  // `logits`: [H, max_degree + 1], z = sigmoid(logits). The degree is the number of entries in a node's row;
  // larger degrees than max_degree count as max_degree.
  DegreeMask(const Graph& graph, at::Tensor logits);
  std::string name() const override { return "degree"; }
  std::int64_t num_nodes() const override { return degree_.size(0); }
  std::int64_t heads() const override { return logits_.size(0); }
  std::vector<at::Tensor> parameters() const override { return {logits_}; }
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override;
  Factors factors() const override;
  MaskProfile profile() const override;
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override;

 private:
  at::Tensor logits_, degree_;  // degree: [N] int64, clipped
};

// Nearest neighbours, hard (GAT): M_ij = 1 where j lies within `hops` steps of i along the edges, else 0.
class NeighbourMask final : public Mask {
 public:
  NeighbourMask(const Graph& graph, int hops = 1, bool include_self = true);
  std::string name() const override { return "neighbours"; }
  std::int64_t num_nodes() const override { return pattern_->num_nodes(); }
  std::optional<c10::Device> device() const override { return pattern_->device(); }
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override;
  std::vector<SparseEntries> entries() const override;
  MaskProfile profile() const override;
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override;

 private:
  std::shared_ptr<const SparsePattern> pattern_;
  at::Tensor ones_;  // [1, nnz]
};

// Fully learnable features (ablation of Sec. 4): M = F F^T.
class LearnedFeaturesMask final : public Mask {
 public:
  explicit LearnedFeaturesMask(at::Tensor features);  // [H, N, R]
  std::string name() const override { return "learned-features"; }
  std::int64_t num_nodes() const override { return features_.size(1); }
  std::int64_t heads() const override { return features_.size(0); }
  std::vector<at::Tensor> parameters() const override { return {features_}; }
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override;
  Factors factors() const override { return {features_, features_}; }
  MaskProfile profile() const override;
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override;

 private:
  at::Tensor features_;
};

// Any matrix of low rank, given by its factors: M = left right^T.
class LowRankMask final : public Mask {
 public:
  LowRankMask(at::Tensor left, at::Tensor right);  // [1 or H, N, R]
  std::string name() const override { return "low-rank"; }
  std::int64_t num_nodes() const override { return left_.size(1); }
  std::int64_t heads() const override { return left_.size(0) == 1 ? right_.size(0) : left_.size(0); }
  std::vector<at::Tensor> parameters() const override { return {left_, right_}; }
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override;
  Factors factors() const override { return {left_, right_}; }
  MaskProfile profile() const override;
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override;

 private:
  at::Tensor left_, right_;
};

// Any matrix, given in full.
class DenseMask final : public Mask {
 public:
  explicit DenseMask(at::Tensor matrix);  // [H, N, N] or [N, N]
  std::string name() const override { return "dense"; }
  std::int64_t num_nodes() const override { return matrix_.size(-1); }
  std::int64_t heads() const override { return matrix_.dim() == 3 ? matrix_.size(0) : 1; }
  std::vector<at::Tensor> parameters() const override { return {matrix_}; }
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override;
  at::Tensor dense(at::ScalarType dtype) const override;
  MaskProfile profile() const override;
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override;

 private:
  at::Tensor matrix_;
};

// Any sparse matrix: a pattern for all heads, values for each.
class SparseMask final : public Mask {
 public:
  SparseMask(std::shared_ptr<const SparsePattern> pattern, at::Tensor values);  // values: [H, nnz]
  std::string name() const override { return "sparse"; }
  std::int64_t num_nodes() const override { return pattern_->num_nodes(); }
  std::int64_t heads() const override { return values_.size(0); }
  std::vector<at::Tensor> parameters() const override { return {values_}; }
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override;
  std::vector<SparseEntries> entries() const override { return {{pattern_, values_}}; }
  std::vector<std::shared_ptr<const SparsePattern>> patterns() const override { return {pattern_}; }
  std::vector<at::Tensor> entry_gradients(const std::vector<at::Tensor>& of_values) const override {
    return of_values;
  }
  MaskProfile profile() const override;
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override;

 private:
  std::shared_ptr<const SparsePattern> pattern_;
  at::Tensor values_;
};

// Stochastic position encoding for sequences (SPE, Liutkus 2021): random factors of rank `realisations` whose
// product has the expectation P(i - j). The noise depends on the seed and the head alone and stays fixed.
class SpeMask final : public Mask {
 public:
  // sineSPE: P(t) = sum_k gains_k^2 cos(2 pi frequencies_k t + phases_k); parameters [H, K], frequencies in
  // cycles per step.
  static std::shared_ptr<const SpeMask> sine(std::int64_t num_nodes, at::Tensor frequencies, at::Tensor gains,
                                             at::Tensor phases, std::int64_t realisations,
                                             std::uint64_t seed = 0);
  // convSPE: P(t) = sum_p query_filter_p key_filter_{p-t}; filters [H, P], so that P(t) = 0 for |t| >= P.
  static std::shared_ptr<const SpeMask> convolutional(std::int64_t num_nodes, at::Tensor query_filter,
                                                      at::Tensor key_filter, std::int64_t realisations,
                                                      std::uint64_t seed = 0);
  std::string name() const override { return is_sine() ? "spe-sine" : "spe-convolutional"; }
  std::int64_t num_nodes() const override { return num_nodes_; }
  std::int64_t heads() const override { return parameters_.front().size(0); }
  std::vector<at::Tensor> parameters() const override { return parameters_; }
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override;
  Factors factors() const override;
  MaskProfile profile() const override;
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override;

 private:
  SpeMask(std::int64_t num_nodes, std::vector<at::Tensor> parameters, std::int64_t noise_rows,
          std::int64_t realisations, std::uint64_t seed);
  bool is_sine() const { return parameters_.size() == 3; }

  std::int64_t num_nodes_;
  std::vector<at::Tensor> parameters_;
  at::Tensor noise_;  // [H, 2K or N + P - 1, R] float64, standard normal
};

template <>
std::span<const Word<OffsetTransform>> words<OffsetTransform>();
template <>
std::span<const Word<HypercubeHeatMask::Laplacian>> words<HypercubeHeatMask::Laplacian>();

}  // namespace topomask
