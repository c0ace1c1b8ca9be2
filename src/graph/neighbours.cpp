#include "topomask/neighbours.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/check.h"
#include "core/parallel.h"
#include "graph/cpu/knn.h"
#include "graph/cpu/limits.h"
#include "graph/gpu.h"
#include "graph/neighbour_task.h"
#include "graph/tensors.h"

namespace topomask {
namespace {

void check_finite(const at::Tensor& points, const char* what, const char* where) {
  const auto first_bad = [&]<class T>(const T* x) {
    std::atomic<std::int64_t> first = points.numel();
    parallel_for(points.numel(), 65536, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        if (std::isfinite(x[i])) continue;
        std::int64_t before = first;
        while (i < before && !first.compare_exchange_weak(before, i)) {
        }
        return;
      }
    });
    return first.load();
  };
  const bool wide = points.scalar_type() == at::kDouble;
  const std::int64_t bad =
      wide ? first_bad(points.const_data_ptr<double>()) : first_bad(points.const_data_ptr<float>());
  if (bad == points.numel()) return;
  const double value =
      wide ? points.const_data_ptr<double>()[bad] : static_cast<double>(points.const_data_ptr<float>()[bad]);
  fail("{}: coordinate {} of {} {} is {}, expected a finite number", where, bad % points.size(1), what,
       bad / points.size(1), value);
}

// float64 stays, everything else becomes float32.
at::Tensor prepared(const at::Tensor& points, bool wide) {
  const at::Tensor ready = points.detach().to(wide ? at::kDouble : at::kFloat).contiguous();
  return ready.size(1) > 0 ? ready : at::zeros({ready.size(0), 1}, ready.options());
}

bool is_here(const at::Tensor& x, const at::Tensor& points) {
  return x.is_cpu() || x.device() == points.device();
}

at::Tensor checked_ptr(const at::Tensor& ptr, const at::Tensor& points, const char* name, const char* where) {
  const std::int64_t count = points.size(0);
  check(ptr.dim() == 1 && ptr.size(0) >= 1 && is_index(ptr) && is_here(ptr, points),
        "{}: expected {} [graphs+1] of int64 on the CPU or on {}, got {}", where, name, points.device().str(),
        describe(ptr));
  const at::Tensor ready = ptr.detach().to(at::kLong).contiguous();
  if (!ready.is_cpu()) return ready;
  const std::int64_t* at = ready.const_data_ptr<std::int64_t>();
  const std::int64_t graphs = ready.size(0) - 1;
  check(at[0] == 0, "{}: expected {} to begin with 0, got {}", where, name, at[0]);
  for (std::int64_t g = 0; g < graphs; ++g) {
    check(at[g] <= at[g + 1], "{}: expected {} not to descend, got {} after {} at position {}", where, name,
          at[g + 1], at[g], g + 1);
  }
  check(at[graphs] == count, "{}: expected {} to end with the number of rows {}, got {}", where, name, count,
        at[graphs]);
  return ready;
}

at::Tensor checked_box(const at::Tensor& box, const at::Tensor& points, const char* where) {
  check(box.dim() == 1 && box.size(0) == points.size(1) && !box.is_complex() && is_here(box, points),
        "{}: expected box [{}] of real numbers on the CPU or on {}, got {}", where, points.size(1),
        points.device().str(), describe(box));
  const at::Tensor ready = box.detach().to(at::kDouble).contiguous();
  if (!ready.is_cpu()) return ready;
  bool any = false;
  for (std::int64_t a = 0; a < ready.size(0); ++a) {
    const double length = ready.const_data_ptr<double>()[a];
    check(length >= 0 && std::isfinite(length),
          "{}: expected lengths of at least 0 in box (0: not periodic), got {} at position {}", where, length,
          a);
    any = any || length > 0;
  }
  return any ? ready : at::Tensor();
}

