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
    const std::int64_t own = mask->heads();
    check(own == 1 || heads == 1 || own == heads, "{}: masks must have 1 head or {} heads, but '{}' has {}",
          owner, heads, mask->name(), own);
    heads = std::max(heads, own);
  }
  return heads;
}

inline std::vector<at::Tensor> all_parameters(const std::vector<MaskPtr>& masks) {
  std::vector<at::Tensor> result;
  for (const MaskPtr& mask : masks) {
    const std::vector<at::Tensor> own = mask->parameters();
    result.insert(result.end(), own.begin(), own.end());
  }
  return result;
}

// The parts with other parameters, in the order of all_parameters.
inline std::vector<MaskPtr> with_all_parameters(const char* owner, const std::vector<MaskPtr>& masks,
                                                const std::vector<at::Tensor>& parameters) {
  std::vector<MaskPtr> result;
  auto next = parameters.begin();
  for (const MaskPtr& mask : masks) {
    const auto count = static_cast<std::ptrdiff_t>(mask->parameters().size());
    check(parameters.end() - next >= count, "{}: expected more than {} parameters", owner, parameters.size());
    result.push_back(mask->with_parameters({next, next + count}));
    next += count;
  }
  check(next == parameters.end(), "{}: expected {} parameters, got {}", owner, next - parameters.begin(),
        parameters.size());
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

// The profile of a mask that joins the patterns of its parts: at most as many entries as the parts have
// together, over all heads if one of them has a pattern per head. `counted`: the true number, or -1.
inline MaskProfile joined_profile(const Mask& whole, const std::vector<MaskPtr>& parts,
                                  std::int64_t counted) {
  MaskProfile joined;
  joined.name = whole.name();
  joined.num_nodes = whole.num_nodes();
  joined.heads = whole.heads();
  std::vector<MaskProfile> profiles;
  for (const MaskPtr& part : parts) profiles.push_back(part->profile());
  bool sparse = true;
  for (const MaskProfile& part : profiles) {
    joined.multiply_adds_per_column += part.multiply_adds_per_column;
    joined.bytes_per_column += part.bytes_per_column;
    joined.value_multiply_adds += part.value_multiply_adds;
    joined.pattern_per_head = joined.pattern_per_head || part.pattern_per_head;
    sparse = sparse && part.sparse();
  }
  if (!sparse) {
    joined.pattern_per_head = false;
    return joined;
  }
  joined.entries = 0;
  for (const MaskProfile& part : profiles) {
    const bool repeated = joined.pattern_per_head && !part.pattern_per_head;
    joined.entries += repeated ? part.entries * joined.heads : part.entries;
  }
  for (const MaskProfile& part : profiles) joined.far_share = std::max(joined.far_share, part.far_share);
  joined.entries_counted = counted >= 0;
  if (counted >= 0) joined.entries = counted;
  return joined;
}

// The blocks that all parts agree on; empty where they differ.
inline std::vector<std::int64_t> common_blocks(const std::vector<MaskPtr>& masks) {
  const std::vector<std::int64_t> first = masks.front()->blocks();
  const bool same =
      std::all_of(masks.begin(), masks.end(), [&](const MaskPtr& mask) { return mask->blocks() == first; });
  return same ? first : std::vector<std::int64_t>();
}

}  // namespace topomask
