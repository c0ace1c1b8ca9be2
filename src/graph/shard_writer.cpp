#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "core/interruption.h"
#include "graph/cpu/disk_rows.h"
#include "graph/cpu/limits.h"
#include "graph/cpu/partitions.h"
#include "graph/io/edge_stream.h"
#include "graph/part_rows.h"
#include "graph/shard_files.h"
#include "graph/tensors.h"
#include "io/append_file.h"
#include "io/files.h"
#include "io/folder_lock.h"
#include "topomask/partition.h"
#include "topomask/safetensors.h"

namespace topomask {
namespace {

namespace fs = std::filesystem;

// The folder that shards are written to: locked, without leftovers of a run that was killed. What was written
// is removed again unless it is kept.
class ShardFolder {
 public:
  explicit ShardFolder(const std::string& path) : path_(path), lock_(checked(path), FolderLock::Wait::no) {
    check(lock_.held(), "{}: another process is writing a partition there", path);
    check_shard_folder(path);  // again, as nobody else can write now
    remove_files();
  }
  ~ShardFolder() {
    if (!kept_) remove_files();
  }
  ShardFolder(const ShardFolder&) = delete;
  ShardFolder& operator=(const ShardFolder&) = delete;

  void keep() { kept_ = true; }
  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return inside(path_, std::string(name)); }

 private:
  static const std::string& checked(const std::string& path) {
    check_shard_folder(path);
    return path;
  }

  // part-0000...
  static bool is_part_name(std::string_view name) {
    constexpr std::string_view kPart = "part-";
    constexpr std::size_t kDigits = 4;
    if (!name.starts_with(kPart) || name.size() <= kPart.size() + kDigits) return false;
    const std::string_view number = name.substr(kPart.size(), kDigits);
    return std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
  }

  // Shards and temporary files of this run, or of one that was killed.
  void remove_files() const {
    std::error_code ignored;
    std::vector<fs::path> ours;
    for (const auto& entry : fs::directory_iterator(path_, ignored)) {
      const std::string name = entry.path().filename().string();
      const bool part = is_part_name(name);
      const bool known = part || name.starts_with("rows-") || name.starts_with("bucket-") ||
                         name.starts_with(kShardIndexFile);
      if ((part && name.ends_with(".safetensors")) || (known && name.ends_with(".tmp")))
        ours.push_back(entry.path());
    }
    for (const fs::path& path : ours) fs::remove(path, ignored);
  }

