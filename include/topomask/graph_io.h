// Graphs and points from files.
//
// Readers return an EdgeList; every malformed file is one topomask::Error naming the file, the place and what
// was expected there. Nothing here includes torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topomask/edge_list.h"
#include "topomask/read_options.h"

namespace topomask {

// Each reader takes the whole (already decompressed) content; `name` is used in error messages only. An
// undirected result lists each edge as often as the file does, except that of a symmetric matrix one half is
// kept.

// Coordinate or array; real, integer or pattern; general, symmetric or skew-symmetric; square. A general
// matrix that equals its transpose is undirected, any other and a skew-symmetric one is directed. Zeros of
// the array format are no edges.
EdgeList read_matrix_market(std::string_view content, const std::string& name);

// Text tables (txt, tsv, csv): `source target`, `source target weight`, or `edge_id source target weight`
// with edge ids 0, 1, 2, ...; separated by commas, semicolons or else blanks; comments start with '#', '%' or
// '//'. Undirected.
// - A first row without integers is a header if all node ids below are integers. Where node ids are words,
//   it is one if its weight is no number, or if it reads source target, src dst, from to, node_1 node_2,
//   id_1 id_2 (or without _).
// - Integer ids keep their number if they are exactly 0..N-1, or if a comment above the first row says
//   "Nodes: N" with N above every id (then nodes without edges count). Otherwise, so also with gaps, they are
//   numbered in ascending order. Negative ids are an error.
// - If any id is not an integer, all ids are words, numbered in order of appearance.
EdgeList read_edge_list(std::string_view content, const std::string& name);

// Nodes in the order of the file, named by their label, else their id. An edge weighs what its `weight`, else
// its `value` says, else 1.
EdgeList read_gml(std::string_view content, const std::string& name);

// - A matrix saved with scipy.sparse.save_npz (csr, csc or coo): undirected if it equals its transpose.
// - adj_indptr, adj_indices[, adj_data, adj_shape, node_names] (Cora, CiteSeer): undirected.
// - edges [E, 2] with node_labels or node_features, whose rows are the nodes: undirected.
EdgeList read_npz(std::string_view content, const std::string& name, const ReadOptions& options = {});

// Meshes: the vertex graph, undirected, the sides of all polygons, triangle strips and lines once each. PLY
// in ascii and both binary kinds; sides in an element that is not understood are an error.
EdgeList read_obj(std::string_view content, const std::string& name);
EdgeList read_ply(std::string_view content, const std::string& name);

// Chooses the reader by extension: .mtx .txt .tsv .csv .edges .gml .npz .obj .ply, each also with .gz or .xz.
// A graph without edges is a warning.
EdgeList read_graph_file(const std::string& path, const ReadOptions& options = {});

// ".mtx", ".txt", ...
std::vector<std::string> graph_file_extensions();

// Point coordinates for a kNN graph: the vertices of .obj/.ply, the rows of .npy arrays and of
// .txt/.tsv/.csv/.xyz/.pts tables of numbers (header and comments allowed), each also with .gz or .xz.
struct Points {
  std::int64_t count = 0;
  std::int64_t dimension = 0;
  std::vector<double> coordinate;  // [count, dimension], as precise as in the file, finite as floats
};
Points read_points_file(const std::string& path, const ReadOptions& options = {});
Points read_point_table(std::string_view content, const std::string& name);  // the tables alone

// "node <tab> name" per line, the node itself where there are no names. `names`: [num_nodes] or empty; tabs,
// line ends and backslashes of names are escaped with a backslash.
void write_node_ids(std::int64_t num_nodes, const std::vector<std::string>& names, const std::string& path);

}  // namespace topomask