// The fewest points among which any query of the task looks, where that is known without waiting.
std::int64_t fewest_points(const NeighbourTask& task) {
  if (!task.ptr.defined()) return task.num_points();
  if (!task.ptr.is_cpu() || !task.query_ptr.is_cpu()) return 0;
  const std::int64_t *ptr = task.ptr.const_data_ptr<std::int64_t>(),
                     *query_ptr = task.query_ptr.const_data_ptr<std::int64_t>();
  std::int64_t fewest = task.num_points();
  for (std::int64_t g = 0; g + 1 < task.ptr.size(0); ++g) {
    if (query_ptr[g + 1] > query_ptr[g]) fewest = std::min(fewest, ptr[g + 1] - ptr[g]);
  }
  return fewest;
}

NeighbourTask on_cpu(NeighbourTask task) {
  const bool same = task.queries.is_same(task.points);
  task.points = task.points.cpu();
  task.queries = same ? task.points : task.queries.cpu();
  for (at::Tensor* x : {&task.ptr, &task.query_ptr, &task.box}) {
    if (x->defined()) *x = x->cpu();
  }
  return task;
}

template <class T>
NeighbourSearch<T> search_of(const NeighbourTask& task) {
  NeighbourSearch<T> search;
  search.points = {task.points.const_data_ptr<T>(), task.num_points(), task.points.size(1)};
  search.queries = {task.queries.const_data_ptr<T>(), task.num_queries(), task.points.size(1)};
  search.skip_own = task.skip_own;
  search.box = task.box.defined() ? task.box.const_data_ptr<double>() : nullptr;
  search.limit = task.limit;
  return search;
}

// The batch of a task; `one` is where the offsets of a single graph are kept.
PackedGraphs graphs_of(const NeighbourTask& task, std::vector<std::int64_t>& one) {
  const auto offsets = [](const at::Tensor& ptr) {
    return std::span<const std::int64_t>(ptr.const_data_ptr<std::int64_t>(),
                                         static_cast<std::size_t>(ptr.numel()));
  };
  if (task.ptr.defined()) return {offsets(task.ptr), offsets(task.query_ptr)};
  one = {0, task.num_points(), 0, task.num_queries()};
  return {{one.data(), 2}, {one.data() + 2, 2}};
}

void check_task(const NeighbourTask& task, const char* where) {
  check_finite(task.points, "point", where);
  if (!task.queries.is_same(task.points)) check_finite(task.queries, "query", where);
}

template <class T>
void nearest_on_cpu(const NeighbourTask& task, Neighbours& out) {
  std::vector<std::int64_t> one;
  NeighbourLists<T> lists;
  lists.k = task.k;
  lists.index = out.index.mutable_data_ptr<std::int32_t>();
  if (!task.only_index) {
    lists.distance2 = out.distance2.mutable_data_ptr<T>();
    lists.count = out.count.mutable_data_ptr<std::int32_t>();
  }
  nearest_neighbours(search_of<T>(task), graphs_of(task, one), lists);
}

template <class T>
NeighbourRows within_on_cpu(const NeighbourTask& task) {
  std::vector<std::int64_t> one;
  NeighbourRows rows;
  rows.row_ptr = at::empty({task.num_queries() + 1}, at::kLong);
  neighbours_within<T>(
      search_of<T>(task), graphs_of(task, one), rows.row_ptr.mutable_data_ptr<std::int64_t>(),
      [&](std::int64_t entries) {
        rows.col = at::empty({entries}, at::kInt);
        rows.distance2 = at::empty({entries}, task.points.options());
        return RadiusRows<T>{rows.col.mutable_data_ptr<std::int32_t>(), rows.distance2.mutable_data_ptr<T>()};
      });
  return rows;
}

double squared_radius(double r, const char* where) {
  check(r >= 0, "{}: expected a radius of at least 0, got {}", where, r);
  return r * r;
}

}  // namespace

void want_nearest(NeighbourTask& task, std::int64_t k, const char* where) {
  check(k >= 0, "{}: expected at least 0 neighbours, got {}", where, k);
  check_num_entries(where, static_cast<double>(task.num_queries()) * static_cast<double>(k));
  task.k = k;
  task.full = task.limit == std::numeric_limits<double>::infinity() &&
              fewest_points(task) >= k + (task.skip_own ? 1 : 0);
}

