// Graphs cut into parts, one for each of several machines, and the files that hold the parts.
//
// A part owns nodes and the rows of these nodes. Its halo is the set of nodes of other parts that its rows
// refer to. A shard is a part in a file: rows, halo, and which part needs which of its nodes. An exchange of
// one value per node needs nothing else. See docs/howto/several-machines.md.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "topomask/graph.h"
#include "topomask/read_options.h"
#include "topomask/shard_index.h"

namespace topomask {

struct PartitionOptions {
  std::int64_t parts = 2;  // 1 to 4096; may be more than there are nodes: some parts are empty then
  PartitionMethod method = PartitionMethod::metis;
  std::uint64_t seed = 0;   // of METIS; the others draw nothing
  double imbalance = 0.03;  // METIS and Fennel let a part have this much more than the mean work
  at::Tensor points = {};   // [N, D], D <= 3, for morton; or undefined
};

struct Partition {
  std::int64_t parts = 1;
  at::Tensor assignment;  // [N] int32 on the CPU: the part of each node
  PartitionMethod method = PartitionMethod::metis;
  std::uint64_t seed = 0;
};

// The work of a node is the number of entries of its row plus one: parts have equal work, not equally many
// nodes. The same graph, options and seed give the same partition on any number of threads.
Partition partition_graph(const Graph& graph, const PartitionOptions& options);

struct PartitionSummary {
  std::int64_t nodes = 0, entries = 0;
  bool directed = false;
  std::int64_t edges = 0;      // each undirected edge once
  std::int64_t cut_edges = 0;  // with ends in two parts
  double cut_share = 0;        // of all edges
  double balance = 1;          // the largest work of a part over the mean
  std::int64_t halo_total = 0, halo_max = 0;
  std::int64_t exchange_bytes = 0;  // of all parts together, for one float32 per node
  std::vector<PartSummary> parts;
};
PartitionSummary summarise(const Graph& graph, const Partition& partition);

// Stages of long work: what is being done, how much is done, of how much.
using PartitionProgress = std::function<void(std::string_view stage, std::int64_t done, std::int64_t total)>;

// Writes FOLDER/part-0000.safetensors, part-0001.safetensors, ... and, when all are on the disk, index.json.
// The folder is made where it is missing; one that holds a partition is left alone with an error. `names`:
// [N] or empty. The same arguments give the same bytes.
PartitionSummary write_shards(const std::string& folder, const Graph& graph, const Partition& partition,
                              const std::vector<std::string>& names = {},
                              const PartitionProgress& progress = {});

// Throws where write_shards would because of what the folder holds: to ask before long work.
void check_shard_folder(const std::string& folder);

// Partitions a text table of edges (.txt .tsv .csv .edges, also .gz .xz) by the method `stream` and writes
// its shards, as partition_graph and write_shards would, but in memory that grows with the nodes (about 40
// bytes each), the halos and the largest shard, never with all edges. The file is read twice. Temporary files
// in the folder take 20 bytes per edge and direction.
struct StreamOptions {
  GraphPolicy policy;  // `isolated` and `components` must be keep: they need the whole graph
  ReadOptions read;
  std::int64_t buffer_bytes = 128LL << 20;  // of edges sorted at once; does not change the result
};
PartitionSummary partition_edge_file(const std::string& folder, const std::string& path,
                                     const PartitionOptions& options, const StreamOptions& streaming = {},
                                     const PartitionProgress& progress = {});
// Whether partition_edge_file reads such a file, by its extension.
bool can_stream(const std::string& path);

// One part. Local numbers: own nodes are 0 .. n-1, then come the h nodes of the halo.
struct Shard {
  std::int64_t part = 0, parts = 1;
  std::int64_t total_nodes = 0;  // of the whole graph
  std::int64_t first = 0;        // after renumbering, own nodes are first .. first + n - 1 of the whole graph
  bool directed = false;
  at::Tensor nodes;       // [n] int64, ascending: the original number of own nodes
  at::Tensor row_ptr;     // [n+1] int64
  at::Tensor col;         // [e] int32, local; in the order of the original row, hence not ascending
  at::Tensor weight;      // [e] float32
  at::Tensor halo;        // [h] int64: original numbers, by owner, then ascending
  at::Tensor halo_owner;  // [h] int32
  at::Tensor halo_ptr;    // [parts+1] int64: where the nodes of each owner begin in `halo`
  at::Tensor send_ptr;    // [parts+1] int64
  at::Tensor send;  // [s] int32: local numbers of own nodes that each part needs, in the order of its halo
  std::vector<std::string> names;  // [n] of own nodes, or empty
};

// Each checks what it reads: a missing, truncated or foreign file is one sentence. The index is read by
// shard_index.h.
Shard read_shard(const std::string& folder, std::int64_t part);

// The graph as it was before it was cut: the same order of nodes, entries, weights and names, bit for bit.
struct ShardedGraph {
  Graph graph;
  std::vector<std::string> names;  // [N] or empty
  Partition partition;
};
ShardedGraph read_shards(const std::string& folder);

}  // namespace topomask
