#include "ops/arguments.h"

#include "core/tensors.h"
#include "ops/tensor_cache.h"
#include "topomask/device.h"

namespace topomask::ops {

namespace {

at::Tensor index_argument(const char* op, const char* pattern, const char* argument, const at::Tensor& tensor,
                          at::ScalarType dtype, std::int64_t size) {
  check(tensor.dim() == 1 && tensor.scalar_type() == dtype && (size < 0 || tensor.size(0) == size),
        "{}: {} of {} must be {} [{}], got {}", op, argument, pattern, c10::toString(dtype),
        size < 0 ? std::string("any") : std::to_string(size), describe(tensor));
  check_place(op, argument, tensor);
  return tensor.contiguous();
}

// Kernels of a GPU find a pattern's long rows once; the operators get the same tensors anew at every call.
using Derived = SparsePattern::Derived;
std::shared_ptr<Derived> derived_of(const std::vector<at::Tensor>& tensors, std::shared_ptr<Derived> fresh) {
  static TensorCache<Derived>& cache = *new TensorCache<Derived>;  // never destroyed: CUDA may end before it
  return cache.get(tensors, [&] { return std::move(fresh); });
}

}  // namespace

void check_place(const char* op, const char* argument, const at::Tensor& tensor) {
  check(tensor.is_cpu() || tensor.is_cuda(), "{}: {} must be on cpu or cuda, got {}", op, argument,
        tensor.device().str());
  check(tensor.is_cpu() || cuda_is_built(), "{}: {} is on {}, but this topomask was built without CUDA", op,
        argument, tensor.device().str());
}

void check_on_cpu(const char* op, const char* argument, const at::Tensor& tensor) {
  check(tensor.is_cpu(), "{}: {} must be on the CPU, got {}", op, argument, tensor.device().str());
}

void check_same_place(const char* op, const char* argument, const at::Tensor& tensor, const char* other,
                      const at::Tensor& reference) {
  check(tensor.device() == reference.device(), "{}: {} must be on {} as {}, got {}", op, argument,
        reference.device().str(), other, tensor.device().str());
}

Graph graph_from(const at::Tensor& row_ptr, const at::Tensor& col, const at::Tensor& weight, bool directed) {
  check_on_cpu("Graph", "row_ptr", row_ptr);
  const Graph graph(row_ptr.contiguous(), col.contiguous(), weight.contiguous(), directed);
  const CsrView rows = graph.view();
  check(rows.row_ptr[0] == 0, "Graph: expected row_ptr to begin with 0, got {}", rows.row_ptr[0]);
  for (std::int64_t i = 0; i < rows.num_nodes; ++i) {
    check(rows.row_ptr[i] <= rows.row_ptr[i + 1], "Graph: expected row_ptr to be non-decreasing at row {}",
          i);
  }
  for (std::int64_t e = 0; e < rows.num_entries(); ++e) {
    check(rows.col[e] >= 0 && rows.col[e] < rows.num_nodes,
          "Graph: expected columns from 0 to {}, got {} at entry {}", rows.num_nodes - 1, rows.col[e], e);
  }
  return graph;
}

PatternArgument::PatternArgument(const char* op, const char* argument, at::TensorList tensors) {
  check(tensors.size() == 5,
        "{}: {} must be a pattern of 5 tensors (row_ptr, col and the transpose), got {} tensors", op,
        argument, tensors.size());
  auto made = std::make_shared<SparsePattern>();
  made->row_ptr = index_argument(op, argument, "row_ptr", tensors[0], at::kLong, -1);
  check(made->row_ptr.size(0) >= 1, "{}: row_ptr of {} must be [N+1], got an empty tensor", op, argument);
  made->col = index_argument(op, argument, "col", tensors[1], at::kInt, -1);
  const std::int64_t n = made->num_nodes(), nnz = made->nnz();
  made->transposed_ptr = index_argument(op, argument, "transposed_ptr", tensors[2], at::kLong, n + 1);
  made->transposed_row = index_argument(op, argument, "transposed_row", tensors[3], at::kInt, nnz);
  made->transposed_entry = index_argument(op, argument, "transposed_entry", tensors[4], at::kLong, nnz);
  for (const at::Tensor& tensor : tensors) check_same_place(op, argument, tensor, "its row_ptr", tensors[0]);
  check(!made->row_ptr.is_cpu() || (made->row_ptr.const_data_ptr<std::int64_t>()[n] == nnz &&
                                    made->transposed_ptr.const_data_ptr<std::int64_t>()[n] == nnz),
        "{}: row_ptr and transposed_ptr of {} must end with its {} entries", op, argument, nnz);
  if (made->row_ptr.is_cuda()) made->derived = derived_of(tensors.vec(), made->derived);
  pattern = std::move(made);
}

void check_real(const char* op, const char* argument, const at::Tensor& tensor, at::IntArrayRef shape,
                Reals allowed) {
  const at::ScalarType dtype = tensor.scalar_type();
  const bool narrow = dtype == at::kBFloat16 || dtype == at::kHalf;
  bool fits = tensor.dim() == static_cast<std::int64_t>(shape.size()) &&
              (dtype == at::kFloat || dtype == at::kDouble ||
               (narrow && allowed == Reals::or_narrow_on_gpu && tensor.is_cuda()));
  for (std::size_t axis = 0; fits && axis < shape.size(); ++axis) {
    fits = shape[axis] < 0 || tensor.size(static_cast<std::int64_t>(axis)) == shape[axis];
  }
  check(fits, "{}: {} must be float32 or float64 [{}] (-1: any size), got {}", op, argument,
        fmt::join(shape, ", "), describe(tensor));
  check_place(op, argument, tensor);
}

at::Tensor real_argument(const char* op, const char* argument, const at::Tensor& tensor,
                         at::IntArrayRef shape) {
  check_real(op, argument, tensor, shape);
  return tensor.contiguous();
}

}  // namespace topomask::ops
