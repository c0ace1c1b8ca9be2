// Feeds arbitrary bytes to one reader (TOPOMASK_READER). It may reject them with topomask::Error and nothing
// else; what it accepts must keep the promises of its header.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "data/io/image.h"
#include "data/io/records.h"
#include "data/io/video.h"
#include "io/safetensors_header.h"
#include "topomask/error.h"
#include "topomask/graph_io.h"
#include "topomask/npy.h"
#include "topomask/robot.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// Every target reads one format, and so checks one of these.
[[maybe_unused]] void check_result(const topomask::EdgeList& edges) {
  require(edges.num_nodes >= 0 && edges.num_nodes <= INT32_MAX);
  require(edges.source.size() == edges.target.size());
  require(edges.weight.empty() || edges.weight.size() == edges.source.size());
  require(edges.names.empty() || edges.names.size() == static_cast<std::size_t>(edges.num_nodes));
  for (std::size_t e = 0; e < edges.source.size(); ++e) {
    require(edges.source[e] >= 0 && edges.source[e] < edges.num_nodes);
    require(edges.target[e] >= 0 && edges.target[e] < edges.num_nodes);
  }
  for (const float weight : edges.weight) require(weight - weight == 0);
}

[[maybe_unused]] void check_result(const topomask::Points& points) {
  require(points.count >= 1 && points.dimension >= 1);
  require(points.coordinate.size() == static_cast<std::size_t>(points.count * points.dimension));
  for (const double x : points.coordinate) require(x - x == 0);
}

[[maybe_unused]] void check_result(const topomask::ImageRecords& records) {
  const std::int64_t pixels = records.channels * records.height * records.width;
  require(records.labels.size() == static_cast<std::size_t>(records.count));
  require(records.pixels.size() == static_cast<std::size_t>(records.count * pixels));
}

[[maybe_unused]] void check_result(const topomask::IdxArray& array) {
  // Doubles, because extents beside a zero may be anything.
  double elements = 1;
  for (const std::int64_t extent : array.shape) elements *= static_cast<double>(extent);
  require(static_cast<double>(array.bytes.size()) == elements);
}

[[maybe_unused]] void check_result(const topomask::RgbImage& image) {
  require(image.pixels.size() == static_cast<std::size_t>(image.width) * image.height * 3);
}

[[maybe_unused]] void check_result(const topomask::RobotEpisode& episode) {
  const std::string bytes = topomask::format_robot_episode(episode);
  require(topomask::format_robot_episode(topomask::parse_robot_episode(bytes, "again")) == bytes);
  topomask::RenderOptions small;
  small.width = small.height = 8;
  small.samples = 1;
  require(topomask::render_robot(episode, episode.frames - 1, 0, small).depth.size() == 64);
}

// Every pixel of a clip is written; before that it is 0 or 255.
struct Clip {
  std::vector<std::uint8_t> black, white;
};

[[maybe_unused]] void check_result(const Clip& clip) {
  require(clip.black == clip.white);
}

[[maybe_unused]] void check_result(const topomask::NpyArray& array) {
  require(topomask::parse_npy(topomask::format_npy(array), "again").bytes == array.bytes);
}

[[maybe_unused]] void check_result(const topomask::SafetensorsHeader& header) {
  std::uint64_t bytes = 0;
  for (const auto& [name, entry] : header.entries) bytes += entry.end - entry.begin;
  const std::string again = topomask::format_safetensors_header(header);
  const auto json = std::string_view(again).substr(topomask::kSafetensorsLengthBytes);
  require(topomask::parse_safetensors_header(json, bytes, "again").entries.size() == header.entries.size());
}

}  // namespace

namespace topomask {

// A few bytes can describe an image that takes seconds to decode; large ones only have their header read.
[[maybe_unused]] static RgbImage decode_small_image(std::string_view content, const std::string& name) {
  constexpr int kMostPixels = 1 << 18;
  const ImageExtent extent = read_image_extent(content, name);
  if (static_cast<std::int64_t>(extent.width) * extent.height > kMostPixels) return {};
  try {
    const Grey16Image depth = decode_grey16(content, name);
    require(depth.pixels.size() == static_cast<std::size_t>(extent.width) * extent.height);
  } catch (const Error&) {
  }
  RgbImage image = decode_image(content, name, 1 << content.size() % 4);
  std::vector<std::uint8_t> resized(3 * 8 * 8);
  resize_box(image, random_crop({image.width, image.height}, 0.1, content.size()), 8, 8, resized.data());
  return image;
}

[[maybe_unused]] static Clip decode_small_clip(std::string_view content, const std::string& name) {
  ClipChoice choice = {4, 2, 8, {}, 1 << 14};
  if (content.size() % 2 == 1) choice.crop = {0.3, content.size()};
  Clip clip{std::vector<std::uint8_t>(4 * 3 * 8 * 8, 0), std::vector<std::uint8_t>(4 * 3 * 8 * 8, 255)};
  decode_clip(content, name, choice, clip.black.data());
  decode_clip(content, name, choice, clip.white.data());
  return clip;
}

}  // namespace topomask

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view content(reinterpret_cast<const char*>(data), size);
  try {
    check_result(topomask::TOPOMASK_READER(content, "input"));
  } catch (const topomask::Error&) {
  }
  return 0;
}
