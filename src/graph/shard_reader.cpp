#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "core/check.h"
#include "core/interruption.h"
#include "graph/cpu/limits.h"
#include "graph/part_rows.h"
#include "graph/shard_files.h"
#include "graph/tensors.h"
#include "io/files.h"
#include "topomask/partition.h"
#include "topomask/safetensors.h"

namespace topomask {
namespace {

// The tensors of one shard, each checked for its type and shape.
class ShardTensors {
 public:
  ShardTensors(SafetensorsFile file, const std::string& path) : file_(std::move(file)), path_(path) {}

  at::Tensor take(const char* name, at::ScalarType type, std::int64_t size) {
    const auto found = file_.tensors.find(name);
    check(found != file_.tensors.end(), "{}: not a shard, tensor '{}' is missing", path_, name);
    const at::Tensor& tensor = found->second;
    check(tensor.scalar_type() == type && tensor.dim() == 1 && (size < 0 || tensor.size(0) == size),
          "{}: expected tensor '{}' to be {} [{}], got {}", path_, name, c10::toString(type),
          size < 0 ? "n" : std::to_string(size), describe(tensor));
    return tensor;
  }
  std::string metadata(const char* key) const {
    const auto found = file_.metadata.find(key);
    return found == file_.metadata.end() ? "" : found->second;
  }

  // Values from `least` to below `end`.
  template <class Value>
  void check_range(const char* name, const at::Tensor& tensor, std::int64_t end) const {
    const Value* value = tensor.const_data_ptr<Value>();
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      check(value[i] >= 0 && value[i] < end, "{}: '{}' holds {} at {}, expected numbers from 0 to {}", path_,
            name, value[i], i, end - 1);
    }
  }
  // From 0 to `total` without a step down.
  void check_ptr(const char* name, const at::Tensor& tensor, std::int64_t total) const {
    const std::int64_t* value = tensor.const_data_ptr<std::int64_t>();
    const std::int64_t size = tensor.numel();
    check(size > 0 && value[0] == 0 && value[size - 1] == total && std::is_sorted(value, value + size),
          "{}: '{}' must ascend from 0 to {}", path_, name, total);
  }

 private:
  SafetensorsFile file_;
  const std::string& path_;
};

void read_names(Shard& shard, ShardTensors& tensors, std::int64_t count) {
  const at::Tensor begin = tensors.take("name_ptr", at::kLong, count + 1),
                   text = tensors.take("names", at::kByte, -1);
  tensors.check_ptr("name_ptr", begin, text.numel());
  const std::int64_t* first = begin.const_data_ptr<std::int64_t>();
  const char* letters = reinterpret_cast<const char*>(text.const_data_ptr<std::uint8_t>());
  for (std::int64_t i = 0; i < count; ++i)
    shard.names.emplace_back(letters + first[i], letters + first[i + 1]);
}

Shard read_one(const std::string& folder, const ShardIndex& index, std::int64_t part) {
  const auto p = static_cast<std::size_t>(part);
  const std::string path = inside(folder, index.files[p]);
  const PartSummary& expected = index.shards[p];
  ShardTensors tensors(read_safetensors(path), path);
  check(tensors.metadata("format") == kShardFormat, "{}: not a shard of 'topomask partition'", path);
  check(tensors.metadata("graph_hash") == index.graph_hash &&
            tensors.metadata("partition_hash") == index.partition_hash &&
            tensors.metadata("part") == std::to_string(part),
        "{}: belongs to another partition than {} beside it, or is another of its parts", path,
        kShardIndexFile);
  Shard shard;
  shard.part = part;
  shard.parts = index.parts;
  shard.total_nodes = index.nodes;
  for (std::size_t before = 0; before < p; ++before) shard.first += index.shards[before].nodes;
  shard.directed = index.directed;
  shard.nodes = tensors.take("nodes", at::kLong, expected.nodes);
  shard.row_ptr = tensors.take("row_ptr", at::kLong, expected.nodes + 1);
  shard.col = tensors.take("col", at::kInt, expected.entries);
  shard.weight = tensors.take("weight", at::kFloat, expected.entries);
  shard.halo = tensors.take("halo", at::kLong, expected.halo);
  shard.halo_owner = tensors.take("halo_owner", at::kInt, expected.halo);
  shard.halo_ptr = tensors.take("halo_ptr", at::kLong, index.parts + 1);
  shard.send_ptr = tensors.take("send_ptr", at::kLong, index.parts + 1);
  shard.send = tensors.take("send", at::kInt, expected.sends);
  tensors.check_range<std::int64_t>("nodes", shard.nodes, index.nodes);
  tensors.check_ptr("row_ptr", shard.row_ptr, expected.entries);
  tensors.check_range<std::int32_t>("col", shard.col, expected.nodes + expected.halo);
  tensors.check_range<std::int64_t>("halo", shard.halo, index.nodes);
  tensors.check_range<std::int32_t>("halo_owner", shard.halo_owner, index.parts);
  tensors.check_ptr("halo_ptr", shard.halo_ptr, expected.halo);
  tensors.check_ptr("send_ptr", shard.send_ptr, expected.sends);
  tensors.check_range<std::int32_t>("send", shard.send, expected.nodes);
  const float* weight = shard.weight.const_data_ptr<float>();
  check(std::all_of(weight, weight + expected.entries, [](float w) { return std::isfinite(w); }),
        "{}: 'weight' holds a number that is not finite", path);
  if (index.named) read_names(shard, tensors, expected.nodes);
  return shard;
}

// Own nodes and the halo: local number -> original number.
std::vector<std::int32_t> originals(const Shard& shard) {
  std::vector<std::int32_t> nodes;
  for (const at::Tensor& list : {shard.nodes, shard.halo}) {
    const std::int64_t* node = list.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < list.numel(); ++i) nodes.push_back(static_cast<std::int32_t>(node[i]));
  }
  return nodes;
}

}  // namespace

