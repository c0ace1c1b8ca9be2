#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <algorithm>
#include <limits>

#include "core/check.h"
#include "core/cuda/primitives.h"
#include "core/cuda_launch.h"
#include "graph/cpu/limits.h"
#include "graph/cuda/knn.h"
#include "graph/cuda/neighbour_rows.h"
#include "graph/graph_cuda.h"
#include "graph/neighbour_task.h"

namespace topomask {

static_assert(kMaxGpuNeighbours == cuda::kMaxNeighbours && kMaxGpuDimension == cuda::kMaxDimension);
static_assert(cuda::kMaxBoxAxes >= cuda::kMaxDimension);

namespace {

at::Tensor bytes_on(const at::Tensor& like, std::size_t bytes) {
  return at::empty({static_cast<std::int64_t>(bytes)}, like.options().dtype(at::kByte));
}

// Offsets on the device. Small copies from the host's memory do not wait for it, but a graph that is captured
// would read that memory again when it is replayed.
at::Tensor on_device(const at::Tensor& ptr, const at::Tensor& points) {
  if (!ptr.defined() || ptr.is_cuda()) return ptr;
  check(c10::cuda::currentStreamCaptureStatusMayInitCtx() == c10::cuda::CaptureStatus::None,
        "neighbours: expected ptr on {} while a CUDA graph is captured, got ptr on the CPU",
        points.device().str());
  return ptr.to(points.device(), /*non_blocking=*/true);
}

at::Tensor box_on_device(const at::Tensor& box, const at::Tensor& points, cudaStream_t stream) {
  if (!box.defined() || box.is_cuda()) return box;
  cuda::BoxLengths lengths{};
  std::copy_n(box.const_data_ptr<double>(), box.size(0), lengths.length);
  at::Tensor result = at::empty({box.size(0)}, points.options().dtype(at::kDouble));
  check_cuda(cuda::store_box(lengths, static_cast<int>(box.size(0)), result.data_ptr<double>(), stream),
             "box");
  return result;
}

// The arguments of a search, and what they point to.
struct DeviceSearch {
  at::Tensor ptr, query_ptr, box, workspace;
  cuda::NeighbourArguments a;

