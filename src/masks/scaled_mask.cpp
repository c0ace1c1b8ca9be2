#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>

#include "core/tensors.h"
#include "masks/arguments.h"
#include "masks/parts.h"
#include "masks/sparse_ops.h"
#include "topomask/mask_combinators.h"

namespace topomask {

namespace {

// [N] or [H, N] as [H, N]; undefined stays undefined.
at::Tensor as_rows(const at::Tensor& scale) {
  return scale.defined() && scale.dim() == 1 ? scale.unsqueeze(0) : scale;
}

std::int64_t heads_of(const at::Tensor& scale) {
  return scale.defined() && scale.dim() == 2 ? scale.size(0) : 1;
}

void check_scale(const char* argument, const at::Tensor& scale, std::int64_t num_nodes) {
  if (!scale.defined()) return;
  const std::string shape = fmt::format("[{0}] or [H, {0}]", num_nodes);
  if (scale.dim() == 1) {
    check_parameter("ScaledMask", argument, scale, {num_nodes}, shape.c_str());
  } else {
    check_parameter("ScaledMask", argument, scale, {-1, num_nodes}, shape.c_str());
  }
}

// x [H, N, C] with row i of head h times scale[h, i].
at::Tensor scale_rows(const at::Tensor& x, const at::Tensor& scale) {
  return scale.defined() ? x * as_rows(scale).to(x.scalar_type()).unsqueeze(-1) : x;
}

// values [1 or H, nnz] times the scale at `node` [nnz], of one head where `head` says so.
at::Tensor scale_entries(const at::Tensor& values, const at::Tensor& scale, const at::Tensor& node,
                         std::int64_t head) {
  if (!scale.defined()) return values;
  at::Tensor rows = as_rows(scale);
  if (head >= 0 && rows.size(0) > 1) rows = rows.narrow(0, head, 1);
  return values * at::embedding(rows.t(), node).t();
}

}  // namespace

ScaledMask::ScaledMask(MaskPtr mask, at::Tensor row_scale, at::Tensor column_scale)
    : mask_(std::move(mask)), row_scale_(std::move(row_scale)), column_scale_(std::move(column_scale)) {
  check(mask_ != nullptr, "ScaledMask: mask must be given, got a null pointer");
  check_scale("row_scale", row_scale_, mask_->num_nodes());
  check_scale("column_scale", column_scale_, mask_->num_nodes());
  heads_ = std::max({mask_->heads(), heads_of(row_scale_), heads_of(column_scale_)});
  for (const std::int64_t heads : {mask_->heads(), heads_of(row_scale_), heads_of(column_scale_)})
    check(heads == 1 || heads == heads_,
          "ScaledMask: mask, row_scale and column_scale must have 1 or {} heads, got {}, {} and {}", heads_,
          mask_->heads(), heads_of(row_scale_), heads_of(column_scale_));
  if (row_scale_.defined() && column_scale_.defined())
    check_same_device("ScaledMask", "column_scale", column_scale_, "row_scale", row_scale_);
  if (const std::optional<c10::Device> own = mask_->device()) {
    for (const at::Tensor& scale : {row_scale_, column_scale_})
      check(!scale.defined() || scale.device() == *own,
            "ScaledMask: row_scale and column_scale must be on {} as the mask, got {}", own->str(),
            describe(scale));
  }
}

std::optional<c10::Device> ScaledMask::device() const {
  if (mask_->device()) return mask_->device();
  return row_scale_.defined()      ? std::optional<c10::Device>(row_scale_.device())
         : column_scale_.defined() ? std::optional<c10::Device>(column_scale_.device())
                                   : std::nullopt;
}

std::string ScaledMask::name() const {
  return fmt::format("scaled({})", mask_->name());
}

std::vector<at::Tensor> ScaledMask::parameters() const {
  std::vector<at::Tensor> result = mask_->parameters();
  for (const at::Tensor& scale : {row_scale_, column_scale_}) {
    if (scale.defined()) result.push_back(scale);
  }
  return result;
}

MaskPtr ScaledMask::with_parameters(const std::vector<at::Tensor>& parameters) const {
  const std::size_t inner = mask_->parameters().size();
  check(parameters.size() == this->parameters().size(), "ScaledMask: expected {} parameters, got {}",
        this->parameters().size(), parameters.size());
  auto copy = std::make_shared<ScaledMask>(*this);
  const auto first = parameters.begin();
  copy->mask_ = mask_->with_parameters({first, first + static_cast<std::ptrdiff_t>(inner)});
  std::size_t next = inner;
  for (at::Tensor* scale : {&copy->row_scale_, &copy->column_scale_}) {
    if (!scale->defined()) continue;
    check(parameters[next].sizes() == scale->sizes(), "ScaledMask: scales must be {}, got {}",
          describe(*scale), describe(parameters[next]));
    *scale = parameters[next++];
  }
  return copy;
}

at::Tensor ScaledMask::multiply(const at::Tensor& x, bool transposed) const {
  check_input(*this, x);
  const at::Tensor &before = transposed ? row_scale_ : column_scale_,
                   &after = transposed ? column_scale_ : row_scale_;
  return scale_rows(mask_->multiply(scale_rows(x, before), transposed), after);
}

std::vector<SparseEntries> ScaledMask::entries() const {
  std::vector<SparseEntries> result = mask_->entries();
  for (std::size_t k = 0; k < result.size(); ++k) {
    const std::int64_t head = result.size() == 1 ? -1 : static_cast<std::int64_t>(k);
    const SparsePattern& pattern = *result[k].pattern;
    at::Tensor& values = result[k].values;
    if (row_scale_.defined()) values = scale_entries(values, row_scale_, entry_rows(pattern), head);
    values = scale_entries(values, column_scale_, pattern.col, head);
  }
  return result;
}

Factors ScaledMask::factors() const {
  const Factors factors = mask_->factors();
  const auto scaled = [](const at::Tensor& factor, const at::Tensor& scale) {
    return scale.defined() ? factor.to(scale.device()) * as_rows(scale).unsqueeze(-1) : factor;
  };
  return {scaled(factors.left, row_scale_), scaled(factors.right, column_scale_)};
}

at::Tensor ScaledMask::dense(at::ScalarType dtype) const {
  at::Tensor matrix = scale_rows(on_device(mask_->dense(dtype), device()), row_scale_);
  if (column_scale_.defined()) matrix = matrix * as_rows(column_scale_).to(dtype).unsqueeze(1);
  return matrix.expand({heads_, num_nodes(), num_nodes()});
}

MaskProfile ScaledMask::profile() const {
  MaskProfile profile = mask_->profile();
  const double n = static_cast<double>(num_nodes());
  profile.name = name();
  profile.heads = heads_;
  profile.sparse_factors = false;
  profile.multiply_adds_per_column += 2 * n;
  profile.bytes_per_column += 4 * 4 * n;
  return profile;
}

}  // namespace topomask
