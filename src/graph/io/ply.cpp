// PLY meshes, ascii or binary of either byte order. Vertices are the elements "vertex" (x, y, z). Sides come
// from the lists "vertex_indices" or "vertex_index" of "face" (polygons), "tristrips" (triangle strips, -1
// ends one) and "edge" (lines), and from vertex1, vertex2 of "edge". Other elements are skipped, unless they
// refer to vertices: leaving out sides would change the graph unnoticed.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "graph/io/matrix_entries.h"
#include "graph/io/mesh.h"
#include "io/text.h"
#include "topomask/graph_io.h"

namespace topomask {

namespace {

enum class Scalar { int8, uint8, int16, uint16, int32, uint32, float32, float64 };

// What a property is for.
enum class Role { none, x, y, z, polygon, strips, line, first_end, second_end };

struct Property {
  std::string name;
  bool list = false;
  Scalar count_type = Scalar::uint8;  // of a list
  Scalar type = Scalar::float32;
  Role role = Role::none;
};

struct Element {
  std::string name;
  std::int64_t count = 0;
  std::vector<Property> properties;
};

enum class Encoding { ascii, little, big };

struct Header {
  Encoding encoding = Encoding::ascii;
  std::vector<Element> elements;
};

std::size_t size_of(Scalar type) {
  constexpr std::array<std::size_t, 8> kSizes{1, 1, 2, 2, 4, 4, 4, 8};
  return kSizes[static_cast<std::size_t>(type)];
}

std::optional<Scalar> scalar_named(std::string_view word) {
  constexpr std::array<std::pair<std::string_view, Scalar>, 16> kNames{{{"char", Scalar::int8},
                                                                        {"int8", Scalar::int8},
                                                                        {"uchar", Scalar::uint8},
                                                                        {"uint8", Scalar::uint8},
                                                                        {"short", Scalar::int16},
                                                                        {"int16", Scalar::int16},
                                                                        {"ushort", Scalar::uint16},
                                                                        {"uint16", Scalar::uint16},
                                                                        {"int", Scalar::int32},
                                                                        {"int32", Scalar::int32},
                                                                        {"uint", Scalar::uint32},
                                                                        {"uint32", Scalar::uint32},
                                                                        {"float", Scalar::float32},
                                                                        {"float32", Scalar::float32},
                                                                        {"double", Scalar::float64},
                                                                        {"float64", Scalar::float64}}};
  for (const auto& [name, type] : kNames) {
    if (name == word) return type;
  }
  return std::nullopt;
}

Role role_of(std::string_view element, std::string_view property, bool list) {
  if (element == "vertex" && !list) {
    if (property == "x") return Role::x;
    if (property == "y") return Role::y;
    if (property == "z") return Role::z;
  }
  if (list && (property == "vertex_indices" || property == "vertex_index")) {
    if (element == "face") return Role::polygon;
    if (element == "tristrips") return Role::strips;
    if (element == "edge") return Role::line;
  }
  if (element == "edge" && !list && property == "vertex1") return Role::first_end;
  if (element == "edge" && !list && property == "vertex2") return Role::second_end;
  return Role::none;
}

class HeaderReader {
 public:
  HeaderReader(LineReader& lines, const std::string& name) : lines_(lines), name_(name) {}

  Header read() {
    std::string_view line;
    lines_.next(line);
    check(line == "ply", "{}, line 1: expected 'ply', got {}", name_, quoted(line));
    while (true) {
      check(lines_.next(line), "{}, line {}: the file ends inside the header", name_, lines_.line_number());
      split(line);
      if (words_.empty() || words_[0] == "comment" || words_[0] == "obj_info") continue;
      if (words_[0] == "end_header") break;
      if (words_[0] == "format" && words_.size() == 3) {
        read_format();
      } else if (words_[0] == "element" && words_.size() == 3) {
        read_element();
      } else if (words_[0] == "property" && !header_.elements.empty() &&
                 (words_.size() == 3 || words_.size() == 5)) {
        read_property(line);
      } else {
        fail("{}, line {}: expected format, element, property or end_header, got {}", name_,
             lines_.line_number(), quoted(line));
      }
    }
    check(has_format_, "{}, line {}: the header has no format line", name_, lines_.line_number());
    return std::move(header_);
  }

