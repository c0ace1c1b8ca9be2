// Matrix Market: `%%MatrixMarket matrix coordinate|array real|integer|pattern
// general|symmetric|skew-symmetric`, comments, a size line, then one entry per line (array: one value per
// line, column by column).
#include <algorithm>
#include <array>

#include "core/check.h"
#include "graph/io/matrix_entries.h"
#include "io/text.h"
#include "topomask/graph_io.h"

namespace topomask {

namespace {

enum class Symmetry { general, symmetric, skew };

struct Header {
  bool coordinate = true;
  bool pattern = false;
  Symmetry symmetry = Symmetry::general;
};

Header parse_header(std::string_view line, const std::string& name) {
  std::array<std::string, 5> words;
  WordReader reader(line);
  std::string_view word;
  for (std::string& part : words) {
    if (reader.next(word)) part = lower_case(word);
  }
  check(words[0] == "%%matrixmarket" && words[1] == "matrix",
        "{}, line 1: expected a '%%MatrixMarket matrix' header, got {}", name, quoted(line));
  Header header;
  header.coordinate = words[2] == "coordinate";
  check(header.coordinate || words[2] == "array",
        "{}, line 1: expected the format coordinate or array, got {}", name, quoted(words[2]));
  header.pattern = words[3] == "pattern";
  check(words[3] == "real" || words[3] == "integer" || words[3] == "double" ||
            (header.pattern && header.coordinate),
        "{}, line 1: expected real, integer or (coordinate format only) pattern entries, got {}", name,
        quoted(words[3]));
  if (words[4] == "symmetric") {
    header.symmetry = Symmetry::symmetric;
  } else if (words[4] == "skew-symmetric") {
    header.symmetry = Symmetry::skew;
  } else {
    check(words[4] == "general", "{}, line 1: expected general, symmetric or skew-symmetric, got {}", name,
          quoted(words[4]));
  }
  check(!header.pattern || header.symmetry != Symmetry::skew,
        "{}, line 1: a pattern cannot be skew-symmetric", name);
  return header;
}

class Reader {
 public:
  Reader(std::string_view content, const std::string& name) : lines_(content), name_(name) {
    std::string_view line;
    lines_.next(line);
    header_ = parse_header(line, name_);
  }

  EdgeList read() {
    read_sizes();
    if (header_.coordinate) {
      read_coordinates();
    } else {
      read_array();
    }
    std::string_view line;
    if (next_line(line)) {
      fail("{}, line {}: expected the end of the file after {} entries, got {}", name_, lines_.line_number(),
           entries_, quoted(line));
    }
    check(plausible_node_count(edges_.num_nodes, entries_),
          "{}, line {}: the size line declares {} nodes for only {} entries", name_, size_line_,
          edges_.num_nodes, entries_);
    if (header_.symmetry == Symmetry::general) {
      undirect_if_symmetric(edges_);
    } else {
      edges_.directed = header_.symmetry == Symmetry::skew;
    }
    return std::move(edges_);
  }

 private:
  // The next line that is neither empty nor a comment.
  bool next_line(std::string_view& line) {
    while (lines_.next(line)) {
      if (!line.empty() && line.front() != '%') return true;
    }
    return false;
  }

  void read_sizes() {
    std::string_view line, word;
    check(next_line(line), "{}: the file ends before the size line", name_);
    size_line_ = lines_.line_number();
    WordReader words(line);
    std::array<std::int64_t, 3> size{};
    const std::size_t wanted = header_.coordinate ? 3 : 2;
    for (std::size_t k = 0; k < wanted; ++k) {
      const std::optional<std::int64_t> value = words.next(word) ? parse_integer(word) : std::nullopt;
      check(value && *value >= 0, "{}, line {}: expected {} as size, got {}", name_, size_line_,
            header_.coordinate ? "'rows columns entries'" : "'rows columns'", quoted(line));
      size[k] = *value;
    }
    check(!words.next(word), "{}, line {}: expected {} numbers as size, got {}", name_, size_line_, wanted,
          quoted(line));
    check(size[0] == size[1], "{}, line {}: expected a square matrix, got {} rows and {} columns", name_,
          size_line_, size[0], size[1]);
    check(size[0] <= kMaxNodes, "{}, line {}: expected at most {} nodes, got {}", name_, size_line_,
          kMaxNodes, size[0]);
    edges_.num_nodes = size[0];
    // At most 2^62: no overflow.
    entries_ = size[2];
    if (!header_.coordinate) {
      entries_ = size[0] * size[0];
      if (header_.symmetry == Symmetry::symmetric) entries_ = size[0] * (size[0] + 1) / 2;
      if (header_.symmetry == Symmetry::skew) entries_ = size[0] * (size[0] - 1) / 2;
    }
    // Nothing is reserved from the header before the file is seen to be long enough for what it declares.
    const std::int64_t shortest = !header_.coordinate ? 2 : header_.pattern ? 4 : 6;
    check(entries_ <= (static_cast<std::int64_t>(lines_.rest().size()) + 1) / shortest,
          "{}, line {}: the size line declares {} entries, more than the file can hold", name_, size_line_,
          entries_);
  }

