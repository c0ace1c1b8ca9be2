// What partition.cpp and shard_writer.cpp share: the rows of parts, from memory or from files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "graph/cpu/shard_rows.h"
#include "graph/shard_files.h"
#include "topomask/csr.h"
#include "topomask/partition.h"

namespace topomask {

// The rows of one part at a time, in the order of its nodes; columns are nodes of the whole graph.
class PartRows {
 public:
  PartRows() = default;
  virtual ~PartRows() = default;
  PartRows(const PartRows&) = delete;
  PartRows& operator=(const PartRows&) = delete;

  virtual std::vector<std::int64_t> row_ptr(std::int64_t part) = 0;
  virtual std::vector<std::int32_t> columns(std::int64_t part) = 0;
  virtual std::vector<float> weights(std::int64_t part) = 0;
};

void check_partition_options(const PartitionOptions& options);
ShardNumbering numbering_of(const Partition& partition, std::int64_t num_nodes);
std::unique_ptr<PartRows> rows_in_memory(const CsrView& graph, const ShardNumbering& numbering);

struct SurveyedParts {
  PartitionSummary summary;
  std::vector<std::vector<std::int32_t>> halo;  // of each part: nodes of others, by owner, then ascending
};
// `progress` gets the number of parts that are done.
SurveyedParts survey_parts(PartRows& rows, ShardNumbering& numbering, bool directed,
                           const std::function<void(std::int64_t parts)>& progress = {});

}  // namespace topomask
