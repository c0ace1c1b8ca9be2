// From a partition to the rows of its parts: who owns what, which nodes of other parts the rows of a part
// refer to (its halo), and which of its nodes the others need.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace topomask {

class ShardNumbering {
 public:
  // `part`: [N], each from 0 to parts - 1.
  ShardNumbering(std::vector<std::int32_t> part, std::int64_t parts);

  std::int64_t parts() const { return static_cast<std::int64_t>(begin_.size()) - 1; }
  std::int64_t num_nodes() const { return static_cast<std::int64_t>(part_.size()); }
  const std::vector<std::int32_t>& part() const { return part_; }

  // Nodes of one part, ascending. After renumbering they are begin(part) .. begin(part + 1) - 1.
  std::span<const std::int32_t> nodes(std::int64_t part) const;
  std::int64_t begin(std::int64_t part) const { return begin_[static_cast<std::size_t>(part)]; }

  // The number of a node after renumbering.
  std::int64_t place(std::int64_t node) const { return begin(part_[node]) + local_[node]; }

  // Nodes of other parts among the columns of one part's rows: by owner, then ascending.
  std::vector<std::int32_t> halo(std::int64_t part, std::span<const std::int32_t> columns);
  // Columns in local numbers, in place: own nodes first, then the halo.
  void localise(std::int64_t part, const std::vector<std::int32_t>& halo, std::span<std::int32_t> columns);

  // Where the nodes of each owner begin in a halo: [parts + 1].
  std::vector<std::int64_t> halo_begin(const std::vector<std::int32_t>& halo) const;
  // The nodes in a halo that `part` owns, in its local numbers.
  void append_owned(std::int64_t part, const std::vector<std::int32_t>& halo,
                    std::vector<std::int32_t>& local) const;

 private:
  std::vector<std::int32_t> part_;     // [N]
  std::vector<std::int32_t> local_;    // [N] number among the nodes of its part
  std::vector<std::int32_t> order_;    // [N] nodes by part
  std::vector<std::int64_t> begin_;    // [parts + 1]
  std::vector<std::int32_t> scratch_;  // [N], -1: not in the halo at hand
};

}  // namespace topomask
