#include "masks/merged_entries.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "masks/cpu/merge_rows.h"

namespace topomask {

namespace {

const SparseEntries& nth(const PlacedEntries& part, std::size_t which) {
  return part.entries[part.entries.size() == 1 ? 0 : which];
}

// Parts that were given no device of their own, such as global tokens, follow the others.
c10::Device device_of(const std::vector<PlacedEntries>& parts) {
  for (const PlacedEntries& part : parts) {
    if (!part.entries.front().pattern->device().is_cpu()) return part.entries.front().pattern->device();
  }
  return at::kCPU;
}

// The values a part gives to pattern `which`: of all heads if they share it, else of that head.
at::Tensor values_for(const PlacedEntries& part, std::size_t which, bool one_pattern, std::int64_t heads,
                      const at::TensorOptions& options) {
  const at::Tensor values = nth(part, which).values.to(options);
  if (!one_pattern && part.entries.size() == 1 && values.size(0) > 1)
    return values.narrow(0, static_cast<std::int64_t>(which), 1);
  return values.expand({heads, values.size(1)});
}

}  // namespace

MergedEntries::Layout MergedEntries::make_layout(std::int64_t num_nodes,
                                                 const std::vector<PlacedEntries>& parts, std::size_t which) {
  Layout layout;
  const c10::Device device = device_of(parts);
  std::vector<PlacedRows> rows;
  std::vector<at::Tensor> on_cpu;  // patterns are merged there, once
  std::vector<std::int64_t*> slots;
  std::int64_t total = 0;
  for (const PlacedEntries& part : parts) {
    const SparsePattern& pattern = *nth(part, which).pattern;
    const at::Tensor row_ptr = pattern.row_ptr.to(at::kCPU), col = pattern.col.to(at::kCPU);
    on_cpu.insert(on_cpu.end(), {row_ptr, col});
    rows.push_back({pattern.num_nodes(), part.offset, row_ptr.const_data_ptr<std::int64_t>(),
                    col.const_data_ptr<std::int32_t>()});
    const std::int64_t entries =
        rows.back().row_ptr[pattern.num_nodes()];  // without those that pad the pattern
    layout.slot.push_back(at::empty({entries}, at::kLong));
    layout.entries.push_back(entries);
    slots.push_back(layout.slot.back().data_ptr<std::int64_t>());
    total += entries;
  }
  const at::Tensor row_ptr = at::empty({num_nodes + 1}, at::kLong);
  count_merged_rows(num_nodes, rows, row_ptr.data_ptr<std::int64_t>());
  const std::int64_t nnz = row_ptr.const_data_ptr<std::int64_t>()[num_nodes];
  const at::Tensor col = at::empty({nnz}, at::kInt);
  fill_merged_rows(num_nodes, rows, row_ptr.const_data_ptr<std::int64_t>(), col.data_ptr<std::int32_t>(),
                   slots);
  layout.pattern = std::make_shared<const SparsePattern>(SparsePattern::from_rows(row_ptr, col).to(device));
  for (at::Tensor& slot : layout.slot) slot = slot.to(device);
  layout.disjoint = total == nnz;
  if (layout.disjoint) {
    layout.all_slots = at::cat(layout.slot);
    layout.slot.clear();
  }
  return layout;
}

std::shared_ptr<const MergedEntries::Merged> MergedEntries::merged_patterns(
    std::int64_t num_nodes, const std::vector<PlacedEntries>& parts, std::size_t patterns) {
  std::vector<std::shared_ptr<const SparsePattern>> of_parts;
  for (const PlacedEntries& part : parts) {
    for (const SparseEntries& entries : part.entries) of_parts.push_back(entries.pattern);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (merged_ != nullptr && merged_->of_parts == of_parts) return merged_;
  const c10::InferenceMode learnable(false);  // a later call may want gradients
  auto merged = std::make_shared<Merged>();
  merged->of_parts = std::move(of_parts);
  std::int64_t total = 0;
  for (std::size_t which = 0; which < patterns; ++which) {
    merged->layouts.push_back(make_layout(num_nodes, parts, which));
    total += merged->layouts.back().pattern->nnz();
  }
  num_entries_ = total;
  return merged_ = std::move(merged);
}

std::vector<SparseEntries> MergedEntries::merge(std::int64_t num_nodes,
                                                const std::vector<PlacedEntries>& parts) {
  std::size_t patterns = 1;
  at::ScalarType dtype = at::kFloat;
  std::int64_t heads = 1;  // that share the pattern
  for (const PlacedEntries& part : parts) {
    patterns = std::max(patterns, part.entries.size());
    for (const SparseEntries& entries : part.entries) {
      if (entries.values.scalar_type() == at::kDouble) dtype = at::kDouble;
      heads = std::max(heads, entries.values.size(0));
    }
  }
  if (patterns > 1) heads = 1;
  const at::TensorOptions options = at::TensorOptions(dtype).device(device_of(parts));
  const std::shared_ptr<const Merged> merged = merged_patterns(num_nodes, parts, patterns);

  std::vector<SparseEntries> result;
  for (std::size_t which = 0; which < patterns; ++which) {
    const Layout& layout = merged->layouts[which];
    std::vector<at::Tensor> values;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const at::Tensor own = values_for(parts[p], which, patterns == 1, heads, options);
      values.push_back(own.narrow(1, 0, layout.entries[p]));
    }
    const at::Tensor zeros = at::zeros({heads, layout.pattern->nnz()}, options);
    at::Tensor sum;
    if (layout.disjoint) {
      sum = zeros.index_copy(1, layout.all_slots, at::cat(values, 1));
    } else {
      for (std::size_t p = 0; p < parts.size(); ++p) {
        const at::Tensor placed = zeros.index_copy(1, layout.slot[p], values[p]);
        sum = sum.defined() ? sum + placed : placed;
      }
    }
    result.push_back({layout.pattern, sum});
  }
  return result;
}

}  // namespace topomask
