// Point coordinates: vertices of meshes, rows of arrays and of text tables.
#include <array>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/suggest.h"
#include "graph/io/matrix_entries.h"
#include "graph/io/mesh.h"
#include "io/files.h"
#include "io/npy_values.h"
#include "io/text.h"
#include "topomask/graph_io.h"

namespace topomask {

namespace {

// What a float can hold: squares of larger numbers would soon be infinite.
bool is_coordinate(double value) {
  return std::abs(value) <= double{std::numeric_limits<float>::max()};
}

Points points_of_mesh(const Mesh& mesh, const std::string& name) {
  for (std::size_t k = 0; k < mesh.coordinate.size(); ++k) {
    check(is_coordinate(mesh.coordinate[k]), "{}, vertex {}: expected finite coordinates, got {}", name,
          k / 3, mesh.coordinate[k]);
  }
  return {mesh.num_vertices(), 3, mesh.coordinate};
}

Points points_of_array(std::string_view content, const std::string& name) {
  const NpyArray array = parse_npy(content, name);
  check(array.shape.size() == 2 && array.shape[0] > 0 && array.shape[1] > 0,
        "{}: expected an array of shape (points, dimension), got ({})", name, fmt::join(array.shape, ", "));
  return {array.shape[0], array.shape[1], finite_doubles(array, name)};
}

// The first row may be a header: it is one if none of its fields is a number.
bool is_header(const std::vector<std::string_view>& fields) {
  for (const std::string_view field : fields) {
    if (parse_number(field)) return false;
  }
  return true;
}

Points read_points(const std::string& path, const ReadOptions& options) {
  const std::string extension = content_extension(path);
  constexpr std::array<std::string_view, 8> kKnown{".obj", ".ply", ".npy", ".txt",
                                                   ".tsv", ".csv", ".xyz", ".pts"};
  check(std::find(kKnown.begin(), kKnown.end(), extension) != kKnown.end(),
        "cannot read points from '{}': expected one of {} (also with .gz or .xz), got the extension '{}'{}",
        path, fmt::join(kKnown, " "), extension, did_you_mean(extension, kKnown));
  const std::string content = read_file(path, options);
  if (extension == ".obj") return points_of_mesh(parse_obj(content, path), path);
  if (extension == ".ply") return points_of_mesh(parse_ply(content, path, Sides::optional), path);
  if (extension == ".npy") return points_of_array(content, path);
  return read_point_table(content, path);
}

}  // namespace

Points read_point_table(std::string_view content, const std::string& name) {
  check_text(content, name);
  Points points;
  LineReader lines(without_byte_order_mark(content));
  std::vector<std::string_view> fields;
  std::string_view line;
  bool first = true;
  char separator = ' ';
  while (lines.next(line)) {
    if (line.empty() || is_comment(line)) continue;
    if (first) separator = separator_of(line);
    check(split_fields(line, separator, fields), "{}, line {}: expected a row of numbers, got {}", name,
          lines.line_number(), quoted(line));
    const bool header = first && is_header(fields);
    first = false;
    if (header) continue;
    if (points.dimension == 0) points.dimension = static_cast<std::int64_t>(fields.size());
    check(static_cast<std::int64_t>(fields.size()) == points.dimension,
          "{}, line {}: expected {} numbers as before, got {}", name, lines.line_number(), points.dimension,
          fields.size());
    for (const std::string_view field : fields) {
      const std::optional<double> value = parse_number(field);
      check(value && is_coordinate(*value), "{}, line {}: expected a finite number, got {}", name,
            lines.line_number(), quoted(field));
      points.coordinate.push_back(*value);
    }
    ++points.count;
  }
  check(points.count > 0, "{}: expected at least one point, got none", name);
  return points;
}

Points read_points_file(const std::string& path, const ReadOptions& options) {
  Points points = read_points(path, options);
  check(points.count <= kMaxNodes, "{}: expected at most {} points, got {}", path, kMaxNodes, points.count);
  return points;
}

}  // namespace topomask
