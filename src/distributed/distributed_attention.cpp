#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "attention/engines.h"
#include "core/check.h"
#include "distributed/mask_parts.h"
#include "topomask/distributed.h"

namespace topomask {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

using Symbolic = DistributedGrfMask::Symbolic;

struct MaskCall : torch::CustomClassHolder {
  std::shared_ptr<Symbolic> symbolic;
  ScoreRule rule;
  bool learning = false;
};

// Rows of two tensors [B, H, n, *] as one message [n, *].
at::Tensor packed_rows(const at::Tensor& k, const at::Tensor& v) {
  const auto rows = [](const at::Tensor& x) { return x.permute({2, 0, 1, 3}).flatten(1); };
  return at::cat({rows(k), rows(v)}, 1);
}

// And back: [B, H, rows, m] and [B, H, rows, d_v].
std::pair<at::Tensor, at::Tensor> unpacked_rows(const at::Tensor& message, const at::Tensor& k,
                                                const at::Tensor& v) {
  const std::int64_t batch = k.size(0), heads = k.size(1), rows = message.size(0);
  const std::int64_t of_keys = batch * heads * k.size(3);
  const auto part = [&](std::int64_t begin, std::int64_t width) {
    return message.narrow(1, begin, batch * heads * width)
        .reshape({rows, batch, heads, width})
        .permute({1, 2, 0, 3});
  };
  return {part(0, k.size(3)), part(of_keys, v.size(3))};
}

// What the boundary needs of K and V: own rows that it meets, then those of the halo.
std::pair<at::Tensor, at::Tensor> boundary_operands(const MaskRows& rows, const at::Tensor& k,
                                                    const at::Tensor& v, const at::Tensor& message) {
  const auto [k_halo, v_halo] = unpacked_rows(message, k, v);
  return {at::cat({k.index_select(2, rows.touched), k_halo}, 2).contiguous(),
          at::cat({v.index_select(2, rows.touched), v_halo}, 2).contiguous()};
}

at::Tensor first_rows(const at::Tensor& x, std::int64_t rows) {
  return x.size(2) == rows ? x : x.narrow(2, 0, rows);
}

// A piece of M applied to rows that need not fill it up (see MaskPiece).
EngineResult forward_piece(const MaskPiece& piece, const EngineInputs& rows, const at::Tensor& values,
                           bool learning) {
  if (piece.empty()) {
    const at::Tensor nothing = at::empty({0}, rows.v.options());
    std::vector<std::int64_t> sizes = rows.q.sizes().vec();
    sizes[3] = rows.v.size(3);
    return {at::zeros(sizes, rows.v.options()), {nothing, nothing, nothing}};
  }
  EngineResult result = mask_engine_forward(
      {with_empty_rows(rows.q, piece.query_rows()), with_empty_rows(rows.k, piece.key_rows()),
       with_empty_rows(rows.v, piece.key_rows()), rows.rule},
      {{piece.pattern(), values}}, learning);
  result.out = first_rows(result.out, rows.q.size(2));
  return result;
}

// `result`: what the forward pass gave and saved.
EngineGradients backward_piece(const MaskPiece& piece, const at::Tensor& grad_out, const EngineInputs& rows,
                               const at::Tensor& values, const EngineResult& result, bool mask_learns) {
  if (piece.empty())
    return {at::zeros_like(rows.q), at::zeros_like(rows.k), at::zeros_like(rows.v), {at::zeros_like(values)}};
  EngineGradients found = mask_engine_backward(
      with_empty_rows(grad_out, piece.query_rows()),
      {with_empty_rows(rows.q, piece.query_rows()), with_empty_rows(rows.k, piece.key_rows()),
       with_empty_rows(rows.v, piece.key_rows()), rows.rule},
      {{piece.pattern(), values}}, {with_empty_rows(result.out, piece.query_rows()), result.saved},
      mask_learns);
  found.q = first_rows(found.q, rows.q.size(2));
  found.k = first_rows(found.k, rows.k.size(2));
  found.v = first_rows(found.v, rows.v.size(2));
  return found;
}

class DistributedMaskAttention : public torch::autograd::Function<DistributedMaskAttention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& interior_values,
                            const at::Tensor& boundary_values, const c10::intrusive_ptr<MaskCall>& call) {
    const at::NoGradGuard no_graph;
    const MaskRows& rows = call->symbolic->rows(q.device());
    const at::Tensor& send = rows.exchange.send_rows();
    Ranks::Pending pending =
        rows.exchange.start(packed_rows(k.index_select(2, send), v.index_select(2, send)), "K and V");
    const EngineResult interior =
        forward_piece(rows.interior, {q, k, v, call->rule}, interior_values, call->learning);
    const at::Tensor message = pending.wait();
    const auto [k_boundary, v_boundary] = boundary_operands(rows, k, v, message);
    const EngineResult boundary =
        forward_piece(rows.boundary, {q.index_select(2, rows.rows), k_boundary, v_boundary, call->rule},
                      boundary_values, call->learning);
    at::Tensor out = interior.out;
    out.index_copy_(2, rows.rows, boundary.out);
    if (call->learning) {
      // 1 / D_i of 0: no gradient comes back through these rows of the interior.
      if (!rows.interior.empty()) at::Tensor(interior.saved[0]).index_fill_(2, rows.rows, 0);
      variable_list saved = {q, k, v, out, k_boundary, v_boundary, interior_values, boundary_values};
      saved.insert(saved.end(), interior.saved.begin(), interior.saved.end());
      saved.insert(saved.end(), boundary.saved.begin(), boundary.saved.end());
      context->save_for_backward(saved);
      context->saved_data["call"] = c10::IValue::make_capsule(call);
    }
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const at::NoGradGuard no_graph;
    const variable_list saved = context->get_saved_variables();
    const auto call = c10::static_intrusive_pointer_cast<MaskCall>(context->saved_data["call"].toCapsule());
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3];
    const MaskRows& rows = call->symbolic->rows(q.device());
    const at::Tensor grad_out = grads[0].contiguous();
    const bool mask_learns = context->needs_input_grad(3) || context->needs_input_grad(4);
    const std::int64_t touched = rows.touched.numel(), halo = rows.exchange.num_received();

    const EngineGradients boundary =
        backward_piece(rows.boundary, grad_out.index_select(2, rows.rows),
                       {q.index_select(2, rows.rows), saved[4], saved[5], call->rule}, saved[7],
                       {out.index_select(2, rows.rows), {saved[11], saved[12], saved[13]}}, mask_learns);
    // Gradients of the halo's rows go to their owners while the interior is computed.
    Ranks::Pending pending = rows.exchange.start_back(
        packed_rows(boundary.k.narrow(2, touched, halo), boundary.v.narrow(2, touched, halo)),
        "gradients of K and V");
    EngineGradients found = backward_piece(rows.interior, grad_out, {q, k, v, call->rule}, saved[6],
                                           {out, {saved[8], saved[9], saved[10]}}, mask_learns);
    found.q.index_copy_(2, rows.rows, boundary.q);
    found.k.index_add_(2, rows.touched, boundary.k.narrow(2, 0, touched));
    found.v.index_add_(2, rows.touched, boundary.v.narrow(2, 0, touched));
    const auto [k_sent, v_sent] = unpacked_rows(pending.wait(), k, v);
    rows.exchange.add_back(found.k, 2, k_sent);
    rows.exchange.add_back(found.v, 2, v_sent);
    variable_list all = {found.q, found.k, found.v, at::Tensor(), at::Tensor(), at::Tensor()};
    if (mask_learns) {
      all[3] = found.mask[0];
      all[4] = boundary.mask[0];
    }
    return all;
  }
};

