// The feature engine by columns on a GPU: attention and its gradients as passes of cuda/column_attention.h.
//
// With G_i = dL/dout_i / D_i, gamma_i = -<G_i, out_i>, and Z_c, Y_c the sums over a column,
//
//   out   x = q            y = k            z = [v | 1]     A = Phi, B = Psi
//   dq    x = [G | gamma]  y = [v | 1]      z = k           A = Phi, B = Psi
//   dk    x = [v | 1]      y = [G | gamma]  z = q           A = Psi, B = Phi
//   dv    x = k            y = q            z = G           A = Psi, B = Phi
//
// and dPhi_ic = <q_i, u_ic> in the second pass, dPsi_jc = <k_j, u_jc> in the third. G is never formed: 1 /
// D_i is a factor of the rows of out or of B.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "attention/cuda/column_attention.h"
#include "attention/gpu.h"
#include "attention/gpu_operands.h"
#include "core/cuda_launch.h"
#include "core/flops.h"
#include "core/gpu.h"
#include "masks/derived_pattern.h"
#include "masks/gpu.h"

namespace topomask {

namespace {

using ColumnLists = SparsePattern::Derived::ColumnLists;

// Bytes that the products of a pass may take, unless one pair needs more.
constexpr std::int64_t kProductBytes = std::int64_t{512} << 20;

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Numbers of the pieces of every column, one column after the other: of each piece its column among
// `columns`, and where those of a column begin.
struct Pieces {
  at::Tensor ptr, owner;  // int64
};
Pieces pieces_of(const at::Tensor& counts, std::int64_t size) {
  const at::Tensor number = (counts + (size - 1)).floor_divide(size);
  return {at::cat({at::zeros({1}, number.options()), number.cumsum(0)}), at::repeat_interleave(number)};
}

std::shared_ptr<const ColumnLists> make_lists(const SparsePattern& rows, const SparsePattern& keys,
                                              bool narrow) {
  auto lists = std::make_shared<ColumnLists>();
  lists->keys = keys.derived;
  lists->narrow = narrow;
  const at::Tensor row_counts = transpose_of(rows).ptr.diff(), key_counts = transpose_of(keys).ptr.diff();
  const at::Tensor used = row_counts > 0;
  const auto columns_where = [](const at::Tensor& which) { return which.nonzero().view({-1}); };
  const auto as_int = [](const at::Tensor& x) { return x.to(at::kInt).contiguous(); };
  at::Tensor rest = used;
  if (narrow) {
    const at::Tensor few = used.logical_and(key_counts <= kNarrowKeys);
    const at::Tensor columns = columns_where(few);
    const Pieces tiles = pieces_of(row_counts.index({columns}), 16);
    lists->tile_column = as_int(columns.index({tiles.owner}));
    lists->tile_first =
        as_int((at::arange(tiles.owner.size(0), tiles.ptr.options()) - tiles.ptr.index({tiles.owner})) * 16);
    lists->narrow_pairs = (row_counts * key_counts).index({columns}).sum().item<std::int64_t>();
    rest = used.logical_and(few.logical_not());
  }
  lists->wide_entries =
      (row_counts + key_counts).masked_fill(rest.logical_not(), 0).sum().item<std::int64_t>();
  const at::Tensor fits = (row_counts <= kHubEntries).logical_and(key_counts <= kHubEntries);
  const at::Tensor whole = columns_where(rest.logical_and(fits));
  // The largest begin first, so that none of them is left alone at the end.
  lists->whole = as_int(whole.index({key_counts.index({whole}).argsort(true, 0, true)}));
  const at::Tensor hubs = columns_where(rest.logical_and(fits.logical_not()));
  lists->hub = as_int(hubs);
  const Pieces key_chunks = pieces_of(key_counts.index({hubs}), kHubEntries);
  const Pieces row_chunks = pieces_of(row_counts.index({hubs}), kHubEntries);
  lists->key_chunk_ptr = as_int(key_chunks.ptr);
  lists->key_chunk_hub = as_int(key_chunks.owner);
  lists->row_chunk_ptr = as_int(row_chunks.ptr);
  lists->row_chunk_hub = as_int(row_chunks.owner);
  return lists;
}

std::shared_ptr<const ColumnLists> known_lists(const SparsePattern& rows, const SparsePattern& keys,
                                               bool narrow) {
  const std::lock_guard<std::mutex> lock(rows.derived->mutex);
  for (const auto& lists : rows.derived->column_lists) {
    if (lists->narrow == narrow && lists->keys.lock() == keys.derived) return lists;
  }
  return nullptr;
}

std::shared_ptr<const ColumnLists> lists_of(const SparsePattern& rows, const SparsePattern& keys,
                                            bool narrow) {
  if (auto known = known_lists(rows, keys, narrow)) return known;
  const auto made = make_lists(rows, keys, narrow);
  const std::lock_guard<std::mutex> lock(rows.derived->mutex);
  auto& all = rows.derived->column_lists;
  all.erase(std::remove_if(all.begin(), all.end(), [](const auto& lists) { return lists->keys.expired(); }),
            all.end());
  all.push_back(made);
  return made;
}

ColumnWork work_of(const ColumnLists& lists) {
  const auto data = [](const at::Tensor& x) {
    return x.defined() ? x.const_data_ptr<std::int32_t>() : nullptr;
  };
  ColumnWork work;
  work.num_tiles = lists.tile_column.defined() ? lists.tile_column.size(0) : 0;
  work.tile_column = data(lists.tile_column);
  work.tile_first = data(lists.tile_first);
  work.num_whole = lists.whole.size(0);
  work.whole = data(lists.whole);
  work.num_hubs = lists.hub.size(0);
  work.num_key_chunks = lists.key_chunk_hub.size(0);
  work.num_row_chunks = lists.row_chunk_hub.size(0);
  work.hub = data(lists.hub);
  work.key_chunk_ptr = data(lists.key_chunk_ptr);
  work.key_chunk_hub = data(lists.key_chunk_hub);
  work.row_chunk_ptr = data(lists.row_chunk_ptr);
  work.row_chunk_hub = data(lists.row_chunk_hub);
  return work;
}

// One column with all rows. There are just enough chunks of keys to fill the device, because their states are
// added up afterwards; chunks of rows are small. Both are functions of the sizes alone.
ColumnWork unmasked_work(std::int64_t pairs, std::int64_t num_nodes) {
  constexpr std::int64_t kKeyBlocks = 640, kLeastKeys = 128, kRows = 128;
  ColumnWork work;
  work.num_hubs = 1;
  const std::int64_t each = divide_up(num_nodes, divide_up(kKeyBlocks, std::max<std::int64_t>(pairs, 1)));
  work.key_chunk = std::max(kLeastKeys, divide_up(each, 32) * 32);
  work.row_chunk = kRows;
  work.num_key_chunks = divide_up(num_nodes, work.key_chunk);
  work.num_row_chunks = divide_up(num_nodes, work.row_chunk);
  return work;
}

ColumnEntries entries_of(const SparsePattern& pattern) {
  const TransposedPattern columns = transpose_of(pattern);
  return {pattern.nnz(), columns.ptr.const_data_ptr<std::int64_t>(),
          columns.row.const_data_ptr<std::int32_t>(), columns.entry.const_data_ptr<std::int64_t>()};
}

// A factor of the mask, or all ones.
struct Side {
  const SparsePattern* pattern = nullptr;
  at::Tensor value;  // wide [1 or heads, nnz]