Neighbours nearest_of(NeighbourTask task, const char* where) {
  if (neighbours_run_on_cuda(task)) return nearest_cuda(task);
  const c10::Device device = task.points.device();
  task = on_cpu(std::move(task));
  check_task(task, where);
  Neighbours result;
  result.index = at::empty({task.num_queries(), task.k}, at::kInt);
  if (!task.only_index) {
    result.distance2 = at::empty({task.num_queries(), task.k}, task.points.options());
    result.count = at::empty({task.num_queries()}, at::kInt);
  }
  result.full = task.full;
  if (task.k == 0) {
    if (!task.only_index) result.count.zero_();  // the searches keep at least one
  } else if (task.points.scalar_type() == at::kDouble) {
    nearest_on_cpu<double>(task, result);
  } else {
    nearest_on_cpu<float>(task, result);
  }
  for (at::Tensor* x : {&result.index, &result.distance2, &result.count}) {
    if (x->defined()) *x = x->to(device);
  }
  return result;
}

NeighbourTask neighbour_task(const at::Tensor& points, const NeighbourOptions& options, const char* where) {
  check_points(points, where);
  NeighbourTask task;
  const at::Tensor& queries = options.queries;
  bool wide = points.scalar_type() == at::kDouble;
  if (queries.defined()) {
    check(queries.dim() == 2 && queries.is_floating_point() && queries.size(1) == points.size(1) &&
              queries.device() == points.device(),
          "{}: expected floating-point queries [Q, {}] on {}, got {}", where, points.size(1),
          points.device().str(), describe(queries));
    check_num_nodes(where, queries.size(0));
    wide = wide || queries.scalar_type() == at::kDouble;
  }
  if (options.ptr.defined()) {
    task.ptr = checked_ptr(options.ptr, points, "ptr", where);
    check(queries.defined() == options.query_ptr.defined(),
          "{}: expected query_ptr where there are both ptr and queries, and nowhere else", where);
    task.query_ptr = task.ptr;
    if (queries.defined()) {
      task.query_ptr = checked_ptr(options.query_ptr, queries, "query_ptr", where);
      check(task.query_ptr.size(0) == task.ptr.size(0),
            "{}: expected query_ptr to have as many graphs as ptr, {}, got {}", where, task.ptr.size(0) - 1,
            task.query_ptr.size(0) - 1);
    }
  } else {
    check(!options.query_ptr.defined(), "{}: expected ptr together with query_ptr, got query_ptr alone",
          where);
  }
  if (options.box.defined()) task.box = checked_box(options.box, points, where);
  task.points = prepared(points, wide);
  task.queries = queries.defined() ? prepared(queries, wide) : task.points;
  task.skip_own = !queries.defined() && !options.include_self.value_or(false);
  if (task.box.defined() && points.size(1) == 0) task.box = at::Tensor();
  return task;
}

Neighbours knn(const at::Tensor& points, std::int64_t k, const NeighbourOptions& options) {
  NeighbourTask task = neighbour_task(points, options, "knn");
  want_nearest(task, k, "knn");
  return nearest_of(std::move(task), "knn");
}

Neighbours radius_lists(const at::Tensor& points, double r, std::int64_t max_neighbours,
                        const NeighbourOptions& options) {
  NeighbourTask task = neighbour_task(points, options, "radius");
  task.limit = squared_radius(r, "radius");
  want_nearest(task, max_neighbours, "radius");
  return nearest_of(std::move(task), "radius");
}

NeighbourRows radius(const at::Tensor& points, double r, const NeighbourOptions& options) {
  NeighbourTask task = neighbour_task(points, options, "radius");
  task.limit = squared_radius(r, "radius");
  if (neighbours_run_on_cuda(task)) return within_cuda(task);
  const c10::Device device = task.points.device();
  task = on_cpu(std::move(task));
  check_task(task, "radius");
  NeighbourRows rows =
      task.points.scalar_type() == at::kDouble ? within_on_cpu<double>(task) : within_on_cpu<float>(task);
  for (at::Tensor* x : {&rows.row_ptr, &rows.col, &rows.distance2}) *x = x->to(device);
  return rows;
}

