#include "graph/cpu/knn.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "core/check.h"
#include "core/parallel.h"
#include "graph/cpu/knn_rows.h"
#include "graph/cpu/limits.h"

namespace topomask {
namespace {

// A tree stops pruning when most boxes touch the ball around the query, at about ten dimensions.
constexpr std::int64_t kMaxTreeDimension = 8;
// Fewer points than this are looked through faster than they are sorted.
constexpr std::int64_t kFewPoints = 128;

KnnMethod method_for(std::int64_t points, std::int64_t dimension) {
  if (points <= kFewPoints || dimension > kMaxTreeDimension) return KnnMethod::scan;
  return dimension <= 3 ? KnnMethod::cells : KnnMethod::tree;
}

template <class T>
NeighbourSearch<T> search_in_graph(const NeighbourSearch<T>& all, const PackedGraphs& graphs,
                                   std::int64_t graph) {
  NeighbourSearch<T> part = all;
  part.points = all.points.part(graphs.ptr[graph], graphs.ptr[graph + 1]);
  part.queries = all.queries.part(graphs.query_ptr[graph], graphs.query_ptr[graph + 1]);
  return part;
}

// Calls work(graph) for every graph: large ones one after the other, each on all threads, then the others,
// each on one.
void for_graphs(const PackedGraphs& graphs, const std::function<void(std::int64_t)>& work) {
  constexpr std::int64_t kLarge = 16384;
  std::vector<std::int64_t> others;
  for (std::int64_t g = 0; g < graphs.count(); ++g) {
    const std::int64_t queries = graphs.query_ptr[g + 1] - graphs.query_ptr[g];
    if (queries >= kLarge) {
      work(g);
    } else if (queries > 0) {
      others.push_back(g);
    }
  }
  constexpr std::int64_t kRun = 4;
  const auto count = static_cast<std::int64_t>(others.size());
  if (count == 1) {
    work(others[0]);
    return;
  }
  for_runs(count, kRun, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) work(others[i]);
  });
}

}  // namespace

template <class T>
void nearest_neighbours(const NeighbourSearch<T>& search, const NeighbourLists<T>& out, KnnMethod method) {
  check(method != KnnMethod::cells || search.dimension() <= 3, "knn: cells need 1 to 3 dimensions, got {}",
        search.dimension());
  if (method == KnnMethod::automatic) method = method_for(search.points.count, search.dimension());
  if (method == KnnMethod::scan) {
    nearest_by_scan(search, out);
  } else if (method == KnnMethod::tree) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(search.queries.count));
    std::iota(all.begin(), all.end(), 0);
    nearest_by_tree<T>(search, out, all);
  } else {
    const std::vector<std::int32_t> rest = nearest_by_cells(search, out);
    if (!rest.empty()) nearest_by_tree<T>(search, out, rest);
  }
}

template <class T>
void nearest_neighbours(const NeighbourSearch<T>& search, const PackedGraphs& graphs,
                        const NeighbourLists<T>& out) {
  for_graphs(graphs, [&](std::int64_t g) {
    nearest_neighbours(search_in_graph(search, graphs, g), out.from(graphs.query_ptr[g], graphs.ptr[g]));
  });
}