  void add(std::int64_t row, std::int64_t column, float value) {
    const auto push = [this](std::int64_t source, std::int64_t target, float weight) {
      edges_.source.push_back(static_cast<std::int32_t>(source));
      edges_.target.push_back(static_cast<std::int32_t>(target));
      if (!header_.pattern) edges_.weight.push_back(weight);
    };
    push(row, column, value);
    if (header_.symmetry == Symmetry::skew) push(column, row, -value);
  }

  std::int64_t parse_index(WordReader& words, std::string_view line) {
    std::string_view word;
    const std::optional<std::int64_t> index = words.next(word) ? parse_integer(word) : std::nullopt;
    check(index && *index >= 1 && *index <= edges_.num_nodes,
          "{}, line {}: expected a row and a column from 1 to {}, got {}", name_, lines_.line_number(),
          edges_.num_nodes, quoted(line));
    return *index - 1;
  }

  void read_coordinates() {
    const auto edges = static_cast<std::size_t>(header_.symmetry == Symmetry::skew ? 2 * entries_ : entries_);
    edges_.source.reserve(edges);
    edges_.target.reserve(edges);
    if (!header_.pattern) edges_.weight.reserve(edges);
    std::string_view line, word;
    for (std::int64_t e = 0; e < entries_; ++e) {
      check(next_line(line), "{}: the file ends after {} of the {} entries declared on line {}", name_, e,
            entries_, size_line_);
      WordReader words(line);
      const std::int64_t row = parse_index(words, line), column = parse_index(words, line);
      check(row != column || header_.symmetry != Symmetry::skew,
            "{}, line {}: a skew-symmetric matrix has no diagonal entries, got {}", name_,
            lines_.line_number(), quoted(line));
      float value = 1.0f;
      if (!header_.pattern) {
        check(words.next(word), "{}, line {}: expected 'row column value', got {}", name_,
              lines_.line_number(), quoted(line));
        value = parse_weight(word, name_, lines_.line_number());
      }
      check(!words.next(word), "{}, line {}: expected one entry per line, got {}", name_,
            lines_.line_number(), quoted(line));
      add(row, column, value);
    }
  }

  // Zeros of a dense matrix are no edges.
  void read_array() {
    const std::int64_t size = edges_.num_nodes;
    std::string_view line;
    std::int64_t read = 0;
    for (std::int64_t column = 0; column < size; ++column) {
      const std::int64_t first_row = header_.symmetry == Symmetry::general     ? 0
                                     : header_.symmetry == Symmetry::symmetric ? column
                                                                               : column + 1;
      for (std::int64_t row = first_row; row < size; ++row, ++read) {
        check(next_line(line), "{}: the file ends after {} of the {} values declared on line {}", name_, read,
              entries_, size_line_);
        const float value = parse_weight(line, name_, lines_.line_number());
        if (value != 0.0f) add(row, column, value);
      }
    }
  }

  LineReader lines_;
  const std::string& name_;
  Header header_;
  EdgeList edges_;
  std::int64_t entries_ = 0;
  std::size_t size_line_ = 0;
};

}  // namespace

EdgeList read_matrix_market(std::string_view content, const std::string& name) {
  check(!content.empty(), "{}: expected a Matrix Market file, got an empty one", name);
  check_text(content, name);
  return Reader(without_byte_order_mark(content), name).read();
}

}  // namespace topomask