struct ColumnsCall : torch::CustomClassHolder {
  std::shared_ptr<Symbolic> symbolic;
  std::int64_t block = 1;  // features at a time, the same on every rank
};

// sums_i = sum over a block of features a of q_ia [M (k_a x [v|1])]_i. q, k: [B, H, n, block], v1: [B, H, n,
// d].
at::Tensor attend_block(const ColumnsCall& call, const at::Tensor& q, const at::Tensor& k,
                        const at::Tensor& v1, const at::Tensor& f) {
  const std::int64_t batch = k.size(0), heads = k.size(1), n = k.size(2), block = k.size(3), d = v1.size(3);
  const at::Tensor columns =
      (k.unsqueeze(-1) * v1.unsqueeze(-2)).permute({1, 2, 0, 3, 4}).reshape({heads, n, batch * block * d});
  Symbolic& symbolic = *call.symbolic;
  const at::Tensor image = multiply_by_columns(symbolic.columns(f.device()), f, columns, /*transposed=*/false)
                               .view({heads, n, batch, block, d})
                               .permute({2, 0, 1, 3, 4});
  return (q.unsqueeze(-1) * image).sum(3);
}

class ColumnsAttention : public torch::autograd::Function<ColumnsAttention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v1, const at::Tensor& f,
                            const c10::intrusive_ptr<ColumnsCall>& call) {
    const at::NoGradGuard no_graph;
    context->save_for_backward({q, k, v1, f});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    at::Tensor sums = at::zeros({q.size(0), q.size(1), q.size(2), v1.size(3)}, v1.options());
    for (std::int64_t a = 0; a < q.size(3); a += call->block) {
      const std::int64_t width = std::min(call->block, q.size(3) - a);
      sums += attend_block(*call, q.narrow(3, a, width), k.narrow(3, a, width), v1, f);
    }
    return sums;
  }

  // Every block is computed again, with gradients: memory stays that of one.
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const auto call =
        c10::static_intrusive_pointer_cast<ColumnsCall>(context->saved_data["call"].toCapsule());
    const at::Tensor &q = saved[0], &k = saved[1], &v1 = saved[2], &f = saved[3];
    at::Tensor of_q = at::zeros_like(q), of_k = at::zeros_like(k), of_v = at::zeros_like(v1),
               of_f = at::zeros_like(f);
    for (std::int64_t a = 0; a < q.size(3); a += call->block) {
      const at::AutoGradMode with_graph(true);
      const std::int64_t width = std::min(call->block, q.size(3) - a);
      const auto leaf = [](const at::Tensor& x) { return x.detach().requires_grad_(); };
      const variable_list leaves = {leaf(q.narrow(3, a, width)), leaf(k.narrow(3, a, width)), leaf(v1),
                                    leaf(f)};
      const at::Tensor sums = attend_block(*call, leaves[0], leaves[1], leaves[2], leaves[3]);
      const variable_list found = torch::autograd::grad({sums}, leaves, {grads[0]});
      const at::NoGradGuard no_graph;
      of_q.narrow(3, a, width).copy_(found[0]);
      of_k.narrow(3, a, width).copy_(found[1]);
      of_v += found[2];
      of_f += found[3];
    }
    return {of_q, of_k, of_v, of_f, at::Tensor()};
  }
};

