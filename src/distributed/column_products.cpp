// Products with Phi and Psi whose columns other ranks share, and sums over ranks, with their gradients.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "distributed/mask_parts.h"

namespace topomask {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

template <class State>
struct RankState : torch::CustomClassHolder {
  explicit RankState(State of) : state(std::move(of)) {}
  State state;
};

template <class State>
const State& state_of(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<RankState<State>>(context->saved_data["state"].toCapsule())
      ->state;
}

class SummedGradient : public torch::autograd::Function<SummedGradient> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const c10::intrusive_ptr<RankState<RanksPtr>>& ranks) {
    context->saved_data["state"] = c10::IValue::make_capsule(ranks);
    return x.clone();
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    return {state_of<RanksPtr>(context)->sum(grads[0], "gradients"), at::Tensor()};
  }
};

class SumOverRanks : public torch::autograd::Function<SumOverRanks> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const c10::intrusive_ptr<RankState<RanksPtr>>& ranks) {
    context->saved_data["state"] = c10::IValue::make_capsule(ranks);
    return ranks->state->sum(x, "sums");
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    return {state_of<RanksPtr>(context)->sum(grads[0], "gradients"), at::Tensor()};
  }
};

// [H, n, C] -> [H, n + u, C]: own columns, then those of others as their owners have them.
at::Tensor extended(const NodeExchange& exchange, const at::Tensor& own) {
  const at::Tensor sent = own.index_select(1, exchange.send_rows()).transpose(0, 1);
  return at::cat({own, exchange.start(sent, "columns").wait().transpose(0, 1)}, 1);
}

// Its transpose: what is known here of others' columns is added to theirs, in the order of ranks.
at::Tensor reduced(const NodeExchange& exchange, const at::Tensor& all) {
  const std::int64_t own = all.size(1) - exchange.num_received();
  const at::Tensor others = all.narrow(1, own, exchange.num_received()).transpose(0, 1);
  at::Tensor sums = all.narrow(1, 0, own).clone(at::MemoryFormat::Contiguous);
  exchange.add_back(sums, 1, exchange.start_back(others, "partial sums").wait().transpose(0, 1));
  return sums;
}

// `back`: reduced, else extended; each is the other's gradient.
class MoveColumns : public torch::autograd::Function<MoveColumns> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const c10::intrusive_ptr<RankState<NodeExchange>>& exchange, bool back) {
    context->saved_data["state"] = c10::IValue::make_capsule(exchange);
    context->saved_data["back"] = back;
    return back ? reduced(exchange->state, x) : extended(exchange->state, x);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const NodeExchange& exchange = state_of<NodeExchange>(context);
    const bool back = context->saved_data["back"].toBool();
    return {back ? extended(exchange, grads[0]) : reduced(exchange, grads[0]), at::Tensor(), at::Tensor()};
  }
};

at::Tensor move_columns(const NodeExchange& exchange, const at::Tensor& x, bool back) {
  return MoveColumns::apply(x, c10::make_intrusive<RankState<NodeExchange>>(exchange), back);
}

}  // namespace

at::Tensor with_summed_gradient(const RanksPtr& ranks, const at::Tensor& x) {
  if (!ranks->has_group() || !x.requires_grad()) return x;
  return SummedGradient::apply(x, c10::make_intrusive<RankState<RanksPtr>>(ranks));
}

at::Tensor sum_over_ranks(const RanksPtr& ranks, const at::Tensor& x) {
  return !ranks->has_group() ? x : SumOverRanks::apply(x, c10::make_intrusive<RankState<RanksPtr>>(ranks));
}

at::Tensor multiply_by_columns(const MaskColumns& columns, const at::Tensor& f, const at::Tensor& x,
                               bool transposed) {
  using Side = MaskColumns::Side;
  const auto product = [&](const Side& side, const at::Tensor& own_f, const at::Tensor& in, bool by_columns) {
    const at::Tensor values =
        side.features.nnz() == 0
            ? own_f.narrow(1, 0, 0)
            : side.features.values(own_f).index_select(1, side.order).to(x.scalar_type());
    // Without rows there are no columns either. f stays in the graph of gradients.
    if (values.size(1) == 0) return in + values.sum().to(in.scalar_type());
    const at::Tensor out = sparse_matmul(
        side.pattern, values, by_columns ? with_empty_rows(in, side.pattern->num_nodes()) : in, by_columns);
    return by_columns ? out : out.narrow(1, 0, side.features.num_nodes());
  };
  // A^T x, summed at the owners of its rows; and A z of what they have.
  const auto gathered = [&](const Side& side, const at::Tensor& own_f, const at::Tensor& in) {
    return move_columns(side.exchange, product(side, own_f, in, /*by_columns=*/true), /*back=*/true);
  };
  const auto spread = [&](const Side& side, const at::Tensor& own_f, const at::Tensor& in) {
    return product(side, own_f, move_columns(side.exchange, in, /*back=*/false), /*by_columns=*/false);
  };
  const at::Tensor of_query = query_part(f), of_key = key_part(f);
  if (!columns.key.pattern)
    return transposed ? gathered(columns.query, of_query, x) : spread(columns.query, of_query, x);
  return transposed ? spread(columns.key, of_key, gathered(columns.query, of_query, x))
                    : spread(columns.query, of_query, gathered(columns.key, of_key, x));
}

}  // namespace topomask