template <class T>
void neighbours_within(const NeighbourSearch<T>& search, const PackedGraphs& graphs, std::int64_t* row_ptr,
                       const std::function<RadiusRows<T>(std::int64_t entries)>& allocate) {
  // Blocks of queries, each with its own rows.
  struct Block {
    std::int64_t begin;  // first query
    RowBlock<T> rows;
  };
  constexpr std::int64_t kBlock = 1024;
  std::atomic<std::int64_t> entries = 0;
  std::vector<std::vector<Block>> blocks(static_cast<std::size_t>(graphs.count()));
  for_graphs(graphs, [&](std::int64_t g) {
    const NeighbourSearch<T> part = search_in_graph(search, graphs, g);
    const std::int64_t first_query = graphs.query_ptr[g], queries = part.queries.count;
    const KnnMethod method = method_for(part.points.count, part.dimension());
    std::unique_ptr<WithinFinder<T>> finder;
    if (method == KnnMethod::cells) finder = within_by_cells(part);
    if (finder == nullptr) finder = method == KnnMethod::scan ? within_by_scan(part) : within_by_tree(part);
    blocks[g].resize(static_cast<std::size_t>((queries + kBlock - 1) / kBlock));
    for_runs(queries, kBlock, [&](std::int64_t begin, std::int64_t end) {
      Block& block = blocks[g][begin / kBlock];
      block.begin = first_query + begin;
      finder->run(begin, end, static_cast<std::int32_t>(graphs.ptr[g]), block.rows);
      // Before memory runs out.
      check_num_entries("radius",
                        static_cast<double>(entries += static_cast<std::int64_t>(block.rows.col.size())));
    });
  });

  std::fill_n(row_ptr, search.queries.count + 1, 0);
  std::vector<const Block*> all;
  for (const auto& of_graph : blocks) {
    for (const Block& block : of_graph) {
      all.push_back(&block);
      std::copy(block.rows.length.begin(), block.rows.length.end(), row_ptr + block.begin + 1);
    }
  }
  std::partial_sum(row_ptr, row_ptr + search.queries.count + 1, row_ptr);
  const RadiusRows<T> out = allocate(row_ptr[search.queries.count]);
  for_runs(static_cast<std::int64_t>(all.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t first = row_ptr[all[b]->begin];
      std::copy(all[b]->rows.col.begin(), all[b]->rows.col.end(), out.col + first);
      std::copy(all[b]->rows.distance2.begin(), all[b]->rows.distance2.end(), out.distance2 + first);
    }
  });
}

void select_nearest(std::vector<Neighbour>& found, std::int64_t k) {
  constexpr std::size_t kFew = 48;
  const auto wanted = std::min(static_cast<std::size_t>(k), found.size());
  if (found.size() > kFew) {
    std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(wanted), found.end());
    return;
  }
  // Insertion into the k best so far: the list is short, and this is the inner loop of a query.
  for (std::size_t i = 1; i < found.size(); ++i) {
    const Neighbour moving = found[i];
    std::size_t to = std::min(i, wanted);
    if (to == 0) return;
    if (to < i && !(moving < found[to - 1])) continue;
    if (to < i) --to;
    for (; to > 0 && moving < found[to - 1]; --to) found[to] = found[to - 1];
    found[to] = moving;
  }
}

template <class T>
void NeighbourLists<T>::write(std::int64_t query, std::vector<Neighbour>& found) const {
  select_nearest(found, k);
  const std::int64_t have = std::min(k, static_cast<std::int64_t>(found.size()));
  std::int32_t* row = index + query * k;
  for (std::int64_t j = 0; j < have; ++j) row[j] = first_point + found[j].index;
  std::fill(row + have, row + k, -1);
  if (distance2 != nullptr) {
    T* distances = distance2 + query * k;
    for (std::int64_t j = 0; j < have; ++j) distances[j] = static_cast<T>(found[j].squared_distance);
    std::fill(distances + have, distances + k, std::numeric_limits<T>::infinity());
  }
  if (count != nullptr) count[query] = static_cast<std::int32_t>(have);
}

template struct NeighbourLists<float>;
template struct NeighbourLists<double>;
template void nearest_neighbours(const NeighbourSearch<float>&, const NeighbourLists<float>&, KnnMethod);
template void nearest_neighbours(const NeighbourSearch<double>&, const NeighbourLists<double>&, KnnMethod);
template void nearest_neighbours(const NeighbourSearch<float>&, const PackedGraphs&,
                                 const NeighbourLists<float>&);
template void nearest_neighbours(const NeighbourSearch<double>&, const PackedGraphs&,
                                 const NeighbourLists<double>&);
template void neighbours_within(const NeighbourSearch<float>&, const PackedGraphs&, std::int64_t*,
                                const std::function<RadiusRows<float>(std::int64_t)>&);
template void neighbours_within(const NeighbourSearch<double>&, const PackedGraphs&, std::int64_t*,
                                const std::function<RadiusRows<double>(std::int64_t)>&);

}  // namespace topomask