  DeviceSearch(const NeighbourTask& task, cudaStream_t stream)
      : ptr(on_device(task.ptr, task.points)),
        query_ptr(task.query_ptr.is_same(task.ptr) ? ptr : on_device(task.query_ptr, task.points)),
        box(box_on_device(task.box, task.points, stream)) {
    a.coordinate = task.points.const_data_ptr();
    a.query = task.queries.is_same(task.points) ? nullptr : task.queries.const_data_ptr();
    a.is_double = task.points.scalar_type() == at::kDouble;
    a.count = task.num_points();
    a.num_queries = task.num_queries();
    a.dimension = static_cast<int>(task.points.size(1));
    if (ptr.defined()) {
      a.ptr = ptr.const_data_ptr<std::int64_t>();
      a.query_ptr = query_ptr.const_data_ptr<std::int64_t>();
      a.graphs = std::max<std::int64_t>(ptr.size(0) - 1, 1);
    }
    a.box = box.defined() ? box.const_data_ptr<double>() : nullptr;
    a.limit = task.limit;
    a.skip_own = task.skip_own;
    workspace = bytes_on(task.points, cuda::neighbour_workspace_bytes(a));
    a.workspace = workspace.data_ptr();
  }
};

// Whether there is nothing to find.
bool finds_nothing(const NeighbourTask& task) {
  const bool no_graphs = task.ptr.defined() && task.ptr.size(0) < 2;
  return task.num_points() == 0 || task.num_queries() == 0 || no_graphs;
}

// [n+1] int64 from counts [n] int32.
at::Tensor offsets_of(const at::Tensor& count, cudaStream_t stream) {
  const std::int64_t n = count.size(0);
  at::Tensor offset = at::empty({n + 1}, count.options().dtype(at::kLong));
  const std::size_t bytes = ScanCounts::workspace_bytes(n);
  const at::Tensor workspace = bytes_on(count, bytes);
  check_cuda(ScanCounts::run(count.const_data_ptr<std::int32_t>(), n, offset.data_ptr<std::int64_t>(),
                             workspace.data_ptr(), bytes, stream),
             "neighbours");
  return offset;
}

// Waits for the device.
std::int64_t last_of(const at::Tensor& offset) {
  return offset[offset.size(0) - 1].item<std::int64_t>();
}

// `from`: all but the offsets. Sorts into `to`, which gets weights where they are wanted.
void sort_into(cuda::UnsortedRows from, const at::Tensor& row_ptr, const at::Tensor& col,
               const at::Tensor& value, const at::Tensor& weight, cudaStream_t stream) {
  from.num_rows = row_ptr.size(0) - 1;
  from.row_ptr = row_ptr.const_data_ptr<std::int64_t>();
  cuda::SortedRows to;
  to.col = col.data_ptr<std::int32_t>();
  to.value = value.defined() ? value.data_ptr() : nullptr;
  to.weight = weight.defined() ? weight.data_ptr<float>() : nullptr;
  check_cuda(cuda::sort_rows(from, to, stream), "neighbours");
}

Graph directed_rows(const Neighbours& lists, cudaStream_t stream) {
  const at::Tensor row_ptr = offsets_of(lists.count, stream);
  const std::int64_t entries = last_of(row_ptr);
  const at::Tensor col = at::empty({entries}, lists.index.options()),
                   weight = at::empty({entries}, lists.index.options().dtype(at::kFloat));
  cuda::UnsortedRows from;
  from.stride = lists.index.size(1);
  from.col = lists.index.const_data_ptr<std::int32_t>();
  sort_into(from, row_ptr, col, at::Tensor(), weight, stream);
  return {row_ptr, col, weight, true};
}

Graph symmetric_rows(const Neighbours& lists, cudaStream_t stream) {
  cuda::DirectedLists directed;
  directed.num_rows = lists.index.size(0);
  directed.k = static_cast<int>(lists.index.size(1));
  directed.index = lists.index.const_data_ptr<std::int32_t>();
  directed.num_found = lists.count.const_data_ptr<std::int32_t>();
  const at::Tensor degree = at::empty({directed.num_rows}, lists.index.options());
  check_cuda(cuda::symmetric_degrees(directed, degree.data_ptr<std::int32_t>(), stream), "knn_graph");
  const at::Tensor row_ptr = offsets_of(degree, stream);
  const std::int64_t entries = last_of(row_ptr);
  const at::Tensor unsorted = at::empty({entries}, lists.index.options()), col = at::empty_like(unsorted),
                   weight = at::empty({entries}, lists.index.options().dtype(at::kFloat));
  // The degrees are in the offsets by now.
  check_cuda(
      cuda::symmetric_entries(directed, row_ptr.const_data_ptr<std::int64_t>(),
                              degree.data_ptr<std::int32_t>(), unsorted.data_ptr<std::int32_t>(), stream),
      "knn_graph");
  cuda::UnsortedRows from;
  from.col = unsorted.const_data_ptr<std::int32_t>();
  sort_into(from, row_ptr, col, at::Tensor(), weight, stream);
  return {row_ptr, col, weight, false};
}

}  // namespace

bool neighbours_run_on_cuda(const NeighbourTask& task) {
  return task.points.is_cuda() && task.points.size(1) <= cuda::kMaxDimension &&
         task.k <= cuda::kMaxNeighbours;
}

Neighbours nearest_cuda(const NeighbourTask& task) {
  const CudaLaunch launch(task.points);
  const std::int64_t queries = task.num_queries();
  Neighbours result;
  result.index = at::empty({queries, task.k}, task.points.options().dtype(at::kInt));
  if (!task.only_index) {
    result.distance2 = at::empty({queries, task.k}, task.points.options());
    result.count = at::empty({queries}, result.index.options());
  }
  result.full = task.full;
  if (finds_nothing(task) || task.k == 0) {
    result.index.fill_(-1);
    if (!task.only_index) result.distance2.fill_(std::numeric_limits<double>::infinity());
    if (!task.only_index) result.count.zero_();
    return result;
  }
  const DeviceSearch search(task, launch.stream);
  cuda::NeighbourListsOut out;
  out.k = static_cast<int>(task.k);
  out.index = result.index.data_ptr<std::int32_t>();
  if (!task.only_index) {
    out.distance2 = result.distance2.data_ptr();
    out.num_found = result.count.data_ptr<std::int32_t>();
  }
  check_cuda(cuda::nearest_neighbours(search.a, out, launch.stream), "knn");
  return result;
}

NeighbourRows within_cuda(const NeighbourTask& task) {
  const CudaLaunch launch(task.points);
  const at::TensorOptions integers = task.points.options().dtype(at::kInt);
  const std::int64_t queries = task.num_queries();
  if (finds_nothing(task)) {
    return {at::zeros({queries + 1}, integers.dtype(at::kLong)), at::empty({0}, integers),
            at::empty({0}, task.points.options())};
  }
  const DeviceSearch search(task, launch.stream);
  const at::Tensor count = at::empty({queries}, integers);
  check_cuda(cuda::count_within(search.a, count.data_ptr<std::int32_t>(), launch.stream), "radius");
  NeighbourRows rows;
  rows.row_ptr = offsets_of(count, launch.stream);
  const std::int64_t entries = last_of(rows.row_ptr);
  check_num_entries("radius", static_cast<double>(entries));
  rows.col = at::empty({entries}, integers);
  rows.distance2 = at::empty({entries}, task.points.options());
  const at::Tensor unsorted = at::empty_like(rows.col), unsorted_distance2 = at::empty_like(rows.distance2);
  check_cuda(
      cuda::list_within(search.a, rows.row_ptr.const_data_ptr<std::int64_t>(),
                        unsorted.data_ptr<std::int32_t>(), unsorted_distance2.data_ptr(), launch.stream),
      "radius");
  cuda::UnsortedRows from;
  from.col = unsorted.const_data_ptr<std::int32_t>();
  from.value = unsorted_distance2.const_data_ptr();
  from.is_double = search.a.is_double;
  sort_into(from, rows.row_ptr, rows.col, rows.distance2, at::Tensor(), launch.stream);
  return rows;
}

NeighbourRows rows_of_cuda(const Neighbours& neighbours) {
  const CudaLaunch launch(neighbours.index);
  const std::int64_t queries = neighbours.index.size(0), k = neighbours.index.size(1);
  const at::Tensor index = neighbours.index.contiguous(), distance2 = neighbours.distance2.contiguous();
  NeighbourRows rows;
  rows.row_ptr = neighbours.full ? at::arange(queries + 1, index.options().dtype(at::kLong)).mul_(k)
                                 : offsets_of(neighbours.count.contiguous(), launch.stream);
  const std::int64_t entries = neighbours.full ? queries * k : last_of(rows.row_ptr);
  rows.col = at::empty({entries}, index.options());
  rows.distance2 = at::empty({entries}, distance2.options());
  if (entries == 0) return rows;
  cuda::UnsortedRows from;
  from.stride = k;
  from.col = index.const_data_ptr<std::int32_t>();
  from.value = distance2.const_data_ptr();
  from.is_double = distance2.scalar_type() == at::kDouble;
  sort_into(from, rows.row_ptr, rows.col, rows.distance2, at::Tensor(), launch.stream);
  return rows;
}

Graph knn_graph_cuda(const NeighbourTask& task, bool symmetric) {
  const CudaLaunch launch(task.points);
  const at::TensorOptions integers = task.points.options().dtype(at::kInt);
  const std::int64_t nodes = task.num_points(), k = task.k;
  if (finds_nothing(task) || k == 0) {
    return {at::zeros({nodes + 1}, integers.dtype(at::kLong)), at::empty({0}, integers),
            at::empty({0}, integers.dtype(at::kFloat)), !symmetric};
  }
  if (symmetric || !task.full) {
    const Neighbours lists = nearest_cuda(task);
    return symmetric ? symmetric_rows(lists, launch.stream) : directed_rows(lists, launch.stream);
  }
  const DeviceSearch search(task, launch.stream);
  Graph graph(at::empty({nodes + 1}, integers.dtype(at::kLong)), at::empty({nodes * k}, integers),
              at::empty({nodes * k}, integers.dtype(at::kFloat)), true);
  cuda::NeighbourListsOut out;
  out.k = static_cast<int>(k);
  out.ascending = out.complete = true;
  out.index = graph.col.data_ptr<std::int32_t>();
  out.row_ptr = graph.row_ptr.data_ptr<std::int64_t>();
  out.weight = graph.weight.data_ptr<float>();
  check_cuda(cuda::nearest_neighbours(search.a, out, launch.stream), "knn_graph");
  return graph;
}

}  // namespace topomask
