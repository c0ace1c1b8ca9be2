#include "topomask/shard_index.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "graph/shard_files.h"
#include "io/files.h"

namespace topomask {
namespace {

using nlohmann::json;

// Members of index.json, or one sentence that says which is missing or wrong.
class IndexReader {
 public:
  IndexReader(const json& object, const std::string& path) : object_(object), path_(path) {}

  std::int64_t count(const char* key, std::int64_t least = 0) const {
    const json& value = member(key);
    check(value.is_number_integer() && value >= least, "{}: expected a whole number from {} as '{}', got {}",
          path_, least, key, value.dump());
    return value.get<std::int64_t>();
  }
  std::uint64_t seed(const char* key) const {
    const json& value = member(key);
    check(value.is_number_unsigned(), "{}: expected a whole number from 0 as '{}', got {}", path_, key,
          value.dump());
    return value.get<std::uint64_t>();
  }
  bool flag(const char* key) const {
    const json& value = member(key);
    check(value.is_boolean(), "{}: expected true or false as '{}', got {}", path_, key, value.dump());
    return value.get<bool>();
  }
  std::string text(const char* key) const {
    const json& value = member(key);
    check(value.is_string(), "{}: expected text as '{}', got {}", path_, key, value.dump());
    return value.get<std::string>();
  }
  const json& list(const char* key, std::int64_t size) const {
    const json& value = member(key);
    check(value.is_array() && static_cast<std::int64_t>(value.size()) == size,
          "{}: expected a list of {} as '{}'", path_, size, key);
    return value;
  }

 private:
  const json& member(const char* key) const {
    check(object_.is_object() && object_.contains(key), "{}: '{}' is missing", path_, key);
    return object_[key];
  }

  const json& object_;
  const std::string& path_;
};

}  // namespace

ShardIndex read_shard_index(const std::string& folder) {
  const std::string path = inside(folder, std::string(kShardIndexFile));
  std::error_code ignored;
  check(std::filesystem::exists(path, ignored),
        "{}: holds no finished partition ({} is missing); 'topomask partition' makes one", folder,
        kShardIndexFile);
  return parse_shard_index(read_file(path), path);
}

ShardIndex parse_shard_index(std::string_view text, const std::string& path) {
  const json content = json::parse(text, nullptr, /*allow_exceptions=*/false);
  check(content.is_object() && content.contains("format") && content["format"].is_string() &&
            content["format"].get<std::string>() == kShardIndexFormat,
        "{}: not the index of a partition", path);
  const IndexReader reader(content, path);
  check(reader.count("version") == kShardVersion, "{}: expected version {}, got {}", path, kShardVersion,
        reader.count("version"));
  ShardIndex index;
  index.parts = reader.count("parts", 1);
  check(index.parts <= kMostParts, "{}: expected at most {} parts, got {}", path, kMostParts, index.parts);
  index.nodes = reader.count("nodes");
  index.entries = reader.count("entries");
  index.directed = reader.flag("directed");
  index.named = reader.flag("named");
  index.out_degree = reader.count("out_degree", -1);
  index.method = parse_word<PartitionMethod>("method", reader.text("method"));
  index.seed = reader.seed("seed");
  index.graph_hash = reader.text("graph_hash");
  index.partition_hash = reader.text("partition_hash");
  std::int64_t nodes = 0, entries = 0;
  for (const json& shard : reader.list("shards", index.parts)) {
    const IndexReader one(shard, path);
    index.shards.push_back({one.count("nodes"), one.count("entries"), one.count("halo"), one.count("sends")});
    index.files.push_back(one.text("file"));
    check(index.files.back() == shard_file(static_cast<std::int64_t>(index.files.size()) - 1),
          "{}: expected the file '{}', got '{}'", path,
          shard_file(static_cast<std::int64_t>(index.files.size()) - 1), index.files.back());
    // No sum can overflow: none is above a total that was read before.
    check(index.shards.back().nodes <= index.nodes - nodes &&
              index.shards.back().entries <= index.entries - entries,
          "{}: the shards have more than {} nodes or {} entries", path, index.nodes, index.entries);
    nodes += index.shards.back().nodes;
    entries += index.shards.back().entries;
  }
  check(nodes == index.nodes && entries == index.entries,
        "{}: expected shards of {} nodes and {} entries, got {} and {}", path, index.nodes, index.entries,
        nodes, entries);
  return index;
}

template <>
std::span<const Word<PartitionMethod>> words<PartitionMethod>() {
  static constexpr Word<PartitionMethod> kWords[] = {
      {PartitionMethod::morton, "morton", "consecutive pieces of the Morton order of points or cells; fast"},
      {PartitionMethod::metis, "metis", "METIS; few cut edges"},
      {PartitionMethod::stream, "stream", "Fennel in a few passes; for files larger than memory"},
  };
  return kWords;
}

}  // namespace topomask
