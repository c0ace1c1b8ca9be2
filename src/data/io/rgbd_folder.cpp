#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "core/check.h"
#include "data/io/image.h"
#include "data/io/matrix_text.h"
#include "data/io/png_writer.h"
#include "io/files.h"
#include "topomask/rgbd.h"

namespace topomask {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIntrinsicsFile = "camera-intrinsics.txt", kFramePrefix = "frame-";
constexpr std::uint16_t kUnknownDepth = 65535;

// 12 of "frame-000012.color.jpg", or -1.
std::int64_t colour_number(std::string_view name) {
  if (!name.starts_with(kFramePrefix)) return -1;
  name.remove_prefix(kFramePrefix.size());
  std::int64_t number = -1;
  const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), number);
  const std::string_view rest(end, static_cast<std::size_t>(name.data() + name.size() - end));
  const bool colour = rest == ".color.png" || rest == ".color.jpg" || rest == ".color.jpeg";
  return status == std::errc() && number >= 0 && colour ? number : -1;
}

std::array<float, 4> read_intrinsics(const std::string& folder) {
  const std::string path = inside(folder, std::string(kIntrinsicsFile));
  std::error_code ignored;
  check(fs::exists(path, ignored),
        "'{}' is missing: expected the 3 x 3 matrix of the camera (fx 0 cx, 0 fy cy, 0 0 1; for 7-Scenes fx "
        "= fy = 585, cx = "
        "320, cy = 240)",
        path);
  const std::vector<double> k = parse_matrix_text(read_file(path), path, 3, 3);
  check(k[0] > 0 && k[4] > 0 && k[1] == 0 && k[3] == 0 && k[6] == 0 && k[7] == 0 && k[8] == 1,
        "'{}': expected fx 0 cx, 0 fy cy, 0 0 1 with fx and fy above 0", path);
  return {static_cast<float>(k[0]), static_cast<float>(k[4]), static_cast<float>(k[2]),
          static_cast<float>(k[5])};
}

std::array<float, 16> read_pose(const std::string& path) {
  const std::vector<double> m = parse_matrix_text(read_file(path), path, 4, 4);
  check(m[12] == 0 && m[13] == 0 && m[14] == 0 && m[15] == 1,
        "'{}': expected 0 0 0 1 as the last row of a pose", path);
  // Recorded poses are rounded; what is no rotation at all would shear every point.
  constexpr double kTolerance = .02;
  for (std::size_t a = 0; a < 3; ++a) {
    for (std::size_t b = a; b < 3; ++b) {
      const double product = m[a] * m[b] + m[4 + a] * m[4 + b] + m[8 + a] * m[8 + b];
      check(std::abs(product - (a == b ? 1 : 0)) < kTolerance,
            "'{}': the upper left 3 x 3 of a pose must be a rotation", path);
    }
  }
  std::array<float, 16> pose;
  std::transform(m.begin(), m.end(), pose.begin(), [](double x) { return static_cast<float>(x); });
  return pose;
}

std::string matrix_text(const std::vector<float>& values, std::size_t columns) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i)
    text += fmt::format("{}{}", values[i], (i + 1) % columns == 0 ? "\n" : " ");
  return text;
}

}  // namespace

std::vector<double> parse_matrix_text(std::string_view content, const std::string& name, std::size_t rows,
                                      std::size_t columns) {
  std::vector<double> values;
  constexpr std::string_view kSpace = " \t\r\n";
  for (std::size_t at = content.find_first_not_of(kSpace); at != std::string_view::npos;
       at = content.find_first_not_of(kSpace, at)) {
    const std::size_t end = std::min(content.find_first_of(kSpace, at), content.size());
    const std::string_view word = content.substr(at, end - at);
    double value = 0;
    const auto [stop, status] = std::from_chars(word.data(), word.data() + word.size(), value);
    check(status == std::errc() && stop == word.data() + word.size() && std::isfinite(value),
          "'{}': expected {} x {} finite numbers, number {} is '{}'", name, rows, columns, values.size() + 1,
          word.substr(0, 40));
    check(values.size() < rows * columns, "'{}': expected {} x {} numbers, there are more", name, rows,
          columns);
    values.push_back(value);
    at = end;
  }
  check(values.size() == rows * columns, "'{}': expected {} x {} numbers, got {}", name, rows, columns,
        values.size());
  return values;
}