 private:
  void split(std::string_view line) {
    words_.clear();
    WordReader reader(line);
    for (std::string_view word; words_.size() < 6 && reader.next(word);) words_.push_back(word);
  }

  void read_format() {
    constexpr std::array<std::pair<std::string_view, Encoding>, 3> kEncodings{
        {{"ascii", Encoding::ascii},
         {"binary_little_endian", Encoding::little},
         {"binary_big_endian", Encoding::big}}};
    for (const auto& [encoding_name, encoding] : kEncodings) {
      if (encoding_name != words_[1]) continue;
      header_.encoding = encoding;
      has_format_ = true;
      return;
    }
    fail("{}, line {}: expected ascii, binary_little_endian or binary_big_endian, got {}", name_,
         lines_.line_number(), quoted(words_[1]));
  }

  void read_element() {
    const std::optional<std::int64_t> count = parse_integer(words_[2]);
    check(count && *count >= 0, "{}, line {}: expected the number of elements, got {}", name_,
          lines_.line_number(), quoted(words_[2]));
    check(words_[1] != "vertex" || *count <= kMaxNodes, "{}, line {}: expected at most {} vertices, got {}",
          name_, lines_.line_number(), kMaxNodes, *count);
    for (const Element& element : header_.elements) {
      check(element.name != words_[1], "{}, line {}: element {} is declared twice", name_,
            lines_.line_number(), quoted(words_[1]));
    }
    header_.elements.push_back({std::string(words_[1]), *count, {}});
  }

  void read_property(std::string_view line) {
    Property property;
    property.name = words_.back();
    property.list = words_.size() == 5;
    const std::optional<Scalar> type = scalar_named(words_[property.list ? 3 : 1]);
    const std::optional<Scalar> count_type = property.list ? scalar_named(words_[2]) : Scalar::uint8;
    check(type && count_type && property.list == (words_[1] == "list"),
          "{}, line {}: expected 'property type name' or 'property list type type name', got {}", name_,
          lines_.line_number(), quoted(line));
    for (const Property& other : header_.elements.back().properties) {
      check(other.name != property.name, "{}, line {}: property {} is declared twice", name_,
            lines_.line_number(), quoted(property.name));
    }
    property.type = *type;
    property.count_type = *count_type;
    property.role = role_of(header_.elements.back().name, property.name, property.list);
    header_.elements.back().properties.push_back(property);
  }

  LineReader& lines_;
  const std::string& name_;
  Header header_;
  bool has_format_ = false;
  std::vector<std::string_view> words_;
};

// Reads numbers one after the other from the binary body.
class BinaryBody {
 public:
  BinaryBody(std::string_view rest, bool big_endian)
      : rest_(rest), size_(rest.size()), big_endian_(big_endian) {}

  std::size_t remaining() const { return rest_.size(); }
  std::string place() const { return fmt::format("byte {} after the header", size_ - rest_.size()); }
  static std::size_t smallest(Scalar type) { return size_of(type); }

  std::optional<double> next(Scalar type) {
    const std::size_t bytes = size_of(type);
    if (rest_.size() < bytes) return std::nullopt;
    std::array<char, 8> raw{};
    std::copy_n(rest_.begin(), bytes, raw.begin());
    if (big_endian_) std::reverse(raw.begin(), raw.begin() + static_cast<std::ptrdiff_t>(bytes));
    rest_.remove_prefix(bytes);
    switch (type) {
      case Scalar::int8:
        return as<std::int8_t>(raw);
      case Scalar::uint8:
        return as<std::uint8_t>(raw);
      case Scalar::int16:
        return as<std::int16_t>(raw);
      case Scalar::uint16:
        return as<std::uint16_t>(raw);
      case Scalar::int32:
        return as<std::int32_t>(raw);
      case Scalar::uint32:
        return as<std::uint32_t>(raw);
      case Scalar::float32:
        return as<float>(raw);
      case Scalar::float64:
        return as<double>(raw);
    }
    return std::nullopt;
  }

