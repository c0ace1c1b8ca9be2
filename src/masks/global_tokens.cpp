#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <limits>
#include <mutex>

#include "masks/arguments.h"
#include "masks/merged_entries.h"
#include "masks/parts.h"
#include "topomask/mask_combinators.h"

namespace topomask {

namespace {

// Full rows of the G global tokens, and their columns in the rows of all others; values 1.
SparseEntries global_entries(std::int64_t num_global, std::int64_t num_nodes) {
  const std::int64_t others = num_nodes - num_global;
  const at::Tensor row_ptr =
      at::cat({at::arange(num_global, at::kLong) * num_nodes,
               at::arange(others + 1, at::kLong) * num_global + num_global * num_nodes});
  const at::Tensor col = at::cat({at::arange(num_nodes, at::kInt).repeat({num_global}),
                                  at::arange(num_global, at::kInt).repeat({others})});
  auto pattern = std::make_shared<const SparsePattern>(SparsePattern::from_rows(row_ptr, col));
  return {pattern, at::ones({1, pattern->nnz()}, at::kFloat)};
}

}  // namespace

struct GlobalTokenPatterns {
  std::int64_t num_global = 0, num_nodes = 0;
  std::once_flag once;
  SparseEntries global;
  MergedEntries merged;
};

GlobalTokensMask::GlobalTokensMask(MaskPtr mask, std::int64_t num_global,
                                   std::shared_ptr<GlobalTokenPatterns> patterns)
    : mask_(std::move(mask)), num_global_(num_global), patterns_(std::move(patterns)) {
  check(mask_ != nullptr, "GlobalTokensMask: mask must be given, got a null pointer");
  check(num_global >= 0 && num_global <= std::numeric_limits<std::int32_t>::max() - mask_->num_nodes(),
        "GlobalTokensMask: num_global must be at least 0 and the tokens fewer than 2^31, got {} for {} nodes",
        num_global, mask_->num_nodes());
  if (patterns_ != nullptr && patterns_->num_global == num_global && patterns_->num_nodes == num_nodes())
    return;
  patterns_ = std::make_shared<GlobalTokenPatterns>();
  patterns_->num_global = num_global;
  patterns_->num_nodes = num_nodes();
}

std::string GlobalTokensMask::name() const {
  return fmt::format("global-tokens({}, {})", mask_->name(), num_global_);
}

MaskPtr GlobalTokensMask::with_parameters(const std::vector<at::Tensor>& parameters) const {
  return std::make_shared<GlobalTokensMask>(mask_->with_parameters(parameters), num_global_, patterns_);
}

at::Tensor GlobalTokensMask::multiply(const at::Tensor& x, bool transposed) const {
  check_input(*this, x);
  const at::Tensor global = x.narrow(1, 0, num_global_);
  const at::Tensor nodes = x.narrow(1, num_global_, mask_->num_nodes());
  const at::Tensor from_global = global.sum(1, /*keepdim=*/true);
  const at::Tensor to_global = (from_global + nodes.sum(1, /*keepdim=*/true)).expand_as(global);
  const at::Tensor to_nodes = mask_->multiply(nodes, transposed);
  return at::cat({to_global, to_nodes + from_global}, 1);
}

std::vector<SparseEntries> GlobalTokensMask::entries() const {
  const std::vector<SparseEntries> inner = mask_->entries();
  std::call_once(patterns_->once, [&] {
    const c10::InferenceMode learnable(false);  // a later call may want gradients
    patterns_->global = global_entries(num_global_, num_nodes());
    at::Tensor& ones = patterns_->global.values;
    ones = ones.to(inner.front().values.device());  // now, rather than at every call
  });
  return patterns_->merged.merge(num_nodes(), {{{patterns_->global}, 0}, {inner, num_global_}});
}

Factors GlobalTokensMask::factors() const {
  // [[1, 1], [1, L R^T]] = g 1^T + n g^T + [0; L] [0; R]^T, with g and n marking the global tokens and the
  // nodes.
  const Factors base = mask_->factors();
  const std::int64_t heads = std::max(base.left.size(0), base.right.size(0));
  const auto extended = [&](const at::Tensor& factor, bool is_left) {
    const at::TensorOptions options = factor.options().requires_grad(false);
    const at::Tensor is_global = at::cat(
        {at::ones({heads, num_global_, 1}, options), at::zeros({heads, mask_->num_nodes(), 1}, options)}, 1);
    const at::Tensor padded = at::cat({at::zeros({heads, num_global_, factor.size(2)}, options),
                                       factor.expand({heads, factor.size(1), factor.size(2)})},
                                      1);
    const at::Tensor ones = at::ones_like(is_global);
    return at::cat({is_left ? is_global : ones, is_left ? ones - is_global : is_global, padded}, -1);
  };
  return {extended(base.left, true), extended(base.right, false)};
}

at::Tensor GlobalTokensMask::dense(at::ScalarType dtype) const {
  const at::Tensor base = mask_->dense(dtype);
  const at::TensorOptions options = base.options().requires_grad(false);
  const at::Tensor columns = at::ones({base.size(0), mask_->num_nodes(), num_global_}, options);
  const at::Tensor rows = at::ones({base.size(0), num_global_, num_nodes()}, options);
  return at::cat({rows, at::cat({columns, base}, 2)}, 1);
}

MaskProfile GlobalTokensMask::profile() const {
  MaskProfile profile = mask_->profile();
  const double n = static_cast<double>(num_nodes());
  profile.name = name();
  profile.num_nodes = num_nodes();
  if (profile.sparse()) {
    const std::int64_t patterns = profile.pattern_per_head ? heads() : 1;
    profile.entries += patterns * num_global_ * (num_nodes() + mask_->num_nodes());
  }
  if (profile.rank > 0) profile.rank += 2;
  profile.sparse_factors = false;
  profile.multiply_adds_per_column += 2 * n;
  profile.bytes_per_column += 4 * 3 * n;
  return profile;
}

}  // namespace topomask