  std::string path_;
  FolderLock lock_;
  bool kept_ = false;
};

// What the files say about the graph besides its rows.
struct GraphFacts {
  bool directed = false;
  std::int64_t out_degree = -1;
  std::string hash;
  std::function<void(std::int32_t node, std::string& text)> append_name;  // empty: nodes have no names
};

at::Tensor wide_tensor(std::span<const std::int32_t> nodes) {
  return take_vector(std::vector<std::int64_t>(nodes.begin(), nodes.end()));
}

void add_names(std::map<std::string, at::Tensor>& tensors, std::span<const std::int32_t> nodes,
               const GraphFacts& facts) {
  if (!facts.append_name) return;
  std::string text;
  std::vector<std::int64_t> begin = {0};
  for (const std::int32_t node : nodes) {
    facts.append_name(node, text);
    begin.push_back(static_cast<std::int64_t>(text.size()));
  }
  tensors["name_ptr"] = take_vector(std::move(begin));
  tensors["names"] = take_vector(std::vector<std::uint8_t>(text.begin(), text.end()));
}

void write_index(const ShardFolder& folder, const PartitionSummary& summary, const GraphFacts& facts,
                 const std::string& assignment_hash, PartitionMethod method, std::uint64_t seed) {
  nlohmann::ordered_json shards = nlohmann::ordered_json::array();
  for (std::size_t p = 0; p < summary.parts.size(); ++p) {
    const PartSummary& part = summary.parts[p];
    shards.push_back({{"file", shard_file(static_cast<std::int64_t>(p))},
                      {"nodes", part.nodes},
                      {"entries", part.entries},
                      {"halo", part.halo},
                      {"sends", part.sends}});
  }
  const nlohmann::ordered_json index = {{"format", kShardIndexFormat},
                                        {"version", kShardVersion},
                                        {"parts", summary.parts.size()},
                                        {"nodes", summary.nodes},
                                        {"entries", summary.entries},
                                        {"directed", facts.directed},
                                        {"out_degree", facts.out_degree},
                                        {"named", static_cast<bool>(facts.append_name)},
                                        {"method", word_of(method)},
                                        {"seed", seed},
                                        {"graph_hash", facts.hash},
                                        {"partition_hash", assignment_hash},
                                        {"cut_edges", summary.cut_edges},
                                        {"balance", summary.balance},
                                        {"shards", shards}};
  write_file(folder.file(kShardIndexFile), index.dump(2) + "\n");
}

PartitionSummary write_parts(ShardFolder& folder, PartRows& rows, ShardNumbering& numbering,
                             const GraphFacts& facts, PartitionMethod method, std::uint64_t seed,
                             const PartitionProgress& progress) {
  const std::int64_t parts = numbering.parts();
  const auto report = [&](std::string_view stage) {
    return [&progress, stage, parts](std::int64_t done) {
      if (progress) progress(stage, done, parts);
    };
  };
  const SurveyedParts surveyed = survey_parts(rows, numbering, facts.directed, report("halos"));
  const std::string assignment_hash = partition_hash(parts, numbering.part());
  for (std::int64_t p = 0; p < parts; ++p) {
    poll_interruption();
    const std::vector<std::int32_t>& halo = surveyed.halo[static_cast<std::size_t>(p)];
    std::vector<std::int32_t> columns = rows.columns(p), owner(halo.size()), send;
    numbering.localise(p, halo, columns);
    std::transform(halo.begin(), halo.end(), owner.begin(),
                   [&](std::int32_t node) { return numbering.part()[node]; });
    std::vector<std::int64_t> send_ptr = {0};
    for (const std::vector<std::int32_t>& other : surveyed.halo) {
      numbering.append_owned(p, other, send);
      send_ptr.push_back(static_cast<std::int64_t>(send.size()));
    }
    SafetensorsFile file;
    file.tensors["nodes"] = wide_tensor(numbering.nodes(p));
    file.tensors["row_ptr"] = take_vector(rows.row_ptr(p));
    file.tensors["col"] = take_vector(std::move(columns));
    file.tensors["weight"] = take_vector(rows.weights(p));
    file.tensors["halo"] = wide_tensor(halo);
    file.tensors["halo_owner"] = take_vector(std::move(owner));
    file.tensors["halo_ptr"] = take_vector(numbering.halo_begin(halo));
    file.tensors["send"] = take_vector(std::move(send));
    file.tensors["send_ptr"] = take_vector(std::move(send_ptr));
    add_names(file.tensors, numbering.nodes(p), facts);
    file.metadata = {{"format", std::string(kShardFormat)},
                     {"version", std::to_string(kShardVersion)},
                     {"part", std::to_string(p)},
                     {"first", std::to_string(numbering.begin(p))},
                     {"graph_hash", facts.hash},
                     {"partition_hash", assignment_hash}};
    write_safetensors(folder.file(shard_file(p)), file);
    report("shards")(p + 1);
  }
  write_index(folder, surveyed.summary, facts, assignment_hash, method, seed);
  folder.keep();
  return surveyed.summary;
}

// The rows of parts in files of their own, filled in one pass over the rows of all.
class FileParts : public PartRows {
 public:
  FileParts(const DiskRows& all, const ShardNumbering& numbering, const std::string& folder)
      : all_(all), numbering_(numbering) {
    constexpr std::int64_t kBuffers = std::int64_t{64} << 20;  // of all files together
    const auto buffer =
        static_cast<std::size_t>(std::clamp<std::int64_t>(kBuffers / numbering.parts() / 2, 4096, 1 << 20));
    for (std::int64_t p = 0; p < numbering.parts(); ++p) {
      col_.emplace_back(inside(folder, fmt::format("part-{:04}-col.tmp", p)), buffer);
      weight_.emplace_back(inside(folder, fmt::format("part-{:04}-weight.tmp", p)), buffer);
    }
  }