 private:
  static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in memory");
  template <class T>
  static double as(const std::array<char, 8>& raw) {
    T value;
    std::memcpy(&value, raw.data(), sizeof value);
    return static_cast<double>(value);
  }

  std::string_view rest_;
  std::size_t size_;
  bool big_endian_;
};

// The same from the words of the ascii body.
class AsciiBody {
 public:
  AsciiBody(std::string_view rest, std::size_t line) : words_(rest, line), size_(rest.size()) {}

  // An upper bound: each number takes two bytes, the last one can do with one.
  std::size_t remaining() const { return size_ + 1; }
  std::string place() const { return fmt::format("line {}", words_.line_number()); }
  static std::size_t smallest(Scalar) { return 2; }

  std::optional<double> next(Scalar) {
    std::string_view word;
    return words_.next(word) ? parse_number(word) : std::nullopt;
  }

 private:
  WordReader words_;
  std::size_t size_;
};

// Whether an element that is not read seems to join vertices: by its name, or by an integer list of vertices
// (those of textures are others).
bool refers_to_vertices(const Element& element) {
  constexpr std::array<std::string_view, 18> kNames{
      "faces", "triangle", "triangles", "polygon", "polygons", "quad",      "quads", "tristrip", "trifans",
      "strip", "strips",   "line",      "lines",   "polyline", "polylines", "edges", "cell",     "cells"};
  const std::string element_name = lower_case(element.name);
  if (std::find(kNames.begin(), kNames.end(), element_name) != kNames.end()) return true;
  return std::any_of(element.properties.begin(), element.properties.end(), [](const Property& property) {
    const std::string name = lower_case(property.name);
    const bool integer = property.type != Scalar::float32 && property.type != Scalar::float64;
    return property.list && integer && name.find("vert") != std::string::npos &&
           name.find("texture") == std::string::npos;
  });
}

template <class Body>
class BodyReader {
 public:
  BodyReader(Body body, const std::string& name, Sides sides)
      : body_(std::move(body)), name_(name), sides_(sides) {}

  Mesh read(const Header& header) {
    for (const Element& element : header.elements) {
      if (element.name == "vertex") check_axes(element);
      if (element.name == "vertex") vertices_ = element.count;
    }
    check(vertices_ > 0, "{}: expected at least one vertex, got none", name_);
    if (sides_ == Sides::needed) {
      for (const Element& element : header.elements) check_sides(element);
    }
    for (const Element& element : header.elements) read_elements(element);
    return std::move(mesh_);
  }

 private:
  void check_axes(const Element& element) const {
    for (const Role axis : {Role::x, Role::y, Role::z}) {
      const auto count = std::count_if(element.properties.begin(), element.properties.end(),
                                       [axis](const Property& property) { return property.role == axis; });
      check(count == 1, "{}: expected the element vertex to have x, y and z once each", name_);
    }
  }

  // An element that tells which vertices belong together must be one whose sides are read.
  void check_sides(const Element& element) const {
    if (element.count == 0 || element.name == "vertex") return;
    bool first = false, second = false;
    for (const Property& property : element.properties) {
      if (property.role == Role::polygon || property.role == Role::strips || property.role == Role::line)
        return;
      first |= property.role == Role::first_end;
      second |= property.role == Role::second_end;
    }
    if (first && second) return;
    const bool known = element.name == "face" || element.name == "tristrips" || element.name == "edge";
    check(!known, "{}: expected the element '{}' to have a list vertex_indices{}, got only {}", name_,
          element.name, element.name == "edge" ? " or vertex1 and vertex2" : "", property_names(element));
    check(!refers_to_vertices(element),
          "{}: expected the sides of the mesh in the elements face, tristrips or edge, got an element {} "
          "with {} (knn:FILE joins near vertices instead)",
          name_, quoted(element.name), property_names(element));
  }

  static std::string property_names(const Element& element) {
    std::vector<std::string_view> names;
    for (const Property& property : element.properties) names.push_back(property.name);
    return fmt::format("{}", quoted(fmt::format("{}", fmt::join(names, " "))));
  }

