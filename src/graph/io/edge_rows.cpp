#include "graph/io/edge_rows.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/check.h"
#include "io/text.h"

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

}  // namespace

bool EdgeRows::take(std::string_view line, std::size_t line_number) {
  // Comments above the first row may tell the number of nodes.
  if (separator_ == '\0' && is_comment(line)) declared_ = std::max(declared_, declared_nodes(line));
  if (line.empty() || is_comment(line)) return false;
  line_number_ = line_number;
  if (separator_ == '\0') separator_ = separator_of(line);
  const bool split = split_fields(line, separator_, fields_);
  check(split && std::none_of(fields_.begin(), fields_.end(), [](std::string_view f) { return f.empty(); }),
        "{}, line {}: expected fields that are not empty, got {}", name_, line_number_, quoted(line));
  check(fields_.size() >= 2 && fields_.size() <= 4,
        "{}, line {}: expected 2 columns (source, target), 3 (weight) or 4 (edge id first), got {} in {}",
        name_, line_number_, fields_.size(), quoted(line));
  return true;
}

void EdgeRows::accept() {
  if (columns_ == 0) columns_ = fields_.size();
  check(fields_.size() == columns_, "{}, line {}: expected {} columns as before, got {}", name_, line_number_,
        columns_, fields_.size());
  if (columns_ == 4) {
    check(parse_integer(fields_[0]) == accepted_,
          "{}, line {}: expected the edge id {} in the first of 4 columns, got {}", name_, line_number_,
          accepted_, quoted(fields_[0]));
  }
  ++accepted_;
}

std::int64_t EdgeRows::parse_id(std::string_view word) const {
  const std::optional<std::int64_t> id = parse_integer(word);
  check(id && *id >= 0, "{}, line {}: expected node ids from 0 to 2^63-1, got {}", name_, line_number_,
        quoted(word));
  return *id;
}

bool EdgeRows::is_word_header() const {
  if (!weight().empty() && !parse_number(weight())) return true;
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kKnown{{{"source", "target"},
                                                                                 {"src", "dst"},
                                                                                 {"from", "to"},
                                                                                 {"node_1", "node_2"},
                                                                                 {"node1", "node2"},
                                                                                 {"id_1", "id_2"},
                                                                                 {"id1", "id2"}}};
  const std::string first = lower_case(source()), second = lower_case(target());
  return std::find(kKnown.begin(), kKnown.end(),
                   std::pair<std::string_view, std::string_view>(first, second)) != kKnown.end();
}

}  // namespace topomask
