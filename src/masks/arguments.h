// Checks and small products that the masks share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "topomask/graph.h"
#include "topomask/mask.h"

namespace topomask {

// x as multiply() takes it: [H, N, C], float32 or float64, on the mask's device.
void check_input(const Mask& mask, const at::Tensor& x);

// The parameters of a mask are on one device.
void check_same_device(const char* mask, const char* argument, const at::Tensor& tensor, const char* other,
                       const at::Tensor& reference);

// A parameter of the given shape, float32 or float64; -1 stands for a size that is free (at least 1 head).
// `shape` is how the message writes it: "[H, N, R]".
void check_parameter(const char* mask, const char* argument, const at::Tensor& tensor, at::IntArrayRef sizes,
                     const char* shape);

// The graph itself, or a copy on the CPU, where masks are set up.
Graph graph_on_cpu(const Graph& graph);

std::int64_t checked_num_nodes(const char* mask, std::int64_t num_nodes);

// left (right^T x) in the dtype of x, or right (left^T x) where transposed.
at::Tensor multiply_factors(const Factors& factors, const at::Tensor& x, bool transposed);

// A profile with what every mask says of itself.
// The share of entries whose column is more than some thousand nodes away from their row, by a sample of
// rows: the operands of the others stay in a cache between neighbouring rows. 0 on a GPU, where the planner
// does not need it.
double far_share(const SparsePattern& pattern);
MaskProfile basic_profile(const Mask& mask, double multiply_adds_per_column, double bytes_per_column);
MaskProfile dense_profile(const Mask& mask);                        // products with the whole matrix
MaskProfile factored_profile(const Mask& mask, std::int64_t rank);  // products with factors of that rank

// The argument of with_parameters: one tensor for each of the mask's own, of its shape and on its device.
void check_replacements(const Mask& mask, const std::vector<at::Tensor>& parameters,
                        std::initializer_list<const char*> names);

// A copy of a mask with other parameters: `members` are those of the copy, in the order of parameters().
template <class OneMask, class... Members>
std::shared_ptr<const Mask> replaced(const OneMask& mask, const std::vector<at::Tensor>& parameters,
                                     std::initializer_list<const char*> names, Members... members) {
  check_replacements(mask, parameters, names);
  auto copy = std::make_shared<OneMask>(mask);
  std::size_t next = 0;
  ((copy.get()->*members = parameters[next++]), ...);
  return copy;
}

}  // namespace topomask