  void read_elements(const Element& element) {
    if (element.properties.empty()) return;
    std::size_t smallest = 0;
    for (const Property& p : element.properties) smallest += Body::smallest(p.list ? p.count_type : p.type);
    check(static_cast<std::uint64_t>(element.count) <= body_.remaining() / smallest,
          "{}: the header declares {} elements {}, more than the file can hold", name_, element.count,
          quoted(element.name));
    if (element.name == "vertex") mesh_.coordinate.reserve(static_cast<std::size_t>(3 * element.count));
    for (std::int64_t k = 0; k < element.count; ++k) read_one(element, k);
  }

  double next(Scalar type, const Element& element, std::int64_t index) {
    const std::optional<double> value = body_.next(type);
    if (!value) {
      fail("{}, {}: expected a number of element {} {} of {}, got something else or the end of the file",
           name_, body_.place(), quoted(element.name), index, element.count);
    }
    return *value;
  }

  std::int32_t checked_vertex(double value, const Element& element, std::int64_t index) const {
    if (!(value >= 0 && value < static_cast<double>(vertices_)) || value != std::floor(value)) {
      fail("{}, {}: expected vertices from 0 to {} in element {} {}, got {}", name_, body_.place(),
           vertices_ - 1, quoted(element.name), index, value);
    }
    return static_cast<std::int32_t>(value);
  }

  void read_one(const Element& element, std::int64_t index) {
    std::array<double, 3> point{};
    std::array<std::int32_t, 2> ends{};
    int num_ends = 0;
    for (const Property& property : element.properties) {
      if (property.list) {
        read_list(property, element, index);
        continue;
      }
      const double value = next(property.type, element, index);
      switch (property.role) {
        case Role::x:
        case Role::y:
        case Role::z:
          point[static_cast<std::size_t>(property.role) - static_cast<std::size_t>(Role::x)] = value;
          break;
        case Role::first_end:
        case Role::second_end:
          ends[property.role == Role::first_end ? 0 : 1] = checked_vertex(value, element, index);
          ++num_ends;
          break;
        default:
          break;
      }
    }
    if (element.name == "vertex") mesh_.coordinate.insert(mesh_.coordinate.end(), point.begin(), point.end());
    if (num_ends == 2) mesh_.add_line(ends);
  }

  void read_list(const Property& property, const Element& element, std::int64_t index) {
    const double length = next(property.count_type, element, index);
    const double most = static_cast<double>(body_.remaining() / Body::smallest(property.type));
    if (!(length >= 0 && length <= most) || length != std::floor(length)) {
      fail("{}, {}: the list of element {} {} declares {} entries, which the file cannot hold", name_,
           body_.place(), quoted(element.name), index, length);
    }
    corners_.clear();
    for (auto left = static_cast<std::int64_t>(length); left > 0; --left) {
      const double value = next(property.type, element, index);
      if (property.role == Role::none) continue;
      if (property.role == Role::strips && value == -1) {
        mesh_.add_strip(corners_);
        corners_.clear();
      } else {
        corners_.push_back(checked_vertex(value, element, index));
      }
    }
    if (property.role == Role::polygon) mesh_.add_polygon(corners_);
    if (property.role == Role::strips) mesh_.add_strip(corners_);
    if (property.role == Role::line) mesh_.add_line(corners_);
  }

  Body body_;
  const std::string& name_;
  Sides sides_;
  std::int64_t vertices_ = 0;
  Mesh mesh_;
  std::vector<std::int32_t> corners_;
};

}  // namespace

Mesh parse_ply(std::string_view content, const std::string& name, Sides sides) {
  LineReader lines(content);
  const Header header = HeaderReader(lines, name).read();
  if (header.encoding == Encoding::ascii) {
    return BodyReader(AsciiBody(lines.rest(), lines.line_number() + 1), name, sides).read(header);
  }
  return BodyReader(BinaryBody(lines.rest(), header.encoding == Encoding::big), name, sides).read(header);
}

EdgeList read_ply(std::string_view content, const std::string& name) {
  return parse_ply(content, name, Sides::needed).graph();
}

}  // namespace topomask
