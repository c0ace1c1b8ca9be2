// The index file of a partition (partition.h): its parts and their sizes. Does not include torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topomask/words.h"

namespace topomask {

enum class PartitionMethod {
  // contiguous runs of the Morton order of points, or of the reverse Cuthill-McKee order without points
  morton,
  // METIS, on the graph with edges of either direction
  metis,
  // Fennel: from contiguous runs of nodes, five passes over the nodes in their order
  stream,
};

struct PartSummary {
  std::int64_t nodes = 0, entries = 0;
  std::int64_t halo = 0;   // nodes of other parts that its rows refer to
  std::int64_t sends = 0;  // its nodes that others need, once for each of them
};

// What index.json says.
struct ShardIndex {
  std::int64_t parts = 0, nodes = 0, entries = 0;
  bool directed = false, named = false;
  std::int64_t out_degree = -1;  // of the graph, as in graph.h
  PartitionMethod method = PartitionMethod::metis;
  std::uint64_t seed = 0;
  std::string graph_hash, partition_hash;  // 16 hexadecimal digits; against mix-ups, not against forgery
  std::vector<PartSummary> shards;
  std::vector<std::string> files;  // names inside the folder
};

// Each checks what it reads: a missing, truncated or foreign file is one sentence.
ShardIndex read_shard_index(const std::string& folder);
// The same of the file's content. `path` is for errors.
ShardIndex parse_shard_index(std::string_view content, const std::string& path);

template <>
std::span<const Word<PartitionMethod>> words<PartitionMethod>();

}  // namespace topomask
