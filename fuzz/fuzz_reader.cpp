// Feeds arbitrary bytes to one reader (TOPOMASK_READER). It may reject them with topomask::Error and nothing
// else; what it accepts must keep the promises of its header.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "data/io/image.h"
#include "data/io/records.h"
#include "data/io/video.h"
#include "graph/io/edge_stream.h"
#include "io/safetensors_header.h"
#include "robot/cpu/index.h"
#include "topomask/error.h"
#include "topomask/graph_io.h"
#include "topomask/npy.h"
#include "topomask/robot.h"
#include "topomask/shard_index.h"

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

// A table read line by line, and what read_edge_list makes of it.
struct StreamedEdges {
  topomask::EdgeList streamed, whole;
};

[[maybe_unused]] void check_result(const StreamedEdges& edges) {
  check_result(edges.streamed);
  require(edges.streamed.num_nodes == edges.whole.num_nodes && edges.streamed.names == edges.whole.names);
  require(edges.streamed.source == edges.whole.source && edges.streamed.target == edges.whole.target);
  require(edges.streamed.weight == edges.whole.weight);
}

[[maybe_unused]] void check_result(const topomask::ShardIndex& index) {
  require(index.parts >= 1 && index.shards.size() == static_cast<std::size_t>(index.parts));
  require(index.files.size() == index.shards.size() && index.out_degree >= -1);
  std::int64_t nodes = 0, entries = 0;
  for (const topomask::PartSummary& shard : index.shards) {
    require(shard.nodes >= 0 && shard.entries >= 0 && shard.halo >= 0 && shard.sends >= 0);
    nodes += shard.nodes;
    entries += shard.entries;
  }
  require(nodes == index.nodes && entries == index.entries);
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

[[maybe_unused]] void check_result(const topomask::RobotIndex& index) {
  const std::string text = topomask::robot::format_robot_index(index);
  require(topomask::robot::format_robot_index(topomask::robot::parse_robot_index(text, "again")) == text);
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

// The stream wants a file: one in memory, without a name. Either both readers take it or neither.
[[maybe_unused]] static StreamedEdges stream_edges(std::string_view content, const std::string& name) {
  static const int file = memfd_create("edges", 0);
  require(ftruncate(file, 0) == 0);
  require(pwrite(file, content.data(), content.size(), 0) == static_cast<ssize_t>(content.size()));
  StreamedEdges edges;
  bool accepted = false;
  try {
    edges.whole = read_edge_list(content, name);
    accepted = !edges.whole.source.empty();  // a stream has at least one edge
  } catch (const Error&) {
  }
  try {
    EdgeStreamOptions options;
    options.buffer_bytes = 1 + content.size() % 64;
    const EdgeStream stream("/proc/self/fd/" + std::to_string(file), options);
    EdgeList& found = edges.streamed;
    found.num_nodes = stream.num_nodes();
    stream.for_each_edge([&](std::int32_t source, std::int32_t target, float weight) {
      found.source.push_back(source);
      found.target.push_back(target);
      if (stream.weighted()) found.weight.push_back(weight);
    });
    for (std::int32_t i = 0; stream.has_names() && i < stream.num_nodes(); ++i)
      stream.append_name(i, found.names.emplace_back());
  } catch (const Error&) {
    require(!accepted);
    throw;
  }
  require(accepted);
  return edges;
}

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
