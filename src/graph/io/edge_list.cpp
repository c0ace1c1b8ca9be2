// Edge lists as text tables: `source target [weight]`, or `edge_id source target weight` where the edge ids
// are 0, 1, 2, ... The policies on headers and node ids stand in graph_io.h.
#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "core/check.h"
#include "graph/io/matrix_entries.h"
#include "graph/io/word_index.h"
#include "io/text.h"
#include "topomask/graph_io.h"

namespace topomask {

namespace {

// The number after "Nodes:" in a comment such as "# Nodes: 36692 Edges: 367662", or 0.
std::int64_t declared_nodes(std::string_view comment) {
  const std::size_t found = lower_case(comment).find("nodes:");
  if (found == std::string::npos) return 0;
  WordReader words(comment.substr(found + std::string_view("nodes:").size()));
  std::string_view word;
  return words.next(word) ? parse_integer(word).value_or(0) : 0;
}

// The rows of the table: skips comments and empty lines, finds separator and columns.
class Table {
 public:
  Table(std::string_view content, const std::string& name) : lines_(content), name_(name) {}

  // Reads the next row; false at the end. It may be a header: only accept() makes it an edge.
  bool next() {
    std::string_view line;
    do {
      if (!lines_.next(line)) return false;
      // Comments above the first row may tell the number of nodes.
      if (separator_ == '\0' && is_comment(line)) declared_ = std::max(declared_, declared_nodes(line));
    } while (line.empty() || is_comment(line));
    if (separator_ == '\0') separator_ = separator_of(line);
    const bool split = split_fields(line, separator_, fields_);
    check(split && std::none_of(fields_.begin(), fields_.end(), [](std::string_view f) { return f.empty(); }),
          "{}, line {}: expected fields that are not empty, got {}", name_, line_number(), quoted(line));
    check(fields_.size() >= 2 && fields_.size() <= 4,
          "{}, line {}: expected 2 columns (source, target), 3 (weight) or 4 (edge id first), got {} in {}",
          name_, line_number(), fields_.size(), quoted(line));
    return true;
  }

  // Settles that the row last read is an edge: the same number of columns as before, edge ids in sequence.
  void accept() {
    if (columns_ == 0) columns_ = fields_.size();
    check(fields_.size() == columns_, "{}, line {}: expected {} columns as before, got {}", name_,
          line_number(), columns_, fields_.size());
    if (columns_ == 4) {
      check(parse_integer(fields_[0]) == accepted_,
            "{}, line {}: expected the edge id {} in the first of 4 columns, got {}", name_, line_number(),
            accepted_, quoted(fields_[0]));
    }
    ++accepted_;
  }

  std::string_view source() const { return fields_[fields_.size() == 4 ? 1 : 0]; }
  std::string_view target() const { return fields_[fields_.size() == 4 ? 2 : 1]; }
  // "" if there is no such column.
  std::string_view weight() const { return fields_.size() > 2 ? fields_.back() : std::string_view(); }
  std::size_t line_number() const { return lines_.line_number(); }
  std::int64_t declared() const { return declared_; }

 private:
  LineReader lines_;
  const std::string& name_;
  std::vector<std::string_view> fields_;
  char separator_ = '\0';
  std::size_t columns_ = 0;
  std::int64_t accepted_ = 0;
  std::int64_t declared_ = 0;
};

struct IntegerTable {
  std::vector<std::int64_t> source, target;
  std::vector<float> weight;
  std::int64_t declared = 0;
};

// A non-negative node id.
std::int64_t parse_id(std::string_view word, const std::string& name, std::size_t line_number) {
  const std::optional<std::int64_t> id = parse_integer(word);
  check(id && *id >= 0, "{}, line {}: expected node ids from 0 to 2^63-1, got {}", name, line_number,
        quoted(word));
  return *id;
}

// Reads the table if all node ids are integers; nothing if one of them is not.
std::optional<IntegerTable> read_integers(std::string_view content, const std::string& name) {
  IntegerTable result;
  Table table(content, name);
  for (bool first = true; table.next(); first = false) {
    const bool integer_source = is_integer(table.source()), integer_target = is_integer(table.target());
    if (first && !integer_source && !integer_target) continue;  // a header, if integers follow
    if (!integer_source || !integer_target) return std::nullopt;
    table.accept();
    result.source.push_back(parse_id(table.source(), name, table.line_number()));
    result.target.push_back(parse_id(table.target(), name, table.line_number()));
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
  std::unordered_map<std::int64_t, std::int32_t>
      first_seen;  // id -> number in order of appearance, ranked below
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

// Whether a first row of words is a header although the node ids are words too: its weight is no number, or
// it is one of the pairs that such files are known to begin with.
bool is_word_header(const Table& table) {
  if (!table.weight().empty() && !parse_number(table.weight())) return true;
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kKnown{{{"source", "target"},
                                                                                 {"src", "dst"},
                                                                                 {"from", "to"},
                                                                                 {"node_1", "node_2"},
                                                                                 {"node1", "node2"},
                                                                                 {"id_1", "id_2"},
                                                                                 {"id1", "id2"}}};
  const std::string source = lower_case(table.source()), target = lower_case(table.target());
  return std::find(kKnown.begin(), kKnown.end(),
                   std::pair<std::string_view, std::string_view>(source, target)) != kKnown.end();
}

EdgeList read_words(std::string_view content, const std::string& name) {
  EdgeList edges;
  WordIndex index;
  Table table(content, name);
  for (bool first = true; table.next(); first = false) {
    if (first && is_word_header(table)) continue;
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
