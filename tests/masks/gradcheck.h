// Oracles for masks: a mask against a dense matrix written in the test, and its gradients against central
// finite differences of every element of every tensor.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "support/expect_error.h"
#include "support/gradients.h"
#include "topomask/mask.h"

namespace topomask::oracle {

// Numbers in (-1, 1) that look random and are the same everywhere.
inline at::Tensor test_values(at::IntArrayRef shape, int salt = 0) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  const at::Tensor index = at::arange(count, at::kDouble);
  return at::sin(index * 1.7 + 0.3 * (salt + 1) + (index * 0.61).pow(2)).view(shape).contiguous();
}

inline double max_difference(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == 0 ? 0.0 : (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// `oracle`: [heads, N, N] float64. Products with both dtypes and with any number of heads the mask allows,
// and every other view the mask has of itself.
inline void expect_matches(const Mask& mask, const at::Tensor& oracle) {
  SCOPED_TRACE(mask.name());
  const std::int64_t n = mask.num_nodes(), heads = mask.heads();
  ASSERT_EQ(oracle.sizes(), (std::vector<std::int64_t>{heads, n, n}));
  const double scale = std::max(1.0, n == 0 ? 0.0 : oracle.abs().sum(-1).max().item<double>());
  for (const std::int64_t x_heads :
       heads == 1 ? std::vector<std::int64_t>{1, 3} : std::vector<std::int64_t>{heads}) {
    // Not contiguous, as attention may hand it over.
    const at::Tensor x = test_values({x_heads, 5, n}).transpose(1, 2);
    const at::Tensor matrix = oracle.expand({x_heads, n, n});
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      const double tolerance = (dtype == at::kFloat ? 3e-6 : 1e-13) * scale;
      const at::Tensor y = mask.multiply(x.to(dtype)), y_transposed = mask.multiply(x.to(dtype), true);
      EXPECT_EQ(y.scalar_type(), dtype);
      EXPECT_EQ(y_transposed.scalar_type(), dtype);
      EXPECT_LE(max_difference(y, at::matmul(matrix, x)), tolerance);
      EXPECT_LE(max_difference(y_transposed, at::matmul(matrix.transpose(1, 2), x)), tolerance);
    }
  }
  EXPECT_EQ(mask.multiply(at::zeros({heads, n, 0}, at::kDouble)).sizes(),
            (std::vector<std::int64_t>{heads, n, 0}));
  const at::Tensor dense = mask.dense(at::kDouble);
  EXPECT_EQ(dense.sizes(), oracle.sizes());
  EXPECT_LE(max_difference(dense, oracle), 1e-13 * scale);
  EXPECT_LE(max_difference(mask.dense(at::kFloat), oracle), 3e-6 * scale);
  EXPECT_LE(max_difference(mask.Mask::dense(at::kDouble), oracle), 1e-13 * scale);
  if (mask.profile().rank > 0) {
    const Factors factors = mask.factors();
    const at::Tensor product =
        at::matmul(factors.left.to(at::kDouble), factors.right.to(at::kDouble).transpose(1, 2));
    EXPECT_LE(max_difference(product.expand_as(oracle), oracle), 1e-13 * scale);
  } else {
    EXPECT_THROW(mask.factors(), Error);
  }
  if (mask.profile().sparse()) {
    const std::vector<SparseEntries> entries = mask.entries();
    EXPECT_EQ(entries.size(), static_cast<std::size_t>(mask.profile().pattern_per_head ? heads : 1));
    at::Tensor written = at::zeros_like(oracle);
    std::int64_t total = 0;
    for (std::int64_t head = 0; head < heads; ++head) {
      const SparseEntries& own = entries[entries.size() == 1 ? 0 : head];
      if (head == 0 || entries.size() > 1) total += own.pattern->nnz();
      const at::Tensor values = own.values[own.values.size(0) == 1 ? 0 : head].to(at::kDouble);
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t p = own.pattern->row_ptr[i].item<std::int64_t>();
             p < own.pattern->row_ptr[i + 1].item<std::int64_t>(); ++p)
          written[head][i][own.pattern->col[p].item<std::int64_t>()] += values[p];
    }
    EXPECT_LE(max_difference(written, oracle), 1e-13 * scale);
    EXPECT_EQ(mask.profile().entries, total);
  } else {
    EXPECT_THROW(mask.entries(), Error);
  }
  EXPECT_GE(mask.profile().multiply_adds_per_column, 0);
  EXPECT_GE(mask.profile().bytes_per_column, 0);
}

// Gradients by x and by every parameter of everything the mask computes: both products, and the dense matrix,
// entries and factors it knows.
inline void check_gradients(const Mask& mask, std::int64_t x_heads = 0) {
  SCOPED_TRACE(mask.name());
  const OneThread one_thread;
  const std::int64_t heads = x_heads > 0 ? x_heads : mask.heads(), n = mask.num_nodes();
  const at::Tensor x = test_values({heads, n, 2}, 1).requires_grad_();
  std::vector<at::Tensor> tensors = mask.parameters();
  for (const at::Tensor& parameter : tensors) ASSERT_TRUE(parameter.requires_grad() && parameter.is_leaf());
  const auto weighed = [](const at::Tensor& out) { return (out * test_values(out.sizes(), 2)).sum(); };
  if (!tensors.empty()) {
    expect_gradients(tensors, [&] { return weighed(mask.dense(at::kDouble)); });
    if (mask.profile().sparse())
      expect_gradients(tensors, [&] {
        at::Tensor sum = at::zeros({}, at::kDouble);
        for (const SparseEntries& part : mask.entries()) sum = sum + weighed(part.values);
        return sum;
      });
    if (mask.profile().rank > 0)
      expect_gradients(tensors, [&] {
        const Factors factors = mask.factors();
        return weighed(factors.left) + (factors.right * test_values(factors.right.sizes(), 5)).sum();
      });
  }
  tensors.push_back(x);
  expect_gradients(tensors, [&] { return weighed(mask.multiply(x)); });
  expect_gradients(tensors, [&] { return weighed(mask.multiply(x, true)); });
}

inline at::Tensor parameter(at::IntArrayRef shape, int salt = 0) {
  return test_values(shape, salt).requires_grad_();
}

using testing::expect_error;

}  // namespace topomask::oracle