// Operands as both engines take them.
struct LocalCall {
  at::Tensor q, k, v;
  bool packed = false;
  at::ScalarType dtype = at::kFloat;

  LocalCall(const Ranks& ranks, const at::Tensor& given_q, const at::Tensor& given_k,
            const at::Tensor& given_v, const AttentionOptions& options, Engine engine)
      : packed(given_q.dim() == 3), dtype(given_v.scalar_type()) {
    check_max_workspace(options);
    const auto work = given_q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const auto rows = [&](const at::Tensor& x) {
      return (packed ? x.permute({1, 0, 2}).unsqueeze(0) : x).to(work).contiguous();
    };
    q = rows(given_q);
    k = rows(given_k);
    v = rows(given_v);
    // The mask engine forms ReLU features itself.
    if (engine == Engine::mask && score_rule_of(options, q.size(3)).kind != ScoreKind::features) return;
    // An empty part has no largest exponent of its own, but still its place in the graph of gradients.
    q = q.size(2) > 0 ? options.feature_map(q, /*is_query=*/true).contiguous()
                      : q.sum(-1, true).expand({-1, -1, -1, options.feature_map.output_features(q.size(3))});
    k = key_features(options.feature_map, k, [&](const at::Tensor& largest) {
          return ranks.largest(largest, "the largest exponents");
        }).contiguous();
  }
  at::Tensor finish(const at::Tensor& out) const {
    return (packed ? out.squeeze(0).permute({1, 0, 2}) : out).to(dtype);
  }
};

// One set of walks: q, k: [B, H, n, d], v: [B, H, n, d_v] as LocalCall makes them, f: [1 or H, terms].
at::Tensor attend_by_rows(const std::shared_ptr<Symbolic>& symbolic, const at::Tensor& q, const at::Tensor& k,
                          const at::Tensor& v, const at::Tensor& f, const AttentionOptions& options) {
  auto state = c10::make_intrusive<MaskCall>();
  state->symbolic = symbolic;
  state->rule = score_rule_of(options, q.size(-1));
  state->learning = at::GradMode::is_enabled() &&
                    (q.requires_grad() || k.requires_grad() || v.requires_grad() || f.requires_grad());
  const auto [interior, boundary] = symbolic->values(f);
  const auto as_work = [&](const at::Tensor& x) { return x.to(q.scalar_type()).contiguous(); };
  return DistributedMaskAttention::apply(q, k, v, as_work(interior), as_work(boundary), state);
}