  void add(std::int32_t node, const DiskRows::Row& row) {
    const auto part = static_cast<std::size_t>(numbering_.part()[node]);
    col_[part].add(row.col);
    weight_[part].add(row.weight);
  }

  std::vector<std::int64_t> row_ptr(std::int64_t part) override {
    std::vector<std::int64_t> begin = {0};
    for (const std::int32_t node : numbering_.nodes(part))
      begin.push_back(begin.back() + all_.degree()[node]);
    return begin;
  }
  std::vector<std::int32_t> columns(std::int64_t part) override {
    return col_[static_cast<std::size_t>(part)].read<std::int32_t>();
  }
  std::vector<float> weights(std::int64_t part) override {
    return weight_[static_cast<std::size_t>(part)].read<float>();
  }

 private:
  const DiskRows& all_;
  const ShardNumbering& numbering_;
  std::vector<AppendFile> col_, weight_;
};

// Rows of all nodes on the disk, from a file of edges.
void fill_rows(DiskRows& rows, const EdgeStream& edges, const PartitionProgress& progress) {
  std::int64_t added = 0;
  constexpr std::int64_t kEdgesPerPoll = 1 << 16;
  edges.for_each_edge([&](std::int32_t source, std::int32_t target, float weight) {
    if (added++ % kEdgesPerPoll == 0) poll_interruption();
    rows.add(source, target, weight);
  });
  rows.finish([&](std::int64_t nodes) {
    if (progress) progress("sorting", nodes, rows.num_nodes());
  });
}

std::vector<std::int32_t> stream_assignment(const DiskRows& rows, const PartitionOptions& options,
                                            const PartitionProgress& progress) {
  std::vector<std::int64_t> work(rows.degree().begin(), rows.degree().end());
  for (std::int64_t& entries : work) ++entries;
  FennelPartition parts(std::move(work), rows.num_neighbours(), options.parts, options.imbalance);
  for (int pass = 0; pass < FennelPartition::kPasses; ++pass) {
    rows.for_each_row(
        [&](std::int32_t node, const DiskRows::Row& row) { parts.place(node, row.neighbours); });
    if (progress) progress("assigning", pass + 1, FennelPartition::kPasses);
  }
  return parts.take();
}

}  // namespace

void check_shard_folder(const std::string& folder) {
  check(!folder.empty(), "partition: expected the path of a folder, got nothing");
  std::error_code ignored;
  check(!fs::exists(folder, ignored) || fs::is_directory(folder, ignored), "{}: is not a folder", folder);
  check(!fs::exists(inside(folder, std::string(kShardIndexFile)), ignored),
        "{}: holds a partition already; choose another folder, or remove that one first", folder);
}

