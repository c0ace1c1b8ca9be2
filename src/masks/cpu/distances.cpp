#include "masks/cpu/distances.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "core/interruption.h"
#include "core/parallel.h"

namespace topomask {

namespace {

constexpr std::int64_t kSourcesAtOnce = 16;
constexpr std::int64_t kLookUpGrain = 1 << 16;

// Breadth-first search that may be started again and again without clearing N marks.
class Search {
 public:
  explicit Search(const CsrView& graph) : graph_(graph), mark_(graph.num_nodes, -1) {}

  // Calls visit(node, hops) for the source and for every node within max_hops of it, nearest first.
  template <class Visit>
  void run(std::int64_t source, std::int64_t max_hops, Visit&& visit) {
    queue_.assign(1, static_cast<std::int32_t>(source));
    mark_[source] = source;
    visit(static_cast<std::int32_t>(source), std::int64_t{0});
    std::size_t begin = 0;
    for (std::int64_t hop = 1; hop <= max_hops && begin < queue_.size(); ++hop) {
      const std::size_t end = queue_.size();
      for (; begin < end; ++begin) {
        const std::int32_t node = queue_[begin];
        for (std::int64_t entry = graph_.row_ptr[node]; entry < graph_.row_ptr[node + 1]; ++entry) {
          const std::int32_t next = graph_.col[entry];
          if (mark_[next] == source) continue;
          mark_[next] = source;
          queue_.push_back(next);
          visit(next, hop);
        }
      }
    }
  }

 private:
  const CsrView& graph_;
  std::vector<std::int64_t> mark_;  // the last source that reached a node
  std::vector<std::int32_t> queue_;
};

}  // namespace

void all_pairs_distances(const CsrView& graph, int max_distance, std::uint8_t* distance) {
  const std::int64_t n = graph.num_nodes;
  parallel_for(n, kSourcesAtOnce, [&](std::int64_t begin, std::int64_t end) {
    Search search(graph);
    for (std::int64_t source = begin; source < end; ++source) {
      if (source % kSourcesAtOnce == 0) poll_interruption();
      std::uint8_t* row = distance + source * n;
      std::fill_n(row, n, static_cast<std::uint8_t>(max_distance + 1));
      search.run(source, max_distance,
                 [&](std::int32_t node, std::int64_t hop) { row[node] = static_cast<std::uint8_t>(hop); });
    }
  });
}

CsrArrays neighbourhoods(const CsrView& graph, int hops, bool include_self) {
  const std::int64_t n = graph.num_nodes;
  CsrArrays rows;
  rows.row_ptr.assign(n + 1, 0);
  std::vector<std::pair<std::int64_t, std::vector<std::int32_t>>>
      pieces;  // first row, its and the next rows' columns
  std::mutex guard;
  parallel_for(n, kSourcesAtOnce, [&](std::int64_t begin, std::int64_t end) {
    Search search(graph);
    std::vector<std::int32_t> columns;
    for (std::int64_t source = begin; source < end; ++source) {
      if (source % kSourcesAtOnce == 0) poll_interruption();
      const auto first = static_cast<std::ptrdiff_t>(columns.size());
      search.run(source, hops, [&](std::int32_t node, std::int64_t) {
        if (node != source || include_self) columns.push_back(node);
      });
      std::sort(columns.begin() + first, columns.end());
      rows.row_ptr[source + 1] = static_cast<std::int64_t>(columns.size()) - first;
    }
    const std::lock_guard<std::mutex> lock(guard);
    pieces.emplace_back(begin, std::move(columns));
  });
  for (std::int64_t row = 0; row < n; ++row) rows.row_ptr[row + 1] += rows.row_ptr[row];
  rows.col.resize(rows.row_ptr[n]);
  for (const auto& [first, columns] : pieces)
    std::copy(columns.begin(), columns.end(), rows.col.begin() + rows.row_ptr[first]);
  return rows;
}

template <class Real>
void look_up(const std::uint8_t* key, std::int64_t count, const Real* table, std::int64_t heads,
             std::int64_t size, Real* out) {
  for (std::int64_t head = 0; head < heads; ++head) {
    const Real* values = table + head * size;
    parallel_for(count, kLookUpGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t e = begin; e < end; ++e) out[head * count + e] = values[key[e]];
    });
  }
}

template <class Real>
void look_up_backward(const std::uint8_t* key, std::int64_t count, const Real* grad_out, std::int64_t heads,
                      std::int64_t size, Real* grad_table) {
  // Chunks of fixed size and sums in double, added in order: the threads do not show in the result.
  const std::int64_t chunks = (count + kLookUpGrain - 1) / kLookUpGrain;
  for (std::int64_t head = 0; head < heads; ++head) {
    std::vector<double> sums(static_cast<std::size_t>(chunks * size), 0.0);
    parallel_for(chunks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t chunk = begin; chunk < end; ++chunk) {
        double* sum = sums.data() + chunk * size;
        const std::int64_t last = std::min(count, (chunk + 1) * kLookUpGrain);
        for (std::int64_t e = chunk * kLookUpGrain; e < last; ++e) sum[key[e]] += grad_out[head * count + e];
      }
    });
    for (std::int64_t k = 0; k < size; ++k) {
      double total = 0;
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) total += sums[chunk * size + k];
      grad_table[head * size + k] = static_cast<Real>(total);
    }
  }
}

template void look_up<float>(const std::uint8_t*, std::int64_t, const float*, std::int64_t, std::int64_t,
                             float*);
template void look_up<double>(const std::uint8_t*, std::int64_t, const double*, std::int64_t, std::int64_t,
                              double*);
template void look_up_backward<float>(const std::uint8_t*, std::int64_t, const float*, std::int64_t,
                                      std::int64_t, float*);
template void look_up_backward<double>(const std::uint8_t*, std::int64_t, const double*, std::int64_t,
                                       std::int64_t, double*);

}  // namespace topomask
