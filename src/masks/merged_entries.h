// The entries of a mask that is put together from the entries of others.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "topomask/mask.h"

namespace topomask {

// A part's entries (one, or one per head) and where it stands on the diagonal.
struct PlacedEntries {
  std::vector<SparseEntries> entries;
  std::int64_t offset = 0;
};

class MergedEntries {
 public:
  // Adds the parts up. The merged patterns are kept for as long as the parts come with the same ones.
  std::vector<SparseEntries> merge(std::int64_t num_nodes, const std::vector<PlacedEntries>& parts);
  // Entries over all patterns, -1 before the first merge.
  std::int64_t num_entries() const { return num_entries_.load(); }

 private:
  struct Layout {
    std::shared_ptr<const SparsePattern> pattern;
    std::vector<at::Tensor> slot;       // per part: [nnz of the part] int64, where its entries stand
    std::vector<std::int64_t> entries;  // of each part, without those that pad its pattern
    bool disjoint = false;              // no entry belongs to two parts
    at::Tensor all_slots;               // the slots of all parts in a row, if disjoint
  };
  static Layout make_layout(std::int64_t num_nodes, const std::vector<PlacedEntries>& parts,
                            std::size_t which);
  struct Merged {
    std::vector<std::shared_ptr<const SparsePattern>> of_parts;
    std::vector<Layout> layouts;  // one, or one per head
  };
  std::shared_ptr<const Merged> merged_patterns(std::int64_t num_nodes,
                                                const std::vector<PlacedEntries>& parts,
                                                std::size_t patterns);

  std::mutex mutex_;
  std::shared_ptr<const Merged> merged_;
  std::atomic<std::int64_t> num_entries_ = -1;
};

}  // namespace topomask
