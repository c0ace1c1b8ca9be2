// Graphs from files and from one-line descriptions.
//
// Readers return an EdgeList; every malformed file is one topomask::Error naming the file, the place and what
// was expected there. Nothing here includes torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topomask/edge_list.h"

namespace topomask {

// Each reader takes the whole (already decompressed) content; `name` is used in error messages only.
EdgeList read_matrix_market(std::string_view content, const std::string& name);
EdgeList read_edge_list(std::string_view content, const std::string& name);  // txt, tsv, csv
EdgeList read_gml(std::string_view content, const std::string& name);
EdgeList read_npz(std::string_view content, const std::string& name);  // SciPy CSR, node-classification archives
EdgeList read_obj(std::string_view content, const std::string& name);  // mesh: vertex graph
EdgeList read_ply(std::string_view content, const std::string& name);  // mesh: ascii and both binary kinds

// Chooses the reader by extension: .mtx .txt .tsv .csv .edges .gml .npz .obj .ply, each also with .gz or .xz.
EdgeList read_graph_file(const std::string& path);

// Point coordinates for a kNN graph: the vertices of .obj/.ply, the rows of .npy/.txt/.csv.
struct Points {
  std::int64_t count = 0;
  std::int64_t dimension = 0;
  std::vector<float> coordinate;  // [count, dimension], finite
};
Points read_points_file(const std::string& path);

// "new id <tab> name in the file" per line.
void write_node_ids(const EdgeList& edges, const std::string& path);

// The whole content of a file, decompressed if it ends in .gz or .xz (at most `limit` bytes).
std::string read_file(const std::string& path, std::uint64_t limit = std::uint64_t{1} << 34);

}  // namespace topomask