NeighbourRows rows_of(const Neighbours& neighbours) {
  if (neighbours.index.is_cuda()) return rows_of_cuda(neighbours);
  const std::int64_t queries = neighbours.index.size(0), k = neighbours.index.size(1);
  const std::int32_t *index = neighbours.index.const_data_ptr<std::int32_t>(),
                     *count = neighbours.count.const_data_ptr<std::int32_t>();
  NeighbourRows rows;
  rows.row_ptr = at::empty({queries + 1}, at::kLong);
  auto* row_ptr = rows.row_ptr.mutable_data_ptr<std::int64_t>();
  row_ptr[0] = 0;
  for (std::int64_t i = 0; i < queries; ++i) row_ptr[i + 1] = row_ptr[i] + count[i];
  rows.col = at::empty({row_ptr[queries]}, at::kInt);
  rows.distance2 = at::empty({row_ptr[queries]}, neighbours.distance2.options());
  auto* col = rows.col.mutable_data_ptr<std::int32_t>();
  const auto fill = [&]<class T>(const T* from, T* to) {
    parallel_for(queries, 4096, [&](std::int64_t begin, std::int64_t end) {
      std::vector<std::pair<std::int32_t, T>> row;
      for (std::int64_t i = begin; i < end; ++i) {
        row.clear();
        for (std::int64_t j = i * k; j < i * k + count[i]; ++j) row.emplace_back(index[j], from[j]);
        std::sort(row.begin(), row.end());
        for (std::size_t j = 0; j < row.size(); ++j) {
          col[row_ptr[i] + static_cast<std::int64_t>(j)] = row[j].first;
          to[row_ptr[i] + static_cast<std::int64_t>(j)] = row[j].second;
        }
      }
    });
  };
  if (neighbours.distance2.scalar_type() == at::kDouble) {
    fill(neighbours.distance2.const_data_ptr<double>(), rows.distance2.mutable_data_ptr<double>());
  } else {
    fill(neighbours.distance2.const_data_ptr<float>(), rows.distance2.mutable_data_ptr<float>());
  }
  return rows;
}

at::Tensor edge_index_of(const Neighbours& neighbours) {
  const std::int64_t queries = neighbours.index.size(0), k = neighbours.index.size(1);
  const at::Tensor point = neighbours.index.to(at::kLong),
                   query = at::arange(queries, point.options()).unsqueeze(1).expand({queries, k});
  if (neighbours.full) {
    // Only a query that is not finite can miss neighbours, which goes unnoticed on a GPU; it gets point 0.
    return at::stack({point.clamp_min(0).reshape(-1), query.reshape(-1)});
  }
  const at::Tensor entry = point.reshape(-1).ge(0).nonzero().squeeze(1);
  return at::stack({point.reshape(-1).index_select(0, entry), query.reshape(-1).index_select(0, entry)});
}

at::Tensor edge_index_of(const NeighbourRows& rows) {
  const at::Tensor query =
      at::repeat_interleave(rows.row_ptr.diff(), std::optional<std::int64_t>(rows.col.size(0)));
  return at::stack({rows.col.to(at::kLong), query});
}

at::Tensor ptr_of_batch(const at::Tensor& batch, std::int64_t num_graphs) {
  check(batch.defined() && batch.dim() == 1 && is_index(batch), "batch must be [N] of int32 or int64, got {}",
        describe(batch));
  check(num_graphs >= 0, "batch must hold at least 0 graphs, got {}", num_graphs);
  const at::Tensor ready = batch.detach().to(at::kLong).contiguous();
  if (ready.is_cpu()) {
    const std::int64_t* graph = ready.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 1; i < ready.size(0); ++i) {
      check(graph[i] >= graph[i - 1], "batch must be ascending, got {} after {} at position {}", graph[i],
            graph[i - 1], i);
    }
    for (std::int64_t i = 0; i < ready.size(0); ++i) {
      check(graph[i] >= 0 && graph[i] < num_graphs,
            "batch must hold graphs from 0 to {}, got {} at position {}", num_graphs - 1, graph[i], i);
    }
  }
  return at::searchsorted(ready, at::arange(num_graphs + 1, ready.options()));
}

}  // namespace topomask
