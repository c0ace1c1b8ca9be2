#include "nn/batch_dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>

#include <vector>

#include "core/check.h"

namespace topomask {
namespace {

thread_local SampleRange current_range;

}  // namespace

SampleRangeScope::SampleRangeScope(const SampleRange& range) : before_(current_range) {
  current_range = range;
}

SampleRangeScope::~SampleRangeScope() {
  current_range = before_;
}

at::Tensor batch_dropout(const at::Tensor& x, double share, bool training) {
  const SampleRange& range = current_range;
  if (share == 0 || !training || range.count == range.whole) return at::dropout(x, share, training);
  check(x.size(0) % range.count == 0, "dropout: expected rows for {} samples, got {}", range.count,
        x.size(0));
  const std::int64_t rows = x.size(0) / range.count;  // of a sample
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes[0] = range.whole * rows;
  // Numbers are drawn in the order of memory, so the whole must lie there as the part does.
  const at::Tensor whole = at::empty_strided(sizes, at::empty_like(x).strides(), x.options()).fill_(1);
  const at::Tensor factors = at::dropout(whole, share, true);
  return x * factors.narrow(0, range.first * rows, x.size(0));
}

}  // namespace topomask
