// What the combinators ask of the masks they are made of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/check.h"
#include "topomask/mask.h"

namespace topomask {

inline void check_parts(const char* owner, const std::vector<MaskPtr>& masks) {
  check(!masks.empty(), "{}: masks must hold at least one mask, got none", owner);
  for (std::size_t k = 0; k < masks.size(); ++k)
    check(masks[k] != nullptr, "{}: masks[{}] must be a mask, got a null pointer", owner, k);
}

// Every part has one head or the same number of heads.
inline std::int64_t common_heads(const char* owner, const std::vector<MaskPtr>& masks) {
  std::int64_t heads = 1;
  for (const MaskPtr& mask : masks) {
    const std::int64_t own = mask->num_heads();
    check(own == 1 || heads == 1 || own == heads, "{}: masks must have 1 head or {} heads, but '{}' has {}",
          owner, heads, mask->name(), own);
    heads = std::max(heads, own);
  }
  return heads;
}

// Each tensor once, even if masks share it.
inline std::vector<at::Tensor> all_parameters(const std::vector<MaskPtr>& masks) {
  std::vector<at::Tensor> result;
  for (const MaskPtr& mask : masks) {
    for (const at::Tensor& parameter : mask->parameters()) {
      const bool known = std::any_of(result.begin(), result.end(),
                                     [&](const at::Tensor& other) { return other.is_same(parameter); });
      if (!known) result.push_back(parameter);
    }
  }
  return result;
}

// The one device of the parts; none where all of them work anywhere.
inline std::optional<c10::Device> common_device(const std::vector<MaskPtr>& masks) {
  std::optional<c10::Device> common;
  for (const MaskPtr& mask : masks) {
    if (!common) common = mask->device();
  }
  return common;
}

// Parts that work anywhere give what they know of themselves on the CPU.
inline at::Tensor on_device(const at::Tensor& tensor, const std::optional<c10::Device>& device) {
  return device ? tensor.to(*device) : tensor;
}

inline void check_one_device(const char* owner, const std::vector<MaskPtr>& masks) {
  const std::optional<c10::Device> common = common_device(masks);
  for (const MaskPtr& mask : masks) {
    const std::optional<c10::Device> own = mask->device();
    if (!own) continue;
    check(*own == *common, "{}: masks must be on one device, but '{}' is on {} and another on {}", owner,
          mask->name(), own->str(), common->str());
  }
}

inline MaskCost total_cost(const std::vector<MaskPtr>& masks) {
  MaskCost total;
  for (const MaskPtr& mask : masks) {
    const MaskCost part = mask->cost();
    total.multiply_adds_per_column += part.multiply_adds_per_column;
    total.bytes_per_column += part.bytes_per_column;
  }
  return total;
}

inline bool all_have_entries(const std::vector<MaskPtr>& masks) {
  return std::all_of(masks.begin(), masks.end(), [](const MaskPtr& mask) { return mask->has_entries(); });
}

inline bool any_per_head(const std::vector<MaskPtr>& masks) {
  return std::any_of(masks.begin(), masks.end(),
                     [](const MaskPtr& mask) { return mask->entries_per_head(); });
}

// At most so many entries has the union of the parts' patterns, over all heads if one part has a pattern per
// head; -1 if a part does not know.
inline std::int64_t bound_entries(const std::vector<MaskPtr>& masks, std::int64_t heads) {
  const bool per_head = any_per_head(masks);
  std::int64_t total = 0;
  for (const MaskPtr& mask : masks) {
    const std::int64_t own = mask->num_entries_total();
    if (own < 0) return -1;
    total += per_head && !mask->entries_per_head() ? own * heads : own;
  }
  return total;
}

}  // namespace topomask
