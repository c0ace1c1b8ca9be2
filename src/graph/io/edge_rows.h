// One row of a text table of edges: comments, separators, columns, node ids. Shared by the reader of whole
// files and the one of streams, so that both understand the same files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace topomask {

class EdgeRows {
 public:
  explicit EdgeRows(std::string name) : name_(std::move(name)) {}

  // Whether the line is a row, neither empty nor a comment. The row may be a header: only accept() makes it
  // an edge.
  bool take(std::string_view line, std::size_t line_number);

  // Settles that the row last taken is an edge: the same number of columns as before, edge ids in sequence.
  void accept();

  // Of the row last taken; valid as long as its line is.
  std::string_view source() const { return fields_[fields_.size() == 4 ? 1 : 0]; }
  std::string_view target() const { return fields_[fields_.size() == 4 ? 2 : 1]; }
  // "" if there is no such column.
  std::string_view weight() const { return fields_.size() > 2 ? fields_.back() : std::string_view(); }
  std::size_t line_number() const { return line_number_; }

  std::int64_t accepted() const { return accepted_; }
  std::int64_t declared() const { return declared_; }  // nodes, by a comment above the first row; 0: none

  // A non-negative node id.
  std::int64_t parse_id(std::string_view word) const;

  // Whether a first row of words is a header although the node ids are words too: its weight is no number, or
  // it is one of the pairs that such files are known to begin with.
  bool is_word_header() const;

 private:
  std::string name_;
  std::vector<std::string_view> fields_;
  std::size_t line_number_ = 0;
  char separator_ = '\0';
  std::size_t columns_ = 0;
  std::int64_t accepted_ = 0;
  std::int64_t declared_ = 0;
};

}  // namespace topomask
