// The three engines behind attention(). Each takes q and k [B, H, N, m], v [B, H, N, d_v] and a mask, and
// returns [B, H, N, d_v]. Each is differentiable in q, k, v and the mask's parameters, and needs memory
// linear in its inputs, the mask's entries or the block at hand. On the CPU the operands are contiguous and
// float32 or float64; on a GPU also bfloat16 or float16, with any strides.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "attention/score_rule.h"
#include "topomask/attention.h"

namespace topomask {

struct EngineInputs {
  at::Tensor q, k, v;
  ScoreRule rule;                  // the feature engine takes no softmax
  std::int64_t max_workspace = 0;  // in bytes, as workspace_limit gives it
};

// The rule of a call for queries and keys of d channels. Where its kind is `features`, the caller applies
// options.feature_map first.
ScoreRule score_rule_of(const AttentionOptions& options, std::int64_t d);

// Throws where AttentionOptions::max_workspace is negative.
void check_max_workspace(const AttentionOptions& options);
// What AttentionOptions::max_workspace means for inputs and output of this many bytes; no engine could use
// more than `wanted_bytes`.
std::int64_t workspace_limit(const AttentionOptions& options, const AttentionShape& shape,
                             double operand_bytes, double wanted_bytes);

// The engines with autograd around them.
at::Tensor run_dense_engine(const EngineInputs& inputs, const Mask& mask);
at::Tensor run_feature_engine(const EngineInputs& inputs, const MaskPtr& mask);  // linear only
at::Tensor run_mask_engine(const EngineInputs& inputs, const Mask& mask);        // masks with entries

// The mask and the dense engine as pure functions, for operators that a tracer records: a forward pass that
// keeps what the backward pass needs, and a backward pass from that. Neither records a graph.
struct EngineResult {
  at::Tensor out;                 // [B, H, N, d_v], dtype of v
  std::vector<at::Tensor> saved;  // as the functions *_saved say; without `learning`, none
};
struct EngineGradients {
  at::Tensor q, k, v;            // sizes and dtypes of the operands
  std::vector<at::Tensor> mask;  // of the values of each SparseEntries, or of the matrix; see mask_learns
};

// `entries`: one for all heads, or one per head, as Mask::entries() gives them. On the CPU M need not be
// square: there are as many queries as it has rows, and as many keys as it has columns.
EngineResult mask_engine_forward(const EngineInputs& inputs, const std::vector<SparseEntries>& entries,
                                 bool learning);
// `result`: of the forward pass with `learning`. Without mask_learns, `mask` stays empty.
EngineGradients mask_engine_backward(const at::Tensor& grad_out, const EngineInputs& inputs,
                                     const std::vector<SparseEntries>& entries, const EngineResult& result,
                                     bool mask_learns);

// `matrix`: [1 or H, N, N], on the device of q.
EngineResult dense_engine_forward(const EngineInputs& inputs, const at::Tensor& matrix, bool learning);
EngineGradients dense_engine_backward(const at::Tensor& grad_out, const EngineInputs& inputs,
                                      const at::Tensor& matrix, const EngineResult& result, bool mask_learns);

// The feature engine by columns, for M = Phi Psi^T with sparse factors. `factors`: one for all heads, or one
// per head, as Mask::sparse_factors() gives them; none: no mask. Saves 1 / D_i, wide [B, H, N].
EngineResult column_engine_forward(const EngineInputs& inputs, const std::vector<SparseFactors>& factors);
// `mask`: of the values of Phi and of Psi, in turns. Without mask_learns it stays empty.
EngineGradients column_engine_backward(const at::Tensor& grad_out, const EngineInputs& inputs,
                                       const std::vector<SparseFactors>& factors, const EngineResult& result,
                                       bool mask_learns);
// Whether they can run: not where sizes are known to the device alone.
bool has_column_engine(const EngineInputs& inputs, const std::vector<SparseFactors>& factors);

// What the forward passes save with `learning`, so that a tracer need not run them. Where there is nothing to
// keep, a tensor of no elements stands in. "Wide" is float64 for float64 operands, float32 for all others.
struct SavedTensor {
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype = at::kFloat;
};
// 1 / D_i, wide [B, H, N]; the row maxima of softmax, the same; the products <q_i, k_j>, wide [B * entries].
// `entries`: of all heads, a pattern that they share counted once per head.
std::vector<SavedTensor> mask_engine_saved(const AttentionShape& shape, ScoreKind kind, std::int64_t entries);
// 1 / D_i and the row maxima as above; the output before it was rounded, where the tensor cores did not
// compute it: float32 [B, H, N, d_v].
std::vector<SavedTensor> dense_engine_saved(const AttentionShape& shape, ScoreKind kind);

// M as the dense engine reads it, on the device of q: float32 for tensor cores, else the dtype of the sums.
at::Tensor mask_matrix(const EngineInputs& inputs, const Mask& mask);

// attention() as a forward and a backward pass, for the calls that have them. What it saves of the mask
// engine has the values of M at the end, wide [those of all patterns], so that the backward pass need not
// compute them again.
bool has_pure_passes(const AttentionOptions& options, Engine engine, const AttentionShape& shape);
EngineResult attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const Mask& mask, const AttentionOptions& options);
struct AttentionGradients {
  at::Tensor q, k, v;
  std::vector<at::Tensor> parameters;  // of the mask; undefined where none is wanted or there is none
};
// Without mask_learns, `parameters` are undefined.
AttentionGradients attention_backward(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& v, const Mask& mask, const AttentionOptions& options,
                                      const EngineResult& result, bool mask_learns);

// Throws unless q, k and v are what attention() takes, for a mask of that name, number of nodes and heads.
void check_attention_operands(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::string& mask, std::int64_t num_nodes, std::int64_t heads,
                              const AttentionOptions& options);
// [v | 1]
at::Tensor with_ones(const at::Tensor& v);
// [..., numerator | normaliser] -> [..., numerator / normaliser], 0 where the normaliser is at most the
// guard.
at::Tensor divide_by_normaliser(const at::Tensor& sums, double guard);

// Features of a part of the keys: `of_all` turns the largest exponents [..., 1, 1] of these keys into those
// of all keys.
using LargestOfAll = std::function<at::Tensor(const at::Tensor& of_these)>;
at::Tensor key_features(const FeatureMap& map, const at::Tensor& x, const LargestOfAll& of_all);

// Masks of at most this rank are multiplied by their factors; beyond it, like any other.
constexpr std::int64_t kMaxFactorRank = 8;
inline bool uses_factors(const MaskProfile& mask) {
  return mask.rank > 0 && mask.rank <= kMaxFactorRank;
}
// Query rows that the dense engine scores at a time.
std::int64_t dense_block_rows(const AttentionShape& shape, std::int64_t max_workspace);
// Bytes that the feature engine takes for one feature: its columns, their image, what the mask makes in
// between, and the same again for gradients.
double feature_workspace(const AttentionShape& shape);
// Feature columns that the feature engine sends through the mask at a time.
std::int64_t feature_block(const AttentionShape& shape, std::int64_t max_workspace);

}  // namespace topomask
