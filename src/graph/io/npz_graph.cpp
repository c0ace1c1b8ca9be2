// Graphs in .npz archives: SciPy matrices, adj_* archives (Cora, CiteSeer) and edge arrays with node labels.
#include <algorithm>

#include "core/check.h"
#include "graph/io/matrix_entries.h"
#include "io/npy_values.h"
#include "io/npz.h"
#include "io/text.h"
#include "topomask/graph_io.h"

namespace topomask {

namespace {

class Reader {
 public:
  Reader(std::string_view content, const std::string& name, const ReadOptions& options)
      : archive_(content, name, options), name_(name) {}

  EdgeList read() {
    if (archive_.has("format") && archive_.has("shape")) return read_scipy();
    if (archive_.has("adj_indptr") && archive_.has("adj_indices")) return read_adjacency();
    if (archive_.has("edges")) return read_edges();
    fail(
        "{}: expected a SciPy matrix (format, shape, data, ...), adj_indptr and adj_indices, or edges, got "
        "the arrays {}",
        name_, quoted(fmt::format("{}", fmt::join(archive_.keys(), " "))));
  }

 private:
  std::vector<std::int64_t> read_integers(const std::string& key) const {
    const NpyArray array = archive_.read(key);
    check(array.shape.size() == 1, "{}: expected one dimension, got shape ({})", archive_.place(key),
          fmt::join(array.shape, ", "));
    return integer_values(array, archive_.place(key));
  }

  void read_shape(const std::string& key) {
    const std::vector<std::int64_t> shape = read_integers(key);
    check(shape.size() == 2 && shape[0] == shape[1] && shape[0] >= 0,
          "{}: expected the shape of a square matrix, got ({})", archive_.place(key), fmt::join(shape, ", "));
    set_num_nodes(shape[0], key);
  }

  void set_num_nodes(std::int64_t num_nodes, const std::string& key) {
    check(num_nodes >= 0 && num_nodes <= kMaxNodes, "{}: expected 0 to {} nodes, got {}", archive_.place(key),
          kMaxNodes, num_nodes);
    edges_.num_nodes = num_nodes;
  }

  std::int32_t checked_node(std::int64_t node, const std::string& key) const {
    // No check(): building its arguments would cost more than the test.
    if (node < 0 || node >= edges_.num_nodes) {
      fail("{}: expected node ids from 0 to {}, got {}", archive_.place(key), edges_.num_nodes - 1, node);
    }
    return static_cast<std::int32_t>(node);
  }

  void set_nodes(std::vector<std::int32_t>& nodes, const std::string& key) const {
    const std::vector<std::int64_t> values = read_integers(key);
    nodes.reserve(values.size());
    for (const std::int64_t node : values) nodes.push_back(checked_node(node, key));
  }

  // Fills `major` with the row (CSC: column) of every stored entry.
  void unfold_pointers(const std::string& key, std::size_t entries, std::vector<std::int32_t>& major) const {
    const std::vector<std::int64_t> pointers = read_integers(key);
    check(!pointers.empty() && static_cast<std::int64_t>(pointers.size()) == edges_.num_nodes + 1 &&
              pointers.front() == 0 && pointers.back() == static_cast<std::int64_t>(entries),
          "{}: expected {} pointers from 0 to {}, got {}", archive_.place(key), edges_.num_nodes + 1, entries,
          pointers.size());
    major.reserve(entries);
    for (std::size_t node = 0; node + 1 < pointers.size(); ++node) {
      if (pointers[node] > pointers[node + 1] || pointers[node + 1] > pointers.back()) {
        fail("{}: expected pointers that never decrease, got {} after {}", archive_.place(key),
             pointers[node + 1], pointers[node]);
      }
      major.resize(static_cast<std::size_t>(pointers[node + 1]), static_cast<std::int32_t>(node));
    }
  }

  void read_weights(const std::string& key) {
    const NpyArray data = archive_.read(key);
    check(data.shape.size() == 1 && data.size() == static_cast<std::int64_t>(edges_.source.size()),
          "{}: expected {} values, got shape ({})", archive_.place(key), edges_.source.size(),
          fmt::join(data.shape, ", "));
    edges_.weight = finite_values(data, archive_.place(key));
  }

