// Feeds arbitrary bytes to one reader (TOPOMASK_READER). It may reject them with topomask::Error and nothing
// else; what it accepts must keep the promises of its header.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "graph/io/safetensors_header.h"
#include "topomask/error.h"
#include "topomask/graph_io.h"
#include "topomask/npy.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_result(const topomask::EdgeList& edges) {
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

void check_result(const topomask::NpyArray& array) {
  require(topomask::parse_npy(topomask::format_npy(array), "again").bytes == array.bytes);
}

void check_result(const topomask::SafetensorsHeader& header) {
  std::uint64_t bytes = 0;
  for (const auto& [name, entry] : header.entries) bytes += entry.end - entry.begin;
  const std::string again = topomask::format_safetensors_header(header);
  const auto json = std::string_view(again).substr(topomask::kSafetensorsLengthBytes);
  require(topomask::parse_safetensors_header(json, bytes, "again").entries.size() == header.entries.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view content(reinterpret_cast<const char*>(data), size);
  try {
    check_result(topomask::TOPOMASK_READER(content, "input"));
  } catch (const topomask::Error&) {
  }
  return 0;
}
