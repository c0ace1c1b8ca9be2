#include "ops/arguments.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "core/gpu.h"
#include "core/tensors.h"
#include "ops/library_call.h"
#include "topomask/device.h"

namespace topomask::ops {

void check_place(const char* op, const char* argument, const at::Tensor& tensor) {
  check(tensor.is_cpu() || tensor.is_cuda(), "{}: {} must be on cpu or cuda, got {}", op, argument,
        tensor.device().str());
  check(tensor.is_cpu() || cuda_is_built(), "{}: {} is on {}, but this topomask was built without CUDA", op,
        argument, tensor.device().str());
}

void check_same_place(const char* op, const char* argument, const at::Tensor& tensor, const char* other,
                      const at::Tensor& reference) {
  check(tensor.device() == reference.device(), "{}: {} must be on {} as {}, got {}", op, argument,
        reference.device().str(), other, tensor.device().str());
}

at::Tensor narrowed_columns(const at::Tensor& col) {
  constexpr std::int64_t kLast = std::numeric_limits<std::int32_t>::max();
  return (col.scalar_type() == at::kLong ? col.clamp(-1, kLast) : col).to(at::kInt);
}

void check_rows_on_gpu(const char* what, const at::Tensor& row_ptr, const at::Tensor& col) {
  const bool are_rows = row_ptr.dim() == 1 && row_ptr.size(0) >= 1 && col.dim() == 1;  // or others will say
  if (!are_rows || !row_ptr.is_cuda() || row_ptr.device() != col.device() || is_traced({row_ptr, col}) ||
      capture_id(col.device()) != 0)
    return;
  const at::Tensor rows = row_ptr.detach().to(at::kLong), columns = col.detach();
  const std::int64_t nodes = rows.size(0) - 1, entries = columns.size(0);
  // All that is asked, in one transfer: the ends of row_ptr, its smallest step, and the range of the columns.
  const at::Tensor zero = at::zeros({}, rows.options());
  const auto range = [&] {
    return entries == 0 ? std::tuple<at::Tensor, at::Tensor>{zero, zero} : at::aminmax(columns);
  };
  const auto [low, high] = range();
  const at::Tensor numbers = at::stack({rows[0], rows[nodes], nodes == 0 ? zero : rows.diff().min(),
                                        low.to(at::kLong), high.to(at::kLong)})
                                 .cpu();
  const std::int64_t* found = numbers.const_data_ptr<std::int64_t>();
  check(found[0] == 0 && found[1] == entries && found[2] >= 0,
        "{}: row_ptr must ascend from 0 to the {} entries of col", what, entries);
  check(entries == 0 || (found[3] >= 0 && found[4] < nodes),
        "{}: a column is out of range: expected 0 to {}, got {} to {}", what, nodes - 1, found[3], found[4]);
}

MaskRequest request_of(std::string_view mask, std::string_view settings) {
  MaskRequest request;
  request.mask = mask;
  nlohmann::json::parse(settings).get_to(request.settings);
  return request;
}

FeatureOptions walks_of(std::string_view settings, std::initializer_list<const char*> also) {
  static constexpr std::initializer_list<const char*> kOfMasks = {"init", "key_init", "ensembles",
                                                                  "shared_walks", "normalise"};
  MaskRequest request = request_of("grf", settings);
  for (const auto& elsewhere : {also, kOfMasks}) {
    for (const char* name : elsewhere)
      check(!request.settings.contains(name), "walks: there is no setting '{}' here", name);
  }
  return plan_walk_mask(std::move(request)).features;
}

AttentionOptions attention_options(std::string_view kind, std::string_view feature_map,
                                   std::string_view engine, std::optional<double> epsilon,
                                   std::optional<std::int64_t> num_features, std::int64_t feature_seed) {
  AttentionOptions options;
  options.kind = parse_word<AttentionKind>("kind", kind);
  options.feature_map.kind = parse_word<FeatureMapKind>("feature_map", feature_map);
  options.feature_map.epsilon = epsilon.value_or(options.feature_map.epsilon);
  options.feature_map.num_features = num_features.value_or(options.feature_map.num_features);
  options.feature_map.seed = static_cast<std::uint64_t>(feature_seed);
  options.engine = parse_word<Engine>("engine", engine);
  return options;
}

NodeKernel kernel_of(std::string_view text) {
  return text.empty() ? NodeKernel() : NodeKernel::parse(std::string(text));
}

Graph graph_from(const at::Tensor& row_ptr, const at::Tensor& col, const at::Tensor& weight, bool directed) {
  check_place("Graph", "row_ptr", row_ptr);
  check_same_place("Graph", "col", col, "row_ptr", row_ptr);
  check_same_place("Graph", "weight", weight, "row_ptr", row_ptr);
  check(row_ptr.dim() == 1 && row_ptr.size(0) >= 1 && row_ptr.scalar_type() == at::kLong,
        "Graph: row_ptr must be int64 [N+1], got {}", describe(row_ptr));
  check(col.dim() == 1 && col.scalar_type() == at::kInt, "Graph: col must be int32 [E], got {}",
        describe(col));
  check(weight.dim() == 1 && weight.size(0) == col.size(0) && weight.scalar_type() == at::kFloat,
        "Graph: weight must be float32 [{}] as col, got {}", col.size(0), describe(weight));
  const Graph graph(row_ptr.contiguous(), col.contiguous(), weight.contiguous(), directed);
  if (!row_ptr.is_cpu()) return graph;
  const CsrView rows = graph.view();
  check(rows.row_ptr[0] == 0, "Graph: expected row_ptr to begin with 0, got {}", rows.row_ptr[0]);
  check(rows.row_ptr[rows.num_nodes] == col.size(0),
        "Graph: expected row_ptr to end with the {} entries, got {}", col.size(0),
        rows.row_ptr[rows.num_nodes]);
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

}  // namespace topomask::ops