  EdgeList read_scipy() {
    const std::vector<std::string> format = string_values(archive_.read("format"), archive_.place("format"));
    const std::string kind = format.empty() ? "" : format[0];
    check(kind == "csr" || kind == "csc" || kind == "coo", "{}: expected csr, csc or coo, got {}",
          archive_.place("format"), quoted(kind));
    read_shape("shape");
    if (kind == "coo") {
      set_nodes(edges_.source, "row");
      set_nodes(edges_.target, "col");
      check(edges_.source.size() == edges_.target.size(), "{}: expected {} columns as there are rows, got {}",
            archive_.place("col"), edges_.source.size(), edges_.target.size());
    } else {
      set_nodes(kind == "csr" ? edges_.target : edges_.source, "indices");
      unfold_pointers("indptr", std::max(edges_.source.size(), edges_.target.size()),
                      kind == "csr" ? edges_.source : edges_.target);
    }
    read_weights("data");
    check_plausible("shape");
    undirect_if_symmetric(edges_);
    return std::move(edges_);
  }

  // Citation archives list each edge once or in both directions; the graph is undirected either way.
  EdgeList read_adjacency() {
    if (archive_.has("adj_shape")) {
      read_shape("adj_shape");
    } else {
      const std::vector<std::int64_t> shape = archive_.shape("adj_indptr").value();
      set_num_nodes(shape.empty() ? 0 : shape[0] - 1, "adj_indptr");
    }
    set_nodes(edges_.target, "adj_indices");
    unfold_pointers("adj_indptr", edges_.target.size(), edges_.source);
    if (archive_.has("adj_data")) read_weights("adj_data");
    undirect_if_symmetric(edges_);
    edges_.directed = false;
    read_names("node_names");
    return std::move(edges_);
  }

  EdgeList read_edges() {
    const NpyArray pairs = archive_.read("edges");
    check(pairs.shape.size() == 2 && pairs.shape[1] == 2, "{}: expected shape (edges, 2), got ({})",
          archive_.place("edges"), fmt::join(pairs.shape, ", "));
    const std::vector<std::int64_t> ends = integer_values(pairs, archive_.place("edges"));
    count_nodes_of_edges(ends);
    edges_.source.reserve(ends.size() / 2);
    edges_.target.reserve(ends.size() / 2);
    for (std::size_t e = 0; e + 1 < ends.size(); e += 2) {
      edges_.source.push_back(checked_node(ends[e], "edges"));
      edges_.target.push_back(checked_node(ends[e + 1], "edges"));
    }
    check_plausible("edges");
    return std::move(edges_);
  }

  // The nodes are the rows of node_labels or node_features; without both, the ids tell.
  void count_nodes_of_edges(const std::vector<std::int64_t>& ends) {
    for (const char* key : {"node_labels", "node_features"}) {
      const std::optional<std::vector<std::int64_t>> shape = archive_.shape(key);
      if (shape && !shape->empty()) return set_num_nodes(shape->front(), key);
    }
    std::int64_t largest = -1;
    for (const std::int64_t node : ends) largest = std::max(largest, node);
    check(largest < kMaxNodes, "{}: expected node ids below {}, got {}", archive_.place("edges"), kMaxNodes,
          largest);
    set_num_nodes(largest + 1, "edges");
  }

  void check_plausible(const std::string& key) const {
    check(plausible_node_count(edges_.num_nodes, static_cast<std::int64_t>(edges_.source.size())),
          "{}: {} nodes for only {} edges are not plausible", archive_.place(key), edges_.num_nodes,
          edges_.source.size());
  }

  // Names that do not fit the nodes, or are pickled objects, are left out: the graph is complete without
  // them.
  void read_names(const std::string& key) {
    const std::optional<NpyArray> array = archive_.read_if_supported(key);
    if (!array || array->shape.size() != 1 || array->shape[0] != edges_.num_nodes) return;
    if (array->dtype[1] == 'U' || array->dtype[1] == 'S')
      edges_.names = string_values(*array, archive_.place(key));
  }

  NpzArchive archive_;
  const std::string& name_;
  EdgeList edges_;
};

}  // namespace

EdgeList read_npz(std::string_view content, const std::string& name, const ReadOptions& options) {
  check(!content.empty(), "{}: expected a zip archive (.npz), got an empty file", name);
  return Reader(content, name, options).read();
}

}  // namespace topomask
