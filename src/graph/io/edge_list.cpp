// Edge lists as text tables: `source target [weight]`, or `edge_id source target weight` where the edge ids
// are 0, 1, 2, ... The policies on headers and node ids stand in graph_io.h.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/check.h"
#include "graph/io/edge_rows.h"
#include "graph/io/matrix_entries.h"
#include "graph/io/word_index.h"
#include "io/text.h"
#include "topomask/graph_io.h"

namespace topomask {

namespace {

// The rows of a text in memory, without comments and empty lines.
class Table : public EdgeRows {
 public:
  Table(std::string_view content, const std::string& name) : EdgeRows(name), lines_(content) {}

  // Reads the next row; false at the end.
  bool next() {
    std::string_view line;
    while (lines_.next(line)) {
      if (take(line, lines_.line_number())) return true;
    }
    return false;
  }

 private:
  LineReader lines_;
};

struct IntegerTable {
  std::vector<std::int64_t> source, target;
  std::vector<float> weight;
  std::int64_t declared = 0;
};

// Reads the table if all node ids are integers; nothing if one of them is not.
std::optional<IntegerTable> read_integers(std::string_view content, const std::string& name) {
  IntegerTable result;
  Table table(content, name);
  for (bool first = true; table.next(); first = false) {
    const bool integer_source = is_integer(table.source()), integer_target = is_integer(table.target());
    if (first && !integer_source && !integer_target) continue;  // a header, if integers follow
    if (!integer_source || !integer_target) return std::nullopt;
    table.accept();
    result.source.push_back(table.parse_id(table.source()));
    result.target.push_back(table.parse_id(table.target()));
    if (!table.weight().empty()) {
      result.weight.push_back(parse_weight(table.weight(), name, table.line_number()));
    }
  }
  result.declared = table.declared();
  return result.source.empty() ? std::nullopt : std::optional(std::move(result));
}

// The distinct ids in ascending order, and per id its place among them.
struct Ranks {
  std::vector<std::int64_t> distinct;
  std::vector<std::int32_t> source, target;
};

// For ids that are few or dense: one pass over a table of all possible ids.
Ranks rank_by_table(const IntegerTable& table, std::int64_t largest) {
  Ranks ranks;
  std::vector<std::int32_t> rank(static_cast<std::size_t>(largest) + 1);
  for (const std::int64_t id : table.source) rank[static_cast<std::size_t>(id)] = 1;
  for (const std::int64_t id : table.target) rank[static_cast<std::size_t>(id)] = 1;
  for (std::int64_t id = 0; id <= largest; ++id) {
    std::int32_t& place = rank[static_cast<std::size_t>(id)];
    if (place == 0) continue;
    place = static_cast<std::int32_t>(ranks.distinct.size());
    ranks.distinct.push_back(id);
  }
  ranks.source.reserve(table.source.size());
  ranks.target.reserve(table.target.size());
  for (const std::int64_t id : table.source) ranks.source.push_back(rank[static_cast<std::size_t>(id)]);
  for (const std::int64_t id : table.target) ranks.target.push_back(rank[static_cast<std::size_t>(id)]);
  return ranks;
}

// For ids far apart.
Ranks rank_by_hashing(const IntegerTable& table, const std::string& name) {
  Ranks ranks;
  std::unordered_map<std::int64_t, std::int32_t> first_seen;  // id -> number in order of appearance
  const auto number_of = [&](std::int64_t id) {
    const auto [place, added] = first_seen.try_emplace(id, static_cast<std::int32_t>(ranks.distinct.size()));
    if (added) {
      check(static_cast<std::int64_t>(ranks.distinct.size()) < kMaxNodes,
            "{}: expected at most {} nodes, got more", name, kMaxNodes);
      ranks.distinct.push_back(id);
    }
    return place->second;
  };
  ranks.source.reserve(table.source.size());
  ranks.target.reserve(table.target.size());
  for (const std::int64_t id : table.source) ranks.source.push_back(number_of(id));
  for (const std::int64_t id : table.target) ranks.target.push_back(number_of(id));
  std::vector<std::int32_t> rank(ranks.distinct.size());
  std::sort(ranks.distinct.begin(), ranks.distinct.end());
  for (std::size_t k = 0; k < rank.size(); ++k) {
    rank[static_cast<std::size_t>(first_seen.at(ranks.distinct[k]))] = static_cast<std::int32_t>(k);
  }
  for (std::int32_t& node : ranks.source) node = rank[static_cast<std::size_t>(node)];
  for (std::int32_t& node : ranks.target) node = rank[static_cast<std::size_t>(node)];
  return ranks;
}

EdgeList number_integers(IntegerTable table, const std::string& name) {
  EdgeList edges;
  const std::int64_t largest = std::max(*std::max_element(table.source.begin(), table.source.end()),
                                        *std::max_element(table.target.begin(), table.target.end()));
  const auto count = static_cast<std::int64_t>(table.source.size());
  edges.weight = std::move(table.weight);
  if (table.declared > largest && plausible_node_count(table.declared, count)) {
    edges.num_nodes = table.declared;
    edges.source.assign(table.source.begin(), table.source.end());
    edges.target.assign(table.target.begin(), table.target.end());
    return edges;
  }
  constexpr std::int64_t kTablePerEdge = 8;  // a table of 32 bytes per edge at most, whatever the ids are
  Ranks ranks = largest < kTablePerEdge * count && largest < kMaxNodes ? rank_by_table(table, largest)
                                                                       : rank_by_hashing(table, name);
  edges.num_nodes = static_cast<std::int64_t>(ranks.distinct.size());
  edges.source = std::move(ranks.source);
  edges.target = std::move(ranks.target);
  if (edges.num_nodes - 1 == largest) return edges;  // exactly 0..N-1: each id is its own rank, and its name
  edges.names.reserve(ranks.distinct.size());
  for (const std::int64_t id : ranks.distinct) edges.names.push_back(fmt::format_int(id).str());
  return edges;
}

EdgeList read_words(std::string_view content, const std::string& name) {
  EdgeList edges;
  WordIndex index;
  Table table(content, name);
  for (bool first = true; table.next(); first = false) {
    if (first && table.is_word_header()) continue;
    table.accept();
    check(static_cast<std::int64_t>(index.words().size()) <= kMaxNodes - 2,
          "{}, line {}: expected at most {} nodes, got more", name, table.line_number(), kMaxNodes);
    edges.source.push_back(index.number_of(table.source()));
    edges.target.push_back(index.number_of(table.target()));
    if (!table.weight().empty())
      edges.weight.push_back(parse_weight(table.weight(), name, table.line_number()));
  }
  edges.names.assign(index.words().begin(), index.words().end());
  edges.num_nodes = static_cast<std::int64_t>(edges.names.size());
  return edges;
}

}  // namespace

EdgeList read_edge_list(std::string_view content, const std::string& name) {
  check_text(content, name);
  content = without_byte_order_mark(content);
  std::optional<IntegerTable> table = read_integers(content, name);
  EdgeList edges = table ? number_integers(std::move(*table), name) : read_words(content, name);
  check(!edges.source.empty(), "{}: expected at least one edge, got none", name);
  return edges;
}

}  // namespace topomask
