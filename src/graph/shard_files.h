// Names in the files of a partition, and the hash that ties them together.
#pragma once

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/hash.h"

namespace topomask {

constexpr std::string_view kShardIndexFile = "index.json";
constexpr std::string_view kShardIndexFormat = "topomask shards", kShardFormat = "topomask shard";
constexpr int kShardVersion = 1;
constexpr std::int64_t kMostParts = 4096;  // each shard has a few numbers per part

inline std::string shard_file(std::int64_t part) {
  return fmt::format("part-{:04}.safetensors", part);
}

// Over rows in the order of the nodes; the same whether they come from memory, from files or from shards.
class GraphHash {
 public:
  GraphHash(std::int64_t num_nodes, bool directed) {
    rows_.add(static_cast<std::uint64_t>(num_nodes));
    rows_.add(static_cast<std::uint64_t>(directed));
  }
  void add_row(std::span<const std::int32_t> col, std::span<const float> weight) {
    rows_.add(static_cast<std::uint64_t>(col.size()));
    for (std::size_t e = 0; e < col.size(); ++e) {
      rows_.add(std::uint64_t{static_cast<std::uint32_t>(col[e])} << 32 |
                std::bit_cast<std::uint32_t>(weight[e]));
    }
  }
  void add_name(std::string_view name) { names_.add(name); }
  std::string hex() const {
    Hash64 both = rows_;
    both.add(names_.value());
    return both.hex();
  }

 private:
  Hash64 rows_, names_;
};

inline std::string partition_hash(std::int64_t parts, std::span<const std::int32_t> assignment) {
  Hash64 hash;
  hash.add(static_cast<std::uint64_t>(parts));
  for (const std::int32_t part : assignment) hash.add(static_cast<std::uint64_t>(part));
  return hash.hex();
}

}  // namespace topomask
