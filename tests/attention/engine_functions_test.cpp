// The mask and the dense engine as pure functions: the backward pass from what was saved gives what autograd
// gives, and a tracer is told the truth about it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <string>
#include <vector>

#include "attention/engines.h"
#include "support/pattern_per_head.h"
#include "topomask/graph_builders.h"
#include "topomask/grf_mask.h"
#include "topomask/masks.h"

namespace topomask {
namespace {

const ScoreKind kKinds[] = {ScoreKind::features, ScoreKind::relu, ScoreKind::softmax};

EngineInputs inputs_of(ScoreKind kind, at::ScalarType dtype) {
  EngineInputs inputs;
  inputs.q = at::rand({2, 3, 12, 5}).to(dtype) - (kind == ScoreKind::features ? 0 : 0.5);
  inputs.k = at::rand({2, 3, 12, 5}).to(dtype) - (kind == ScoreKind::features ? 0 : 0.5);
  inputs.v = at::randn({2, 3, 12, 4}).to(dtype);
  inputs.rule = {kind, kind == ScoreKind::softmax ? 1 / std::sqrt(5.0) : 1, 1e-3, 1e-20};
  inputs.max_workspace = std::int64_t{1} << 12;  // several blocks of query rows
  return inputs;
}

AttentionShape shape_of(const EngineInputs& inputs) {
  AttentionShape shape;
  shape.batch = inputs.q.size(0);
  shape.heads = inputs.q.size(1);
  shape.num_nodes = inputs.q.size(2);
  shape.d = inputs.q.size(3);
  shape.d_v = inputs.v.size(3);
  shape.dtype = inputs.q.scalar_type();
  return shape;
}

EngineInputs leaves_of(const EngineInputs& inputs) {
  EngineInputs leaves = inputs;
  for (at::Tensor* x : {&leaves.q, &leaves.k, &leaves.v}) *x = x->detach().clone().requires_grad_();
  return leaves;
}

void expect_as_told(const std::vector<at::Tensor>& saved, const std::vector<SavedTensor>& told) {
  ASSERT_EQ(saved.size(), told.size());
  for (std::size_t i = 0; i < saved.size(); ++i) {
    EXPECT_EQ(saved[i].sizes().vec(), told[i].sizes) << i;
    EXPECT_EQ(saved[i].scalar_type(), told[i].dtype) << i;
  }
}

void expect_same(const EngineGradients& actual, const std::vector<at::Tensor>& expected, double tolerance) {
  std::vector<at::Tensor> all = {actual.q, actual.k, actual.v};
  all.insert(all.end(), actual.mask.begin(), actual.mask.end());
  ASSERT_EQ(all.size(), expected.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].scalar_type(), expected[i].scalar_type()) << i;
    EXPECT_TRUE(at::allclose(all[i], expected[i], tolerance, tolerance)) << i;
    EXPECT_FALSE(all[i].requires_grad()) << i;
  }
}

std::vector<SparseEntries> entries_of(bool per_head, std::int64_t value_heads, at::ScalarType dtype) {
  std::vector<SparseEntries> entries;
  for (int hops = 1; hops <= (per_head ? 3 : 1); ++hops) {
    const auto pattern = NeighbourMask(grid_graph({4, 3}), hops).entries().front().pattern;
    entries.push_back({pattern, at::rand({per_head ? 1 : value_heads, pattern->nnz()}).to(dtype) + 0.1});
  }
  return entries;
}

TEST(MaskEngineFunctions, GiveWhatAutogradGives) {
  at::manual_seed(1);
  for (const ScoreKind kind : kKinds) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      for (const std::int64_t value_heads : {0, 1, 3}) {  // 0: one pattern per head
        SCOPED_TRACE(::testing::Message() << static_cast<int>(kind) << " " << dtype << " " << value_heads);
        const EngineInputs inputs = inputs_of(kind, dtype), leaves = leaves_of(inputs);
        // Values may come in another dtype than q.
        std::vector<SparseEntries> entries = entries_of(value_heads == 0, value_heads, at::kFloat);
        std::vector<at::Tensor> all = {leaves.q, leaves.k, leaves.v};
        for (SparseEntries& own : entries) all.push_back(own.values.requires_grad_());
        const at::Tensor out = run_mask_engine(leaves, testing::PatternPerHead(entries));
        const at::Tensor grad = at::randn(out.sizes(), out.options());
        const auto expected = torch::autograd::grad({out}, all, {grad});

        const EngineResult result = mask_engine_forward(leaves, entries, true);
        EXPECT_TRUE(at::equal(result.out, out));
        EXPECT_FALSE(result.out.requires_grad());
        std::int64_t count = 0;
        for (const SparseEntries& own : entries)
          count += own.pattern->nnz() * (value_heads == 0 ? 1 : inputs.q.size(1));
        expect_as_told(result.saved, mask_engine_saved(shape_of(inputs), kind, count));
        expect_same(mask_engine_backward(grad, leaves, entries, result, true), expected, 1e-12);
        EXPECT_TRUE(mask_engine_backward(grad, leaves, entries, result, false).mask.empty());
        const EngineResult forgotten = mask_engine_forward(leaves, entries, false);
        EXPECT_TRUE(at::equal(forgotten.out, out));
        EXPECT_TRUE(forgotten.saved.empty());
      }
    }
  }
}

TEST(DenseEngineFunctions, GiveWhatAutogradGives) {
  at::manual_seed(2);
  for (const ScoreKind kind : kKinds) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
      for (const std::int64_t mask_heads : {1, 3}) {
        SCOPED_TRACE(::testing::Message() << static_cast<int>(kind) << " " << dtype << " " << mask_heads);
        const EngineInputs inputs = inputs_of(kind, dtype), leaves = leaves_of(inputs);
        const at::Tensor matrix = (at::rand({mask_heads, 12, 12}) + 0.1).requires_grad_();
        const at::Tensor out = run_dense_engine(leaves, DenseMask(matrix));
        const at::Tensor grad = at::randn(out.sizes()).to(dtype);
        const auto expected = torch::autograd::grad({out}, {leaves.q, leaves.k, leaves.v, matrix}, {grad});

        const EngineResult result = dense_engine_forward(leaves, matrix, true);
        EXPECT_TRUE(at::equal(result.out, out));
        EXPECT_FALSE(result.out.requires_grad());
        expect_as_told(result.saved, dense_engine_saved(shape_of(inputs), kind));
        expect_same(dense_engine_backward(grad, leaves, matrix, result, true), expected, 1e-12);
        EXPECT_TRUE(dense_engine_backward(grad, leaves, matrix, result, false).mask.empty());
        EXPECT_TRUE(dense_engine_forward(leaves, matrix, false).saved.empty());
      }
    }
  }
}

}  // namespace
}  // namespace topomask
