#include <algorithm>
#include <array>
#include <utility>

#include "core/check.h"
#include "core/suggest.h"
#include "io/files.h"
#include "topomask/graph_io.h"

namespace topomask {

namespace {

using ReadContent = EdgeList (*)(std::string_view content, const std::string& name);

constexpr ReadContent kReadArchive = nullptr;  // read_npz, which unpacks under the options

constexpr std::array<std::pair<std::string_view, ReadContent>, 9> kReaders{{{".mtx", read_matrix_market},
                                                                            {".txt", read_edge_list},
                                                                            {".tsv", read_edge_list},
                                                                            {".csv", read_edge_list},
                                                                            {".edges", read_edge_list},
                                                                            {".gml", read_gml},
                                                                            {".npz", kReadArchive},
                                                                            {".obj", read_obj},
                                                                            {".ply", read_ply}}};

// A name on one line of a tab-separated file.
void append_escaped(std::string& text, std::string_view name) {
  for (const char c : name) {
    if (c == '\t') {
      text += "\\t";
    } else if (c == '\n') {
      text += "\\n";
    } else if (c == '\\') {
      text += "\\\\";
    } else {
      text += c;
    }
  }
}

}  // namespace

EdgeList read_graph_file(const std::string& path, const ReadOptions& options) {
  const std::string extension = content_extension(path);
  const auto reader = std::find_if(kReaders.begin(), kReaders.end(),
                                   [&](const auto& known) { return known.first == extension; });
  if (reader == kReaders.end()) {
    const std::vector<std::string> known = graph_file_extensions();
    fail("cannot read a graph from '{}': expected one of {} (also with .gz or .xz), got the extension '{}'{}",
         path, fmt::join(known, " "), extension, did_you_mean(extension, known));
  }
  const std::string content = read_file(path, options);
  EdgeList edges =
      reader->second == kReadArchive ? read_npz(content, path, options) : reader->second(content, path);
  if (edges.source.empty()) {
    const bool mesh = extension == ".obj" || extension == ".ply";
    edges.warnings.push_back(fmt::format("{}: {} nodes and no edges{}", path, edges.num_nodes,
                                         mesh ? fmt::format(" (knn:{} joins near vertices)", path) : ""));
  }
  return edges;
}

std::vector<std::string> graph_file_extensions() {
  std::vector<std::string> known;
  for (const auto& [name, read] : kReaders) known.emplace_back(name);
  return known;
}

void write_node_ids(std::int64_t num_nodes, const std::vector<std::string>& names, const std::string& path) {
  check(names.empty() || static_cast<std::int64_t>(names.size()) == num_nodes,
        "write_node_ids: expected a name for each of {} nodes, got {}", num_nodes, names.size());
  std::string text;
  for (std::int64_t node = 0; node < num_nodes; ++node) {
    const fmt::format_int number(node);
    text += number.c_str();
    text += '\t';
    if (names.empty()) {
      text += number.c_str();
    } else {
      append_escaped(text, names[static_cast<std::size_t>(node)]);
    }
    text += '\n';
  }
  write_file(path, text);
}

}  // namespace topomask
