// What the operators share: arguments as torch passes them, checked, to the types of the library.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/check.h"
#include "topomask/attention.h"
#include "topomask/graph.h"
#include "topomask/kernels.h"
#include "topomask/mask_catalogue.h"
#include "topomask/walks.h"
#include "topomask/words.h"

namespace topomask::ops {

// A graph as operators return it: row_ptr [N+1] int64, col [E] int32, weight [E] float32.
using GraphTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

inline GraphTensors tensors_of(const Graph& graph) {
  return {graph.row_ptr, graph.col, graph.weight};
}

// Sizes and types are checked; on the CPU the rows too, for an operator may be called with anything. On a GPU
// that would have to wait for the device.
Graph graph_from(const at::Tensor& row_ptr, const at::Tensor& col, const at::Tensor& weight, bool directed);

// A mask as settings describe it: a JSON object of texts, with the names and defaults of the catalogue.
MaskRequest request_of(std::string_view mask, std::string_view settings);
// The walks of "grf" alone. Settings of the mask around them are errors, and so are those in `also`.
FeatureOptions walks_of(std::string_view settings, std::initializer_list<const char*> also = {});

// What is not given is the library's default; "" is the default kernel.
AttentionOptions attention_options(std::string_view kind, std::string_view feature_map,
                                   std::string_view engine, std::optional<double> epsilon,
                                   std::optional<std::int64_t> num_features, std::int64_t feature_seed);
NodeKernel kernel_of(std::string_view text);

// Throws unless this build of the library computes where the tensor is.
void check_place(const char* op, const char* argument, const at::Tensor& tensor);
// Throws unless both are on one device.
void check_same_place(const char* op, const char* argument, const at::Tensor& tensor, const char* other,
                      const at::Tensor& reference);

// Columns of a pattern in 32 bits. One beyond them must not become another: it stays out of range.
at::Tensor narrowed_columns(const at::Tensor& col);
// Throws where a pattern on a GPU reaches outside of itself; on a CPU SparsePattern::from_rows checks it. The
// host waits for the device, so nothing is checked while the call is traced or captured.
void check_rows_on_gpu(const char* what, const at::Tensor& row_ptr, const at::Tensor& col);

// For Meta kernels: a tensor without data, on the device of `like`.
inline at::Tensor shape_only(c10::SymIntArrayRef sizes, const at::Tensor& like,
                             std::optional<at::ScalarType> dtype = {}) {
  return at::empty_symint(sizes, like.options().dtype(dtype.value_or(like.scalar_type())));
}

}  // namespace topomask::ops
