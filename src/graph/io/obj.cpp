// Wavefront OBJ: `v x y z`, `l 1 2`, `f 1 2 3` (also 1/2/3, 1//3 and negative indices relative to the last
// vertex; `fo` is its old name). A backslash continues a line, # starts a comment. Everything else says
// nothing about the vertex graph.
#include "core/check.h"
#include "graph/io/matrix_entries.h"
#include "graph/io/mesh.h"
#include "io/text.h"
#include "topomask/graph_io.h"

namespace topomask {

namespace {

class Reader {
 public:
  Reader(std::string_view content, const std::string& name) : lines_(content), name_(name) {}

  Mesh read() {
    std::string_view line, keyword;
    while (next_line(line)) {
      WordReader words(line);
      if (!words.next(keyword)) continue;
      if (keyword == "v") {
        read_vertex(words, line);
      } else if (keyword == "f" || keyword == "fo" || keyword == "l") {
        const bool face = keyword != "l";
        read_corners(words);
        check(corners_.size() >= (face ? 3 : 2), "{}, line {}: expected at least {} vertices, got {}", name_,
              lines_.line_number(), face ? 3 : 2, quoted(line));
        if (face) {
          mesh_.add_polygon(corners_);
        } else {
          mesh_.add_line(corners_);
        }
      }
    }
    check(mesh_.num_vertices() > 0, "{}: expected at least one vertex ('v x y z'), got none", name_);
    // A face may stand before its vertices, so this is only known here.
    check(largest_ < mesh_.num_vertices(), "{}, line {}: expected vertices from 1 to {}, got {}", name_,
          line_of_largest_, mesh_.num_vertices(), largest_ + 1);
    return std::move(mesh_);
  }

 private:
  // Without its comment, and with the lines that continue it.
  bool next_line(std::string_view& line) {
    joined_.clear();
    for (bool first = true; lines_.next(line); first = false) {
      line = trimmed(line.substr(0, line.find('#')));
      const bool continues = line.ends_with('\\');
      if (first && !continues) return true;
      joined_.append(line, 0, line.size() - (continues ? 1 : 0)) += ' ';
      if (!continues) break;
    }
    line = joined_;
    return !line.empty();
  }

  void read_vertex(WordReader& words, std::string_view line) {
    check(mesh_.num_vertices() < kMaxNodes, "{}, line {}: expected at most {} vertices, got more", name_,
          lines_.line_number(), kMaxNodes);
    std::string_view word;
    for (int axis = 0; axis < 3; ++axis) {
      const std::optional<double> value = words.next(word) ? parse_number(word) : std::nullopt;
      check(value.has_value(), "{}, line {}: expected three numbers after v, got {}", name_,
            lines_.line_number(), quoted(line));
      mesh_.coordinate.push_back(*value);
    }
  }

  void read_corners(WordReader& words) {
    corners_.clear();
    std::string_view word;
    while (words.next(word)) {
      const std::optional<std::int64_t> index = parse_integer(word.substr(0, word.find('/')));
      const std::int64_t vertex = !index ? -1 : *index > 0 ? *index - 1 : mesh_.num_vertices() + *index;
      check(index && *index != 0 && vertex >= 0 && vertex < kMaxNodes,
            "{}, line {}: expected a vertex from 1, or from -1 down to -{}, got {}", name_,
            lines_.line_number(), mesh_.num_vertices(), quoted(word));
      if (vertex > largest_) {
        largest_ = vertex;
        line_of_largest_ = lines_.line_number();
      }
      corners_.push_back(static_cast<std::int32_t>(vertex));
    }
  }

  LineReader lines_;
  std::string joined_;
  const std::string& name_;
  Mesh mesh_;
  std::vector<std::int32_t> corners_;
  std::int64_t largest_ = -1;
  std::size_t line_of_largest_ = 0;
};

}  // namespace

Mesh parse_obj(std::string_view content, const std::string& name) {
  check_text(content, name);
  return Reader(without_byte_order_mark(content), name).read();
}

EdgeList read_obj(std::string_view content, const std::string& name) {
  return parse_obj(content, name).graph();
}

}  // namespace topomask
