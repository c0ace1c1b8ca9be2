// The engines of the library as operators, and the planner that chooses between them.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <cmath>

#include "attention/engines.h"
#include "masks/sparse_ops.h"
#include "ops/arguments.h"
#include "ops/library_call.h"
#include "topomask/masks.h"

namespace topomask::ops {
namespace {

const Choices<ScoreKind> kScores = {
    {"features", ScoreKind::features}, {"relu", ScoreKind::relu}, {"softmax", ScoreKind::softmax}};

// What the engines take apart from the mask.
struct ScoreOptions {
  ScoreKind scores = ScoreKind::features;
  double epsilon = 0;
  double guard = 0;
  std::int64_t max_workspace = 0;

  EngineInputs inputs(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
    EngineInputs result;
    // A GPU's kernels read rows wherever they stand.
    result.q = q.is_cuda() ? q : q.contiguous();
    result.k = k.is_cuda() ? k : k.contiguous();
    result.v = v.is_cuda() ? v : v.contiguous();
    const bool softmax = scores == ScoreKind::softmax;
    result.rule = {scores, softmax ? 1 / std::sqrt(static_cast<double>(q.size(3))) : 1, epsilon, guard};
    result.max_workspace =
        workspace_limit(max_workspace, static_cast<double>(q.nbytes() + k.nbytes() + 2 * v.nbytes()));
    return result;
  }
};

// As _ops.py promises: in the order in memory that v has on a GPU, so that what was a slice of a projection
// [B, N, H, d] goes to the next one without a copy; row after row on the CPU.
at::Tensor laid_out_like(const at::Tensor& v, const at::Tensor& out) {
  if (!v.is_cuda()) return out.contiguous();
  const at::Tensor promised = at::empty_like(v, v.options().device(at::kMeta));
  if (out.strides() == promised.strides()) return out;
  return at::empty_strided(promised.sizes(), promised.strides(), out.options()).copy_(out);
}

void check_dtype(const char* op, const char* argument, const at::Tensor& x, const at::Tensor& q) {
  check(x.scalar_type() == q.scalar_type(), "{}: q and {} must have one dtype, got {} and {}", op, argument,
        c10::toString(q.scalar_type()), c10::toString(x.scalar_type()));
}

void check_operands(const char* op, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    std::int64_t num_nodes, Reals allowed) {
  const auto check_one = [&](const char* argument, const at::Tensor& x, at::IntArrayRef shape) {
    check_real(op, argument, x, shape, allowed);
    check_dtype(op, argument, x, q);
    check_same_place(op, argument, x, "q", q);
  };
  check_one("q", q, {-1, -1, num_nodes, -1});
  check_one("k", k, q.sizes());
  check_one("v", v, {q.size(0), q.size(1), q.size(2), -1});
}

// One row of values for all heads, or one a head; float32 where q has 16 bits.
void check_values(const char* op, const char* argument, const at::Tensor& values, at::IntArrayRef shape,
                  const at::Tensor& q) {
  check_real(op, argument, values, shape);
  check(values.size(0) == 1 || values.size(0) == q.size(1), "{}: {} has {} heads, q has {}", op, argument,
        values.size(0), q.size(1));
  if (q.element_size() >= 4 || values.scalar_type() != at::kFloat) check_dtype(op, argument, values, q);
  check_same_place(op, argument, values, "q", q);
}

// M = left right^T, both sparse.
class FactoredMask final : public Mask {
 public:
  FactoredMask(SparseEntries left, SparseEntries right) : left_(std::move(left)), right_(std::move(right)) {}
  std::string name() const override { return "factored"; }
  std::int64_t num_nodes() const override { return left_.pattern->num_nodes(); }
  std::int64_t num_heads() const override { return left_.values.size(0); }
  std::vector<at::Tensor> parameters() const override { return {left_.values, right_.values}; }
  at::Tensor apply(const at::Tensor& x) const override {
    return multiply(left_, multiply(right_, x, true), false);
  }
  at::Tensor apply_transposed(const at::Tensor& x) const override {
    return multiply(right_, multiply(left_, x, true), false);
  }
  bool has_sparse_factors() const override { return true; }
  std::vector<SparseFactors> sparse_factors() const override { return {{left_, right_}}; }
  MaskCost cost() const override { return {}; }  // the engine was chosen already

