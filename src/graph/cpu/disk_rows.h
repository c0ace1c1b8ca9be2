// Rows of a graph that does not fit into memory: edges come in any order, rows are read back in the order of
// the nodes. Between the two they lie in files, sorted bucket by bucket.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/append_file.h"
#include "topomask/edge_list.h"

namespace topomask {

struct DiskRowOptions {
  std::string folder;                   // temporary files go here
  std::int64_t buffer_bytes = 1 << 27;  // of edges held at once; the rows do not depend on it
  bool directed = false;
  bool weighted = true;
  Duplicates duplicates = Duplicates::drop;
  SelfLoops self_loops = SelfLoops::keep;
};

class DiskRows {
 public:
  // `num_edges`: how many will be added, to choose the size of the buckets.
  DiskRows(std::int64_t num_nodes, std::int64_t num_edges, const DiskRowOptions& options);

  void add(std::int32_t source, std::int32_t target, float weight);
  // Sorts the rows and applies the policy, as build_rows does. `progress` gets the nodes that are done.
  void finish(const std::function<void(std::int64_t nodes)>& progress = {});

  struct Row {
    std::span<const std::int32_t> col;         // ascending
    std::span<const float> weight;             // like col
    std::span<const std::int32_t> neighbours;  // of either direction, ascending, without the node itself
  };
  // In the order of the nodes, after finish().
  void for_each_row(const std::function<void(std::int32_t node, const Row& row)>& visit) const;

  void remove_files();  // once the rows are needed no more; their numbers stay

  std::int64_t num_nodes() const { return static_cast<std::int64_t>(degree_.size()); }
  std::int64_t num_entries() const { return num_entries_; }
  std::int64_t num_neighbours() const { return num_neighbours_; }       // of all rows together
  const std::vector<std::uint32_t>& degree() const { return degree_; }  // [N] entries of each row

 private:
  // Records of the rows first .. end - 1 in the order in which they were added.
  struct Bucket {
    std::int64_t first, end;
    AppendFile file;
  };

  std::vector<Bucket> make_buckets(std::int64_t first, std::int64_t end, std::int64_t bytes);
  void put(std::vector<Bucket>& buckets, std::int32_t row, std::uint32_t col, float weight) const;
  void sort_bucket(Bucket bucket);
  void split_bucket(Bucket bucket);
  std::size_t record_bytes() const { return options_.weighted ? 12 : 8; }

  DiskRowOptions options_;
  std::vector<Bucket> buckets_;
  int files_made_ = 0;
  std::vector<std::uint32_t> degree_;
  std::vector<std::uint32_t> neighbours_;  // [N] of each row, for directed graphs
  std::int64_t num_entries_ = 0, num_neighbours_ = 0;
  AppendFile col_, weight_, neighbour_;
  std::function<void(std::int64_t)> progress_;
};

}  // namespace topomask