Shard read_shard(const std::string& folder, std::int64_t part) {
  const ShardIndex index = read_shard_index(folder);
  check(part >= 0 && part < index.parts, "read_shard: part must be from 0 to {}, got {}", index.parts - 1,
        part);
  return read_one(folder, index, part);
}

ShardedGraph read_shards(const std::string& folder) {
  const ShardIndex index = read_shard_index(folder);
  check_num_nodes("read_shards", index.nodes);
  check_num_entries("read_shards", static_cast<double>(index.entries));
  const auto count = static_cast<std::size_t>(index.nodes);
  ShardedGraph result;
  std::vector<std::int32_t> assignment(count, -1);
  CsrArrays rows;
  rows.row_ptr.assign(count + 1, 0);
  if (index.named) result.names.resize(count);
  // Twice, so that no more than one shard is held besides the graph.
  for (std::int64_t p = 0; p < index.parts; ++p) {
    poll_interruption();
    Shard shard = read_one(folder, index, p);
    const std::int64_t* begin = shard.row_ptr.const_data_ptr<std::int64_t>();
    const std::int64_t* node = shard.nodes.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < shard.nodes.numel(); ++i) {
      check(assignment[node[i]] < 0, "{}: node {} is in part {} and in part {}", folder, node[i],
            assignment[node[i]], p);
      assignment[node[i]] = static_cast<std::int32_t>(p);
      rows.row_ptr[node[i] + 1] = begin[i + 1] - begin[i];
      if (index.named) result.names[node[i]] = std::move(shard.names[i]);
    }
  }
  for (std::size_t i = 0; i < count; ++i) rows.row_ptr[i + 1] += rows.row_ptr[i];
  rows.col.resize(static_cast<std::size_t>(index.entries));
  rows.weight.resize(rows.col.size());
  for (std::int64_t p = 0; p < index.parts; ++p) {
    poll_interruption();
    const Shard shard = read_one(folder, index, p);
    const std::vector<std::int32_t> original = originals(shard);
    const std::int64_t* begin = shard.row_ptr.const_data_ptr<std::int64_t>();
    const std::int32_t* col = shard.col.const_data_ptr<std::int32_t>();
    const float* weight = shard.weight.const_data_ptr<float>();
    for (std::int64_t i = 0; i < shard.nodes.numel(); ++i) {
      std::int64_t out = rows.row_ptr[original[i]];
      // Only a file that changed in between can have another length now.
      check(rows.row_ptr[original[i] + 1] - out == begin[i + 1] - begin[i], "{}: changed while it was read",
            folder);
      for (std::int64_t e = begin[i]; e < begin[i + 1]; ++e, ++out) {
        rows.col[out] = original[col[e]];
        rows.weight[out] = weight[e];
      }
    }
  }
  GraphHash hash(index.nodes, index.directed);
  for (std::size_t i = 0; i < count; ++i) {
    const auto first = static_cast<std::size_t>(rows.row_ptr[i]),
               degree = static_cast<std::size_t>(rows.row_ptr[i + 1]) - first;
    hash.add_row({rows.col.data() + first, degree}, {rows.weight.data() + first, degree});
  }
  for (const std::string& name : result.names) hash.add_name(name);
  check(hash.hex() == index.graph_hash && partition_hash(index.parts, assignment) == index.partition_hash,
        "{}: the shards do not make up the graph that {} describes; partition it again", folder,
        kShardIndexFile);
  result.graph = Graph::from_csr(std::move(rows), index.directed);
  result.graph.out_degree = index.out_degree;
  result.partition = {index.parts, take_vector(std::move(assignment)), index.method, index.seed};
  return result;
}

}  // namespace topomask
