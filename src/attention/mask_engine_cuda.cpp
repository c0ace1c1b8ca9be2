#include "attention/gpu.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>

#include "attention/cuda/row_attention.h"
#include "attention/cuda/tile_attention.h"
#include "attention/gpu_operands.h"
#include "core/cuda_launch.h"
#include "core/flops.h"
#include "masks/gpu.h"

namespace topomask {

namespace {

RowAttentionShape shape_of(const EngineInputs& inputs) {
  RowAttentionShape shape;
  shape.batch = inputs.q.size(0);
  shape.heads = inputs.q.size(1);
  shape.features = inputs.q.size(3);
  shape.value_columns = inputs.v.size(3);
  shape.rule = inputs.rule;
  return shape;
}

EngineInputs with_adjacent_columns(const EngineInputs& given) {
  EngineInputs inputs = given;
  for (at::Tensor* x : {&inputs.q, &inputs.k, &inputs.v}) *x = adjacent_columns(*x);
  return inputs;
}

// The heads that one pattern serves: all, or its own. What is kept for every (head, batch entry) is ordered
// so that those of one pattern stand together.
struct Share {
  const SparsePattern& pattern;
  at::Tensor values;        // wide [1 or heads, nnz]
  RowAttentionShape shape;  // of these heads
  std::int64_t first_head = 0, first_row = 0, first_dot = 0;