 private:
  static at::Tensor multiply(const SparseEntries& entries, const at::Tensor& x, bool transposed) {
    return sparse_matmul(entries.pattern, entries.values.to(x.scalar_type()), x, transposed);
  }
  SparseEntries left_, right_;
};

// ---- mask engine ----

TensorFunction run_mask(at::TensorList pattern_tensors, std::string_view scores, double epsilon,
                        double guard) {
  const ScoreOptions options{choose("scores", scores, kScores), epsilon, guard};
  return [kept = pattern_tensors.vec(), options](const Tensors& x) {
    const PatternArgument pattern("mask_attention", "pattern", kept);
    check_operands("mask_attention", x[0], x[1], x[2], pattern.num_nodes(), Reals::or_narrow_on_gpu);
    check_same_place("mask_attention", "pattern", pattern.row_ptr(), "q", x[0]);
    check_values("mask_attention", "values", x[3], {-1, pattern.nnz()}, x[0]);
    const SparseMask mask(pattern.pattern, x[3]);
    return laid_out_like(x[2], run_mask_engine(options.inputs(x[0], x[1], x[2]), mask));
  };
}

at::Tensor mask_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& values, at::TensorList pattern, std::string_view scores,
                          double epsilon, double guard) {
  return without_graph(run_mask(pattern, scores, epsilon, guard), {q, k, v, values});
}

using FourTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

FourTensors mask_attention_backward(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                                    const at::Tensor& v, const at::Tensor& values, at::TensorList pattern,
                                    std::string_view scores, double epsilon, double guard,
                                    std::array<bool, 4> needs) {
  return gradients_of<4>(run_mask(pattern, scores, epsilon, guard), {q, k, v, values}, grad, needs);
}

// ---- feature engine, fused, for masks that are a product of sparse factors ----

TensorFunction run_feature(at::TensorList left_tensors, at::TensorList right_tensors, double guard,
                           std::int64_t max_workspace) {
  const ScoreOptions options{.guard = guard, .max_workspace = max_workspace};
  return [kept_left = left_tensors.vec(), kept_right = right_tensors.vec(), options](const Tensors& x) {
    const PatternArgument left("feature_attention", "left", kept_left),
        right("feature_attention", "right", kept_right);
    check(left.num_nodes() == right.num_nodes(), "feature_attention: left has {} rows, right has {}",
          left.num_nodes(), right.num_nodes());
    check_operands("feature_attention", x[0], x[1], x[2], left.num_nodes(), Reals::wide);
    check_same_place("feature_attention", "left", left.row_ptr(), "q", x[0]);
    check_same_place("feature_attention", "right", right.row_ptr(), "q", x[0]);
    check_values("feature_attention", "left_values", x[3], {-1, left.nnz()}, x[0]);
    check_values("feature_attention", "right_values", x[4], {x[3].size(0), right.nnz()}, x[0]);
    const auto mask = std::make_shared<const FactoredMask>(SparseEntries{left.pattern, x[3]},
                                                           SparseEntries{right.pattern, x[4]});
    return run_feature_engine(options.inputs(x[0], x[1], x[2].contiguous()), mask).contiguous();
  };
}

at::Tensor feature_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& left_values, const at::Tensor& right_values,
                             at::TensorList left, at::TensorList right, double guard,
                             std::int64_t max_workspace) {
  return without_graph(run_feature(left, right, guard, max_workspace), {q, k, v, left_values, right_values});
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> feature_attention_backward(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& left_values, const at::Tensor& right_values, at::TensorList left, at::TensorList right,
    double guard, std::int64_t max_workspace, std::array<bool, 5> needs) {
  return gradients_of<5>(run_feature(left, right, guard, max_workspace), {q, k, v, left_values, right_values},
                         grad, needs);
}

// ---- dense engine ----

TensorFunction run_dense(std::string_view scores, double epsilon, double guard, std::int64_t max_workspace) {
  const ScoreOptions options{choose("scores", scores, kScores), epsilon, guard, max_workspace};
  return [options](const Tensors& x) {
    check_operands("dense_attention", x[0], x[1], x[2], -1, Reals::or_narrow_on_gpu);
    const std::int64_t n = x[0].size(2);
    check_values("dense_attention", "matrix", x[3], {-1, n, n}, x[0]);
    const DenseMask mask(x[3].contiguous());
    return laid_out_like(x[2], run_dense_engine(options.inputs(x[0], x[1], x[2]), mask));
  };
}

at::Tensor dense_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& matrix, std::string_view scores, double epsilon, double guard,
                           std::int64_t max_workspace) {
  return without_graph(run_dense(scores, epsilon, guard, max_workspace), {q, k, v, matrix});
}