PartitionSummary write_shards(const std::string& folder_path, const Graph& anywhere,
                              const Partition& partition, const std::vector<std::string>& names,
                              const PartitionProgress& progress) {
  const Graph graph = anywhere.to(at::kCPU);
  const CsrView view = graph.view();
  check(names.empty() || static_cast<std::int64_t>(names.size()) == view.num_nodes,
        "write_shards: expected a name for each of {} nodes or none, got {}", view.num_nodes, names.size());
  ShardNumbering numbering = numbering_of(partition, view.num_nodes);
  ShardFolder folder(folder_path);
  GraphHash hash(view.num_nodes, graph.directed);
  for (std::int64_t i = 0; i < view.num_nodes; ++i) {
    const auto degree = static_cast<std::size_t>(view.degree(i));
    hash.add_row({view.col + view.row_ptr[i], degree}, {view.weight + view.row_ptr[i], degree});
  }
  for (const std::string& name : names) hash.add_name(name);
  GraphFacts facts{graph.directed, graph.out_degree, hash.hex(), {}};
  if (!names.empty()) {
    facts.append_name = [&](std::int32_t node, std::string& text) {
      text += names[static_cast<std::size_t>(node)];
    };
  }
  return write_parts(folder, *rows_in_memory(view, numbering), numbering, facts, partition.method,
                     partition.seed, progress);
}

bool can_stream(const std::string& path) {
  return EdgeStream::can_read(path);
}

PartitionSummary partition_edge_file(const std::string& folder_path, const std::string& path,
                                     const PartitionOptions& options, const StreamOptions& streaming,
                                     const PartitionProgress& progress) {
  check_partition_options(options);
  check(options.method == PartitionMethod::stream,
        "partition: a file is read piece by piece by the method stream alone, got {}",
        word_of(options.method));
  check(can_stream(path),
        "partition: expected a text table of edges (.txt .tsv .csv .edges, also .gz .xz) to stream, got '{}'",
        path);
  check(streaming.policy.isolated == Isolated::keep && streaming.policy.components == Components::keep,
        "partition: dropping isolated nodes or components needs the whole graph in memory; keep them, or use "
        "metis or morton");
  check(streaming.buffer_bytes >= 1, "partition: buffer must be at least 1 byte, got {}",
        streaming.buffer_bytes);
  std::error_code ignored;
  const auto size = static_cast<std::int64_t>(fs::is_regular_file(path, ignored) ? fs::file_size(path) : 0);
  std::string_view stage = "counting";
  EdgeStreamOptions reading;
  reading.read = streaming.read;
  reading.buffer_bytes = static_cast<std::size_t>(std::min<std::int64_t>(streaming.buffer_bytes, 1 << 20));
  reading.progress = [&](std::int64_t bytes) {
    poll_interruption();
    if (progress) progress(stage, bytes, size);
  };
  ShardFolder folder(folder_path);
  const EdgeStream edges(path, reading);
  stage = "reading";
  check_memory("partition", 40 * static_cast<double>(edges.num_nodes()));
  DiskRowOptions on_disk;
  on_disk.folder = folder.path();
  on_disk.buffer_bytes = streaming.buffer_bytes;
  on_disk.directed = streaming.policy.direction == Direction::directed;
  on_disk.weighted = edges.weighted();
  on_disk.duplicates = streaming.policy.duplicates;
  on_disk.self_loops = streaming.policy.self_loops;
  DiskRows rows(edges.num_nodes(), edges.num_edges(), on_disk);
  fill_rows(rows, edges, progress);

  ShardNumbering numbering(stream_assignment(rows, options, progress), options.parts);
  FileParts parts(rows, numbering, folder.path());
  GraphHash hash(rows.num_nodes(), on_disk.directed);
  std::string name;
  rows.for_each_row([&](std::int32_t node, const DiskRows::Row& row) {
    parts.add(node, row);
    hash.add_row(row.col, row.weight);
  });
  rows.remove_files();
  GraphFacts facts{on_disk.directed, -1, {}, {}};
  if (edges.has_names()) {
    facts.append_name = [&](std::int32_t node, std::string& text) { edges.append_name(node, text); };
    for (std::int64_t node = 0; node < edges.num_nodes(); ++node) {
      name.clear();
      edges.append_name(static_cast<std::int32_t>(node), name);
      hash.add_name(name);
    }
  }
  facts.hash = hash.hex();
  return write_parts(folder, parts, numbering, facts, options.method, options.seed, progress);
}

}  // namespace topomask