  std::int64_t pairs() const { return shape.batch * shape.heads; }
  std::int64_t products() const { return pairs() * pattern.nnz(); }
  std::int64_t value_step() const { return values.size(0) == 1 ? 0 : pattern.nnz(); }
};

std::vector<Share> shares_of(const EngineInputs& inputs, const std::vector<SparseEntries>& entries) {
  std::vector<Share> shares;
  std::int64_t first_dot = 0;
  for (std::size_t which = 0; which < entries.size(); ++which) {
    const at::Tensor values = entries[which].values.to(accumulator(inputs.q.scalar_type())).contiguous();
    Share share = {*entries[which].pattern, values, shape_of(inputs)};
    if (entries.size() > 1) {
      share.shape.heads = 1;
      share.first_head = static_cast<std::int64_t>(which);
      share.first_row = share.first_head * share.shape.batch * inputs.q.size(2);
    }
    share.first_dot = first_dot;
    first_dot += share.products();
    shares.push_back(share);
  }
  return shares;
}

at::Tensor workspace_for(const DeviceRows& rows, const RowAttentionShape& shape,
                         const at::TensorOptions& options) {
  const std::int64_t size = row_attention_workspace(rows, shape);
  return size == 0 ? at::Tensor() : at::empty({size}, options);
}

// Tiles where they are faster than rows: measured on an H200 (docs/notes/tuning.md). A warp takes a tile of
// one head; with too few of them most of the machine would stand idle.
std::optional<RowTiles> tiles_for(const RowAttentionForward& pass, const Share& share) {
  constexpr std::int64_t kLeastWarps = 512;
  if (!tile_attention_fits(pass)) return {};
  if (share.pairs() * pass.mask.num_rows < kLeastWarps * kTileRows) return {};
  return row_tiles(share.pattern, pass.mask);
}

// dL/dM [batch, heads or sums of some, nnz] summed over the batch, and over heads that share values, in one
// fixed order.
at::Tensor summed(const at::Tensor& grad_value, bool share_values, Real dtype, cudaStream_t stream) {
  constexpr std::int64_t kFewRows = 64;  // one thread adds up those of an entry
  if (!share_values) return grad_value.size(0) == 1 ? grad_value[0] : grad_value.sum(0);
  const std::int64_t rows = grad_value.size(0) * grad_value.size(1), nnz = grad_value.size(2);
  if (rows > kFewRows) return grad_value.sum(at::IntArrayRef{0, 1}).unsqueeze(0);
  at::Tensor sum = at::empty({1, nnz}, grad_value.options());
  check_cuda(sum_of_rows(grad_value.const_data_ptr(), dtype, rows, nnz, sum.data_ptr(), stream),
             "mask engine, sum over heads");
  return sum;
}

}  // namespace

EngineResult mask_engine_forward_on_gpu(const EngineInputs& given, const std::vector<SparseEntries>& entries,
                                        bool learning) {
  const EngineInputs inputs = with_adjacent_columns(given);
  const at::Tensor &q = inputs.q, &k = inputs.k, &v = inputs.v;
  const CudaLaunch launch(q);
  const at::TensorOptions options = q.options().dtype(accumulator(q.scalar_type()));
  const std::vector<Share> shares = shares_of(inputs, entries);
  const at::IntArrayRef rows = q.sizes().slice(0, 3);
  at::Tensor out = at::empty_like(v);
  at::Tensor inverse = at::empty(rows, options);
  at::Tensor row_max;
  if (inputs.rule.is_softmax()) {
    row_max = at::empty(rows, options);
  } else if (learning) {
    row_max = at::empty({0}, options);
  }
  // One number per nonzero, written in order. Gathering two rows again would cost more.
  at::Tensor dots;
  if (learning) dots = at::empty({shares.back().first_dot + shares.back().products()}, options);
  for (const Share& share : shares) {
    RowAttentionForward pass;
    pass.shape = share.shape;
    pass.dtype = real_of(q.scalar_type());
    pass.mask = device_rows(share.pattern);
    pass.q = rows_from(q, share.first_head);
    pass.k = rows_from(k, share.first_head);
    pass.v = rows_from(v, share.first_head);
    pass.out = rows_from(out, share.first_head);
    pass.value = share.values.data_ptr();
    pass.value_step = share.value_step();
    pass.inverse = element(inverse, share.first_row);
    pass.row_max = element(row_max, share.first_row);
    pass.dot = element(dots, share.first_dot);
    const std::optional<RowTiles> tiles = tiles_for(pass, share);
    const at::Tensor workspace = tiles ? at::empty({tile_attention_workspace(pass)}, options)
                                       : workspace_for(pass.mask, pass.shape, options);
    pass.workspace = element(workspace, 0);
    check_cuda(tiles ? tile_attention_forward(pass, *tiles, launch.stream)
                     : row_attention_forward(pass, launch.stream),
               "mask engine");
    count_multiply_adds(share.products() * (q.size(3) + v.size(3)));
    count_other_flops(share.products() * (inputs.rule.is_softmax() ? 6 : 3) + share.pairs() * q.size(2));
  }
  if (!learning) return {out, {}};
  return {out, {inverse, row_max, dots}};
}

EngineGradients mask_engine_backward_on_gpu(const at::Tensor& given_grad, const EngineInputs& given,
                                            const std::vector<SparseEntries>& entries,
                                            const EngineResult& result, bool mask_learns) {
  const EngineInputs inputs = with_adjacent_columns(given);
  const at::Tensor &q = inputs.q, &k = inputs.k, &v = inputs.v;
  const CudaLaunch launch(q);
  const at::TensorOptions options = q.options().dtype(accumulator(q.scalar_type()));
  const at::Tensor grad_out = adjacent_columns(given_grad), out = adjacent_columns(result.out);
  EngineGradients grads = {at::empty_like(q), at::empty_like(k), at::empty_like(v), {}};
  for (const Share& share : shares_of(inputs, entries)) {
    const std::int64_t nnz = share.pattern.nnz();
    RowAttentionBackward pass;
    pass.shape = share.shape;
    pass.dtype = real_of(q.scalar_type());
    pass.mask = device_rows(share.pattern);
    pass.columns = device_columns(share.pattern);
    pass.q = rows_from(q, share.first_head);
    pass.k = rows_from(k, share.first_head);
    pass.v = rows_from(v, share.first_head);
    pass.out = rows_from(out, share.first_head);
    pass.grad_out = rows_from(grad_out, share.first_head);
    pass.value = share.values.data_ptr();
    pass.value_step = share.value_step();
    pass.inverse = element(result.saved[0], share.first_row);
    pass.row_max = element(result.saved[1], share.first_row);
    pass.dot = element(result.saved[2], share.first_dot);
    pass.grad_q = rows_from(grads.q, share.first_head);
    pass.grad_k = rows_from(grads.k, share.first_head);
    pass.grad_v = rows_from(grads.v, share.first_head);
    at::Tensor grad_value;
    if (mask_learns) {
      const std::int64_t sums = share.shape.heads / row_attention_summed_heads(pass);
      grad_value = empty_values(share.pattern, {share.shape.batch, sums, nnz}, options);
    }
    pass.grad_value = element(grad_value, 0);
    const at::Tensor weights = at::empty({share.pairs(), nnz, 2}, options);
    pass.weights = weights.data_ptr();
    at::Tensor workspace = workspace_for(pass.mask, pass.shape, options);
    pass.workspace = element(workspace, 0);
    check_cuda(row_attention_backward(pass, launch.stream), "mask engine, backward over rows");
    workspace = workspace_for(pass.columns, pass.shape, options);
    pass.workspace = element(workspace, 0);
    check_cuda(column_attention_backward(pass, launch.stream), "mask engine, backward over columns");
    if (mask_learns) {
      const bool share_values = share.values.size(0) != share.shape.heads;
      const at::Tensor sum = summed(grad_value, share_values, pass.dtype, launch.stream);
      grads.mask.push_back(sum.to(entries[grads.mask.size()].values.scalar_type()));
    }
    count_multiply_adds(2 * share.products() * (q.size(3) + v.size(3)));
    count_other_flops(share.products() * (inputs.rule.is_softmax() ? 10 : 6));
  }
  return grads;
}

}  // namespace topomask