FourTensors dense_attention_backward(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const at::Tensor& matrix, std::string_view scores,
                                     double epsilon, double guard, std::int64_t max_workspace,
                                     std::array<bool, 4> needs) {
  return gradients_of<4>(run_dense(scores, epsilon, guard, max_workspace), {q, k, v, matrix}, grad, needs);
}

// ---- the gradients' wiring ----

at::Tensor mask_attention_autograd(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const at::Tensor& values, at::TensorList pattern, std::string_view scores,
                                   double epsilon, double guard) {
  static const auto forward = find_operator<decltype(mask_attention)>("topomask::mask_attention");
  static const auto backward =
      find_operator<decltype(mask_attention_backward)>("topomask::mask_attention_backward");
  return differentiable({q, k, v, values},
                        library_call<4>(run_mask(pattern, scores, epsilon, guard), forward, backward,
                                        pattern.vec(), std::string(scores), epsilon, guard));
}

at::Tensor feature_attention_autograd(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& left_values, const at::Tensor& right_values,
                                      at::TensorList left, at::TensorList right, double guard,
                                      std::int64_t max_workspace) {
  static const auto forward = find_operator<decltype(feature_attention)>("topomask::feature_attention");
  static const auto backward =
      find_operator<decltype(feature_attention_backward)>("topomask::feature_attention_backward");
  return differentiable({q, k, v, left_values, right_values},
                        library_call<5>(run_feature(left, right, guard, max_workspace), forward, backward,
                                        left.vec(), right.vec(), guard, max_workspace));
}

at::Tensor dense_attention_autograd(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const at::Tensor& matrix, std::string_view scores, double epsilon,
                                    double guard, std::int64_t max_workspace) {
  static const auto forward = find_operator<decltype(dense_attention)>("topomask::dense_attention");
  static const auto backward =
      find_operator<decltype(dense_attention_backward)>("topomask::dense_attention_backward");
  return differentiable({q, k, v, matrix},
                        library_call<4>(run_dense(scores, epsilon, guard, max_workspace), forward, backward,
                                        std::string(scores), epsilon, guard, max_workspace));
}

at::Tensor favor_projection_op(std::int64_t num_features, std::int64_t d, std::int64_t seed,
                               at::ScalarType dtype, at::Device device) {
  check(num_features >= 1, "FeatureMap: favor needs at least one feature, got {}", num_features);
  check(d >= 1, "FeatureMap: favor needs at least one channel, got {}", d);
  // What an operator returns belongs to the caller.
  return favor_projection(num_features, d, static_cast<std::uint64_t>(seed), dtype, device).clone();
}

}  // namespace

TORCH_LIBRARY_IMPL(topomask, CompositeExplicitAutograd, m) {
  m.impl("mask_attention", mask_attention);
  m.impl("mask_attention_backward", mask_attention_backward);
  m.impl("feature_attention", feature_attention);
  m.impl("feature_attention_backward", feature_attention_backward);
  m.impl("dense_attention", dense_attention);
  m.impl("dense_attention_backward", dense_attention_backward);
  m.impl("favor_projection", favor_projection_op);
}

TORCH_LIBRARY_IMPL(topomask, Autograd, m) {
  m.impl("mask_attention", mask_attention_autograd);
  m.impl("feature_attention", feature_attention_autograd);
  m.impl("dense_attention", dense_attention_autograd);
}

}  // namespace topomask::ops