at::Tensor attend_by_columns(const std::shared_ptr<Symbolic>& symbolic, const at::Tensor& q,
                             const at::Tensor& k, const at::Tensor& v, const at::Tensor& f,
                             const AttentionOptions& options) {
  auto state = c10::make_intrusive<ColumnsCall>();
  state->symbolic = symbolic;
  AttentionShape shape = AttentionShape::of(q, v);
  shape.num_nodes = symbolic->graph->largest_part();
  const double one_feature = feature_workspace(shape);
  check(options.max_workspace == 0 || one_feature <= static_cast<double>(options.max_workspace),
        "attention: the feature engine needs {:.3g} bytes of workspace for one feature of the largest part, "
        "max_workspace is {}; allow more, or use more ranks",
        one_feature, options.max_workspace);
  state->block = feature_block(shape, options.max_workspace > 0 ? options.max_workspace : kColumnWorkspace);
  return divide_by_normaliser(ColumnsAttention::apply(q, k, with_ones(v), f, state),
                              options.normaliser_guard);
}

}  // namespace

Engine choose_engine(const DistributedGrfMask& mask, const AttentionOptions& options, std::int64_t d,
                     std::int64_t d_v) {
  check(options.engine != Engine::dense,
        "attention: over ranks there are the engines mask and feature, not dense");
  check(options.kind == AttentionKind::linear || options.engine != Engine::feature,
        "attention: the feature engine computes linear attention, not softmax");
  if (options.kind == AttentionKind::softmax) return Engine::mask;
  if (options.engine != Engine::automatic) return options.engine;
  PairCounts counts;
  for (const std::shared_ptr<Symbolic>& set : mask.sets_) {
    counts.pairs += set->pairs().pairs;
    counts.entries += set->pairs().entries;
  }
  return engine_for(counts, static_cast<double>(options.feature_map.output_features(d)),
                    static_cast<double>(d_v));
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const DistributedGrfMask& mask, const AttentionOptions& options) {
  check_attention_operands(q, k, v, "distributed grf", mask.num_own(), mask.heads(), options);
  check(q.device() == mask.f().device(), "attention: f of the mask must be on {} as q, got {}",
        q.device().str(), mask.f().device().str());
  const Engine engine = choose_engine(mask, options, q.size(-1), v.size(-1));
  const LocalCall call(*mask.ranks(), q, k, v, options, engine);
  const at::Tensor f = with_summed_gradient(mask.ranks(), mask.f());
  const auto attend = engine == Engine::mask ? attend_by_rows : attend_by_columns;
  if (mask.num_sets() == 1) return call.finish(attend(mask.sets_[0], call.q, call.k, call.v, f, options));
  // Heads with walks of their own have halos of their own, too.
  std::vector<at::Tensor> of_heads;
  for (std::int64_t h = 0; h < mask.num_sets(); ++h) {
    const auto head = [&](const at::Tensor& x) { return x.narrow(1, h, 1).contiguous(); };
    of_heads.push_back(attend(mask.sets_[static_cast<std::size_t>(h)], head(call.q), head(call.k),
                              head(call.v), f.narrow(0, h, 1), options));
  }
  return call.finish(at::cat(of_heads, 1));
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const RanksPtr& ranks,
                     const AttentionOptions& options) {
  check(q.defined() && q.dim() >= 3, "attention: q must be [B, H, N, d] or packed [N, H, d]");
  check_attention_operands(q, k, v, "none", q.size(q.dim() == 3 ? 0 : 2), 1, options);
  check(options.kind == AttentionKind::linear,
        "attention: without a mask, ranks compute linear attention, not softmax");
  const LocalCall call(*ranks, q, k, v, options, Engine::feature);
  const at::Tensor state = sum_over_ranks(ranks, at::matmul(call.k.transpose(-2, -1), with_ones(call.v)));
  return call.finish(divide_by_normaliser(at::matmul(call.q, state), options.normaliser_guard));
}

}  // namespace topomask
