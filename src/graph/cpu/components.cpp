#include "graph/cpu/components.h"

#include <numeric>
#include <utility>

namespace topomask {
namespace {

// Path halving keeps the trees flat without recursion.
std::int32_t find_root(std::vector<std::int32_t>& parent, std::int32_t node) {
  while (parent[node] != node) {
    parent[node] = parent[parent[node]];
    node = parent[node];
  }
  return node;
}

}  // namespace

ComponentLabels weak_components(const CsrView& graph) {
  std::vector<std::int32_t> parent(static_cast<std::size_t>(graph.num_nodes));
  std::iota(parent.begin(), parent.end(), 0);
  for (std::int64_t i = 0; i < graph.num_nodes; ++i) {
    std::int32_t root = find_root(parent, static_cast<std::int32_t>(i));
    for (std::int64_t e = graph.row_ptr[i]; e < graph.row_ptr[i + 1]; ++e) {
      std::int32_t other = find_root(parent, graph.col[e]);
      // The smaller node is the root, so that components come out numbered by their smallest node.
      if (other < root) std::swap(root, other);
      parent[other] = root;
    }
  }
  ComponentLabels components;
  components.label.resize(parent.size());
  for (std::int64_t i = 0; i < graph.num_nodes; ++i) {
    const std::int32_t root = find_root(parent, static_cast<std::int32_t>(i));
    if (root == i) {
      components.label[i] = static_cast<std::int32_t>(components.size.size());
      components.size.push_back(0);
    } else {
      components.label[i] = components.label[root];
    }
    ++components.size[components.label[i]];
  }
  return components;
}

}  // namespace topomask