  std::int64_t value_step() const { return value.defined() && value.size(0) > 1 ? value.size(1) : 0; }
};

struct Operand {
  at::Tensor rows;  // [B, H, N, columns]
  bool relu = false;
};

// A pass over all blocks of features and of value columns.
struct WholePass {
  Side rows, keys;
  Operand x, y, z;
  double epsilon = 0;
  at::Tensor key_scale;  // wide [B, H, N], or undefined: 1
  ColumnEdge edge = ColumnEdge::none;
  at::Tensor x_extra, y_extra;
  // The result, [B, H, N, columns of z].
  at::Tensor out;
  bool normalise = false;
  double guard = 0;
  at::Tensor inverse;         // written where it normalises
  at::Tensor row_scale;       // a factor elsewhere
  at::Tensor gate;            // `out` is 0 where this is not at least 0
  Operand along;              // columns of z; with value_gradient
  at::Tensor value_gradient;  // wide [B * H, nnz(rows)]

  void run(cudaStream_t stream) const;
};

void WholePass::run(cudaStream_t stream) const {
  const std::int64_t batch = x.rows.size(0), heads = x.rows.size(1), n = x.rows.size(2),
                     pairs = batch * heads;
  const std::int64_t features = x.rows.size(3), columns = z.rows.size(3);
  if (pairs * n == 0) return;
  const at::TensorOptions wide = x.rows.options().dtype(accumulator(x.rows.scalar_type()));
  const std::int64_t nnz = rows.pattern == nullptr ? n : rows.pattern->nnz();
  const bool several = features > kColumnWidth;
  ColumnPass pass;
  pass.dtype = real_of(x.rows.scalar_type());
  pass.heads = heads;
  pass.num_nodes = n;
  pass.epsilon = epsilon;
  pass.rows = rows.pattern == nullptr ? ColumnEntries{n} : entries_of(*rows.pattern);
  pass.keys = keys.pattern == nullptr ? ColumnEntries{n} : entries_of(*keys.pattern);
  pass.key_value = element(keys.value, 0);
  pass.key_value_step = keys.value_step();
  pass.key_scale = element(key_scale, 0);
  pass.x_extra = element(x_extra, 0);
  pass.y_extra = element(y_extra, 0);
  std::shared_ptr<const ColumnLists> lists;  // kept until the kernels are in the stream
  for (std::int64_t column = 0; column < columns; column += kColumnWidth) {
    pass.value_columns = static_cast<int>(std::min<std::int64_t>(kColumnWidth, columns - column));
    pass.z = {rows_from(z.rows, 0, column), z.relu};
    at::Tensor sums, edge_sums;
    if (several) {
      sums = at::empty({pairs, n, pass.value_columns}, wide);
      if (edge == ColumnEdge::ones) edge_sums = at::empty({pairs, n}, wide);
    }
    for (std::int64_t feature = 0; feature < features; feature += kColumnWidth) {
      pass.features = static_cast<int>(std::min<std::int64_t>(kColumnWidth, features - feature));
      pass.x = {rows_from(x.rows, 0, feature), x.relu};
      pass.y = {rows_from(y.rows, 0, feature), y.relu};
      pass.edge = edge == ColumnEdge::extra && feature > 0 ? ColumnEdge::none : edge;
      ColumnRows finish;
      finish.row_ptr =
          rows.pattern == nullptr ? nullptr : rows.pattern->row_ptr.const_data_ptr<std::int64_t>();
      finish.value = element(rows.value, 0);
      finish.value_step = rows.value_step();
      finish.sums = element(sums, 0);
      finish.edge_sums = element(edge_sums, 0);
      finish.first = feature == 0;
      finish.last = feature + kColumnWidth >= features;
      finish.out = rows_from(out, 0, column);
      finish.normalise = normalise;
      finish.guard = guard;
      finish.inverse = column == 0 ? element(inverse, 0) : nullptr;
      finish.row_scale = element(row_scale, 0);
      if (gate.defined()) finish.gate = rows_from(gate, 0, column);
      if (value_gradient.defined()) {
        finish.along = {rows_from(along.rows, 0, column), along.relu};
        finish.value_gradient = element(value_gradient, 0);
        finish.add_to_gradient = column > 0 || feature > 0;
      }
      const bool on_tensor_cores = columns_on_tensor_cores(pass);
      if (rows.pattern == nullptr) {
        pass.work = unmasked_work(pairs, n);
      } else {
        lists = lists_of(*rows.pattern, *keys.pattern, on_tensor_cores);
        pass.work = work_of(*lists);
      }
      const bool direct = rows.pattern == nullptr && on_tensor_cores && !several;
      const std::int64_t u_bytes = nnz * pass.value_columns * (on_tensor_cores ? 2 : wide.dtype().itemsize());
      const std::int64_t group =
          direct ? std::min<std::int64_t>(pairs, 65535)
                 : std::clamp<std::int64_t>(kProductBytes / std::max<std::int64_t>(u_bytes, 1), 1,
                                            std::min<std::int64_t>(pairs, 65535));
      for (pass.first_pair = 0; pass.first_pair < pairs; pass.first_pair += group) {
        pass.num_pairs = std::min(group, pairs - pass.first_pair);
        const at::Tensor workspace = bytes_on(x.rows, static_cast<std::size_t>(column_workspace(pass)));
        pass.workspace = workspace.data_ptr();
        if (direct) {
          check_cuda(unmasked_rows(pass, finish, stream), "unmasked attention");
          continue;
        }
        const at::Tensor u = bytes_on(x.rows, static_cast<std::size_t>(pass.num_pairs * u_bytes));
        const at::Tensor u_edge = at::empty({pass.edge == ColumnEdge::ones ? pass.num_pairs : 0, nnz}, wide);
        pass.u = u.data_ptr();
        pass.u_edge = u_edge.data_ptr();
        check_cuda(column_products(pass, stream), "feature engine, columns");
        check_cuda(column_row_sums(pass, finish, stream), "feature engine, rows");
      }
    }
  }
  const std::int64_t by_pair = lists == nullptr ? 0 : lists->narrow_pairs;
  const std::int64_t by_state = lists == nullptr ? 2 * n : lists->wide_entries;
  count_multiply_adds(pairs *
                      (by_pair * (features + columns) + by_state * features * columns + nnz * columns));
}

// The heads that one mask serves: all, or one.
at::Tensor head_of(const at::Tensor& x, std::int64_t head, bool all) {
  return all ? x : x.narrow(1, head, 1);
}

// One mask for all heads of x, or one for each: use(factors or null, of, which), `of` narrowing a tensor to
// the heads it serves.
template <class Use>
void for_masks(const std::vector<SparseFactors>& factors, const Use& use) {
  const bool all = factors.size() <= 1;
  const std::size_t count = std::max<std::size_t>(1, factors.size());
  for (std::size_t which = 0; which < count; ++which) {
    const auto of = [&](const at::Tensor& x) { return head_of(x, static_cast<std::int64_t>(which), all); };
    use(factors.empty() ? nullptr : &factors[which], of);
  }
}

Side side_of(const SparseEntries* entries, at::ScalarType dtype) {
  if (entries == nullptr) return {};
  return {entries->pattern.get(), entries->values.to(dtype).contiguous()};
}

// dL/dvalues [B * H, nnz] summed over what shares them, in one order.
at::Tensor summed_over_pairs(const at::Tensor& gradient, std::int64_t heads, const at::Tensor& values) {
  const std::int64_t nnz = gradient.size(1);
  const at::Tensor sum =
      values.size(0) == heads && heads > 1 ? gradient.view({-1, heads, nnz}).sum(0) : gradient.sum(0, true);
  return sum.to(values.scalar_type());
}

}  // namespace

bool has_column_engine_on_gpu(const EngineInputs& inputs, const std::vector<SparseFactors>& factors) {
  // Without a mask, other types are for cuBLAS.
  if (factors.empty()) {
    ColumnPass pass;
    pass.dtype = real_of(inputs.q.scalar_type());
    pass.features = static_cast<int>(std::min<std::int64_t>(inputs.q.size(3), kColumnWidth));
    pass.value_columns = static_cast<int>(std::min<std::int64_t>(inputs.v.size(3), kColumnWidth));
    pass.x.rows = rows_from(adjacent_columns(inputs.q), 0);
    pass.y.rows = rows_from(adjacent_columns(inputs.k), 0);
    pass.z.rows = rows_from(adjacent_columns(inputs.v), 0);
    return inputs.q.size(3) <= kColumnWidth && columns_on_tensor_cores(pass);
  }
  // Making lists means that the host waits for their lengths.
  const bool captured = capture_id(inputs.q.device()) != 0;
  return std::none_of(factors.begin(), factors.end(), [&](const SparseFactors& own) {
    return captured || own.left.pattern->padded || own.right.pattern->padded;
  });
}

EngineResult column_engine_forward_on_gpu(const EngineInputs& inputs,
                                          const std::vector<SparseFactors>& factors) {
  const CudaLaunch launch(inputs.q);
  const at::ScalarType wide = accumulator(inputs.q.scalar_type());
  const at::Tensor q = adjacent_columns(inputs.q), k = adjacent_columns(inputs.k),
                   v = adjacent_columns(inputs.v);
  const at::Tensor out = at::empty_like(v);
  const at::TensorOptions options = q.options().dtype(wide);
  const at::IntArrayRef sizes = q.sizes().slice(0, 3);
  // Of each head on its own, so that those of one mask stand together.
  at::Tensor inverse =
      at::empty(factors.size() > 1 ? at::IntArrayRef{q.size(1), q.size(0), q.size(2)} : sizes, options);
  std::int64_t which = 0;
  for_masks(factors, [&](const SparseFactors* own, const auto& of) {
    WholePass pass;
    pass.rows = side_of(own == nullptr ? nullptr : &own->left, wide);
    pass.keys = side_of(own == nullptr ? nullptr : &own->right, wide);
    pass.x = {of(q), inputs.rule.is_relu()};
    pass.y = {of(k), inputs.rule.is_relu()};
    pass.z = {of(v), false};
    pass.epsilon = inputs.rule.epsilon;
    pass.edge = ColumnEdge::ones;
    pass.out = of(out);
    pass.normalise = true;
    pass.guard = inputs.rule.guard;
    pass.inverse = factors.size() > 1 ? inverse[which++] : inverse;
    pass.run(launch.stream);
  });
  if (factors.size() > 1) inverse = inverse.transpose(0, 1);
  return {out, {inverse}};
}

EngineGradients column_engine_backward_on_gpu(const at::Tensor& given_grad, const EngineInputs& inputs,
                                              const std::vector<SparseFactors>& factors,
                                              const EngineResult& result, bool mask_learns) {
  const CudaLaunch launch(inputs.q);
  const at::ScalarType wide = accumulator(inputs.q.scalar_type());
  const at::Tensor q = adjacent_columns(inputs.q), k = adjacent_columns(inputs.k),
                   v = adjacent_columns(inputs.v), grad = adjacent_columns(given_grad.to(v.scalar_type())),
                   out = adjacent_columns(result.out);
  const bool relu = inputs.rule.is_relu();
  EngineGradients gradients = {at::empty_like(q), at::empty_like(k), at::empty_like(v), {}};
  for_masks(factors, [&](const SparseFactors* own, const auto& of) {
    const Side phi = side_of(own == nullptr ? nullptr : &own->left, wide),
               psi = side_of(own == nullptr ? nullptr : &own->right, wide);
    const at::Tensor own_grad = of(grad), own_out = of(out), inverse = of(result.saved[0]).contiguous();
    const std::int64_t batch = own_grad.size(0), heads = own_grad.size(1), n = own_grad.size(2);
    // <G_i, out_i> but for the factor 1 / D_i.
    const at::Tensor edge = at::empty({batch, heads, n}, inverse.options());
    check_cuda(
        row_products(real_of(grad.scalar_type()), batch, heads, n, grad.size(3), rows_from(own_grad, 0),
                     rows_from(own_out, 0), -1, edge.data_ptr(), launch.stream),
        "feature engine, normaliser");
    const auto room = [&](const Side& side) {
      return empty_values(*side.pattern, {batch * heads, side.pattern->nnz()}, inverse.options());
    };
    WholePass of_q;
    of_q.rows = phi;
    of_q.keys = psi;
    of_q.x = {own_grad, false};
    of_q.y = {of(v), false};
    of_q.z = {of(k), relu};
    of_q.edge = ColumnEdge::extra;
    of_q.x_extra = edge;
    of_q.out = of(gradients.q);
    of_q.row_scale = inverse;

    WholePass of_k;
    of_k.rows = psi;
    of_k.keys = phi;
    of_k.x = {of(v), false};
    of_k.y = {own_grad, false};
    of_k.z = {of(q), relu};
    of_k.key_scale = inverse;
    of_k.edge = ColumnEdge::extra;
    of_k.y_extra = edge;
    of_k.out = of(gradients.k);

    WholePass of_v;
    of_v.rows = psi;
    of_v.keys = phi;
    of_v.x = {of(k), relu};
    of_v.y = {of(q), relu};
    of_v.z = {own_grad, false};
    of_v.key_scale = inverse;
    of_v.out = of(gradients.v);

    if (relu) {
      of_q.gate = of(q);
      of_k.gate = of(k);
    }
    if (mask_learns && own != nullptr) {
      of_q.along = {of(q), relu};
      of_q.value_gradient = room(phi);
      of_k.along = {of(k), relu};
      of_k.value_gradient = room(psi);
    }
    for (WholePass* pass : {&of_q, &of_k, &of_v}) {
      pass->epsilon = inputs.rule.epsilon;
      pass->run(launch.stream);
    }
    if (mask_learns && own != nullptr) {
      gradients.mask.push_back(summed_over_pairs(of_q.value_gradient, heads, own->left.values));
      gradients.mask.push_back(summed_over_pairs(of_k.value_gradient, heads, own->right.values));
    }
  });
  return gradients;
}

}  // namespace topomask