bool is_rgbd_folder(const std::string& folder) {
  std::error_code error;
  if (fs::exists(inside(folder, std::string(kIntrinsicsFile)), error)) return true;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (colour_number(entry.path().filename().string()) >= 0) return true;
  }
  return false;
}

RgbdFolder::RgbdFolder(const std::string& folder) : folder_(folder) {
  std::error_code error;
  check(fs::is_directory(folder, error), "'{}' is not a folder: expected one with RGB-D frames", folder);
  intrinsics_ = read_intrinsics(folder);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string colour = entry.path().filename().string();
    const std::int64_t number = colour_number(colour);
    if (number < 0) continue;
    const std::string stem = colour.substr(0, colour.find(".color."));
    frames_.push_back({number, inside(folder, colour), inside(folder, stem + ".depth.png"),
                       inside(folder, stem + ".pose.txt")});
    for (const std::string& path : {frames_.back().depth, frames_.back().pose})
      check(fs::exists(path, error), "'{}' is missing, although '{}' is there", path, frames_.back().colour);
  }
  check(!frames_.empty(), "'{}' holds no frames: expected files such as frame-000000.color.png", folder);
  std::sort(frames_.begin(), frames_.end(), [](const Frame& a, const Frame& b) {
    return std::tie(a.number, a.colour) < std::tie(b.number, b.colour);
  });
  for (std::size_t i = 1; i < frames_.size(); ++i)
    check(frames_[i].number != frames_[i - 1].number, "'{}' and '{}' are the same frame",
          frames_[i - 1].colour, frames_[i].colour);
}

RgbdImage RgbdFolder::read(std::int64_t frame) const {
  check(frame >= 0 && frame < frames(), "'{}': frame must be 0 to {}, got {}", folder_, frames() - 1, frame);
  const Frame& files = frames_[static_cast<std::size_t>(frame)];
  RgbImage colour = decode_image(read_file(files.colour), files.colour);
  const Grey16Image depth = decode_grey16(read_file(files.depth), files.depth);
  check(colour.width == depth.width && colour.height == depth.height,
        "'{}' has {} x {} pixels, but its depth '{}' has {} x {}", files.colour, colour.width, colour.height,
        files.depth, depth.width, depth.height);
  RgbdImage image;
  image.width = colour.width;
  image.height = colour.height;
  image.intrinsics = intrinsics_;
  image.pose = read_pose(files.pose);
  image.colour = std::move(colour.pixels);
  image.depth.resize(depth.pixels.size());
  std::transform(depth.pixels.begin(), depth.pixels.end(), image.depth.begin(),
                 [](std::uint16_t millimetres) {
                   return millimetres == kUnknownDepth ? 0.f : static_cast<float>(millimetres) / 1000.f;
                 });
  return image;
}

void write_rgbd_intrinsics(const std::string& folder, const std::array<float, 4>& k) {
  write_file(inside(folder, std::string(kIntrinsicsFile)),
             matrix_text({k[0], 0, k[2], 0, k[1], k[3], 0, 0, 1}, 3));
}

void write_rgbd_frame(const std::string& folder, std::int64_t number, const RgbdImage& image) {
  const std::size_t pixels = static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height);
  check(image.colour.size() == 3 * pixels && image.depth.size() == pixels,
        "write_rgbd_frame: expected colour and depth of {} x {} pixels, got {} and {} numbers", image.width,
        image.height, image.colour.size(), image.depth.size());
  std::vector<std::uint16_t> millimetres(pixels);
  std::transform(image.depth.begin(), image.depth.end(), millimetres.begin(), [](float metres) {
    const float rounded = std::round(1000 * metres);
    return static_cast<std::uint16_t>(rounded > 0 && rounded < kUnknownDepth ? rounded : 0);
  });
  const std::string stem = inside(folder, fmt::format("{}{:06}", kFramePrefix, number));
  write_file(stem + ".color.png", encode_png_rgb(image.colour.data(), image.width, image.height));
  write_file(stem + ".depth.png", encode_png_grey16(millimetres.data(), image.width, image.height));
  write_file(stem + ".pose.txt", matrix_text({image.pose.begin(), image.pose.end()}, 4));
}

}  // namespace topomask
