// Masked attention as one operator: checks, plan, values of M, engine and backward pass are the library's.
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/repeat_interleave.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "attention/engines.h"
#include "core/tensors.h"
#include "ops/arguments.h"
#include "ops/expressions.h"
#include "ops/library_call.h"
#include "topomask/attention.h"
#include "topomask/masks.h"

namespace topomask::ops {
namespace {

// What the operators take after the tensors of the mask. What is not given is the library's default.
struct Settings {
  std::string kind, feature_map, engine;
  std::optional<double> epsilon = {};
  std::optional<std::int64_t> num_features = {};
  std::int64_t feature_seed = 0;
  std::optional<double> guard = {};
  std::optional<std::int64_t> max_workspace = {};
  bool check_finite = false;

  AttentionOptions options() const {
    AttentionOptions result =
        attention_options(kind, feature_map, engine, epsilon, num_features, feature_seed);
    result.normaliser_guard = guard.value_or(result.normaliser_guard);
    result.max_workspace = max_workspace.value_or(result.max_workspace);
    result.check_finite = check_finite;
    return result;
  }
};

Settings settings_of(std::string_view kind, std::string_view feature_map, std::string_view engine,
                     std::optional<double> epsilon, std::optional<std::int64_t> num_features,
                     std::int64_t feature_seed, std::optional<double> guard,
                     std::optional<std::int64_t> max_workspace, bool check_finite) {
  return {std::string(kind),
          std::string(feature_map),
          std::string(engine),
          epsilon,
          num_features,
          feature_seed,
          guard,
          max_workspace,
          check_finite};
}

// As _ops.py promises: in the order in memory that v has on a GPU, so that what was a slice of a projection
// [B, N, H, d] goes to the next one without a copy; row after row on the CPU.
at::Tensor laid_out_like(const at::Tensor& v, const at::Tensor& out) {
  if (!v.is_cuda()) return out.contiguous();
  if (out.strides() == v.strides() && v.is_non_overlapping_and_dense()) return out;
  const at::Tensor promised = at::empty_like(v, v.options().device(at::kMeta));
  if (out.strides() == promised.strides()) return out;
  return at::empty_strided(promised.sizes(), promised.strides(), out.options()).copy_(out);
}

MaskPtr mask_for(const std::string& recipe, at::TensorList constants, at::TensorList parameters,
                 const at::Tensor& q) {
  if (!recipe.empty()) return mask_of(recipe, constants, parameters);
  check(q.dim() == 3 || q.dim() == 4,
        "attention: q must be [B, H, N, d] or packed [N, H, d], got {} dimensions", q.dim());
  return std::make_shared<NoMask>(q.size(q.dim() == 3 ? 0 : 2), q.device());
}

// Whether attention_forward keeps what the backward pass needs: the engine must be named, and a tracer must
// know the number of entries.
bool keeps_something(const std::string& recipe, const AttentionOptions& options,
                     const AttentionShape& shape) {
  if (recipe.empty() || !has_pure_passes(options, options.engine, shape)) return false;
  return options.engine == Engine::dense || profile_of(recipe).entries_counted;
}

// The plan for a batch of one serves every batch: all engines take proportionally longer for more.
Engine traced_engine(const std::string& recipe, const AttentionOptions& options, const at::Tensor& q,
                     const at::Tensor& v, bool learning) {
  const auto size = [](const at::Tensor& x, std::int64_t axis) {
    return x.sym_size(axis).guard_int(__FILE__, __LINE__);
  };
  const bool packed = q.dim() == 3;
  AttentionShape shape;
  shape.heads = size(q, 1);
  shape.num_nodes = size(q, packed ? 0 : 2);
  shape.d = size(q, -1);
  shape.d_v = size(v, -1);
  shape.dtype = q.scalar_type();
  shape.device = q.device();
  shape.learning = learning;
  const MaskProfile profile = recipe.empty() ? NoMask(shape.num_nodes).profile() : profile_of(recipe);
  return plan_attention(profile, shape, options).engine;
}

TensorFunction run_attention(const std::string& recipe, at::TensorList constants, const Settings& settings) {
  return [recipe, constants = constants.vec(), options = settings.options()](const Tensors& x) {
    check_place("attention", "q", x[0]);
    check_place("attention", "k", x[1]);
    check_place("attention", "v", x[2]);
    // Sums over many nodes need more digits than 16 bits have.
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const MaskPtr mask = mask_for(recipe, constants, at::TensorList(x).slice(3), x[0]);
    return laid_out_like(x[2], attention(x[0], x[1], x[2], mask, options));
  };
}

Tensors operands(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::TensorList parameters) {
  Tensors result = {q, k, v};
  result.insert(result.end(), parameters.begin(), parameters.end());
  return result;
}

at::Tensor attention_op(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::string_view mask,
                        at::TensorList constants, at::TensorList parameters, std::string_view kind,
                        std::string_view feature_map, std::string_view engine, std::optional<double> epsilon,
                        std::optional<std::int64_t> num_features, std::int64_t feature_seed,
                        std::optional<double> guard, std::optional<std::int64_t> max_workspace,
                        bool check_finite) {
  const Settings settings = settings_of(kind, feature_map, engine, epsilon, num_features, feature_seed, guard,
                                        max_workspace, check_finite);
  return without_graph(run_attention(std::string(mask), constants, settings), operands(q, k, v, parameters));
}

// ---- with gradients ----

struct PureState : torch::CustomClassHolder {
  MaskPtr mask;
  AttentionOptions options;
};

// Where an engine has a forward and a backward pass of its own, they are called as they are: no graph of the
// library's own is recorded, and none is walked.
class PureAttention : public torch::autograd::Function<PureAttention> {
 public:
  // inputs: q, k, v and the mask's parameters.
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::TensorList inputs,
                            const c10::intrusive_ptr<PureState>& state) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    EngineResult result = attention_forward(inputs[0], inputs[1], inputs[2], *state->mask, state->options);
    result.out = laid_out_like(inputs[2], result.out);
    Tensors kept = inputs.vec();
    kept.push_back(result.out);
    kept.insert(kept.end(), result.saved.begin(), result.saved.end());
    context->save_for_backward(kept);
    context->saved_data["state"] = c10::IValue::make_capsule(state);
    return result.out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const Tensors kept = context->get_saved_variables();  // throws where the graph was freed, or f written to
    const auto state =
        c10::static_intrusive_pointer_cast<PureState>(context->saved_data["state"].toCapsule());
    const std::size_t parameters = state->mask->parameters().size(), inputs = 3 + parameters;
    bool mask_learns = false;
    for (std::size_t i = 3; i < inputs; ++i) mask_learns = mask_learns || context->needs_input_grad(i);
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    AttentionGradients found =
        attention_backward(grads[0], kept[0], kept[1], kept[2], *state->mask, state->options,
                           {kept[inputs], {kept.begin() + inputs + 1, kept.end()}}, mask_learns);
    torch::autograd::variable_list all = {found.q, found.k, found.v};
    all.insert(all.end(), found.parameters.begin(), found.parameters.end());
    for (std::size_t i = 0; i < inputs; ++i) {
      all[i] =
          context->needs_input_grad(i) && all[i].defined() ? all[i].to(kept[i].scalar_type()) : at::Tensor();
    }
    if (c10::GradMode::is_enabled()) all = once_only(std::move(all), {kept.begin(), kept.begin() + inputs});
    all.emplace_back();  // for the state
    return all;
  }
};

// The call as PureAttention takes it, or null where there are no such passes.
c10::intrusive_ptr<PureState> pure_call(const Tensors& inputs, const std::string& recipe,
                                        at::TensorList constants, const Settings& settings) {
  const at::Tensor &q = inputs[0], &k = inputs[1], &v = inputs[2];
  check_place("attention", "q", q);
  check_place("attention", "k", k);
  check_place("attention", "v", v);
  Tensors fixed;
  for (const at::Tensor& parameter : at::TensorList(inputs).slice(3)) fixed.push_back(parameter.detach());
  auto state = c10::make_intrusive<PureState>();
  state->mask = mask_for(recipe, constants, fixed, q);
  state->options = settings.options();
  if (v.numel() == 0) return {};
  check_attention_operands(q, k, v, state->mask->name(), state->mask->num_nodes(), state->mask->heads(),
                           state->options);
  AttentionShape shape = AttentionShape::of(q, v);
  shape.learning = is_learning(at::TensorList(inputs).slice(3).vec());
  state->options.check_finite = false;  // that was it
  state->options.engine = plan_attention(*state->mask, shape, state->options).engine;
  if (!has_pure_passes(state->options, state->options.engine, shape)) return {};
  return state;
}

// ---- while tracing ----

// The result, then what the backward pass needs of the forward pass; with nothing kept, that runs it again.
Tensors attention_forward_op(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             std::string_view mask, at::TensorList constants, at::TensorList parameters,
                             std::string_view kind, std::string_view feature_map, std::string_view engine,
                             std::optional<double> epsilon, std::optional<std::int64_t> num_features,
                             std::int64_t feature_seed, std::optional<double> guard,
                             std::optional<std::int64_t> max_workspace, bool check_finite) {
  const Settings settings = settings_of(kind, feature_map, engine, epsilon, num_features, feature_seed, guard,
                                        max_workspace, check_finite);
  const AttentionOptions options = settings.options();
  if (!keeps_something(std::string(mask), options, AttentionShape::of(q, v)))
    return {attention_op(q, k, v, mask, constants, parameters, kind, feature_map, engine, epsilon,
                         num_features, feature_seed, guard, max_workspace, check_finite)};
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const MaskPtr made = mask_for(std::string(mask), constants, parameters, q);
  EngineResult result = attention_forward(q, k, v, *made, options);
  // Recorded tensors must belong to the operator, not to a mask or to the caller.
  for (at::Tensor& saved : result.saved) {
    if (saved.storage().use_count() > 1) saved = saved.clone();
  }
  Tensors all = {laid_out_like(v, result.out)};
  all.insert(all.end(), result.saved.begin(), result.saved.end());
  return all;
}

Tensors attention_backward_op(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v, std::string_view mask, at::TensorList constants,
                              at::TensorList parameters, at::TensorList result, std::string_view kind,
                              std::string_view feature_map, std::string_view engine,
                              std::optional<double> epsilon, std::optional<std::int64_t> num_features,
                              std::int64_t feature_seed, std::optional<double> guard,
                              std::optional<std::int64_t> max_workspace, bool check_finite,
                              at::IntArrayRef needs) {
  const Settings settings = settings_of(kind, feature_map, engine, epsilon, num_features, feature_seed, guard,
                                        max_workspace, check_finite);
  const Tensors inputs = operands(q, k, v, parameters);
  if (result.size() <= 1)
    return gradients_of(run_attention(std::string(mask), constants, settings), inputs, grad, wanted(needs));
  // A kernel runs below autograd; a mask may want it, to go from its entries to its parameters.
  const WithAutograd above;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const MaskPtr made = mask_for(std::string(mask), constants, parameters, q);
  const std::vector<bool> all_needs = wanted(needs);
  const bool mask_learns = std::find(all_needs.begin() + 3, all_needs.end(), true) != all_needs.end();
  AttentionGradients found = attention_backward(grad, q, k, v, *made, settings.options(),
                                                {result[0], result.slice(1).vec()}, mask_learns);
  Tensors gradients = {found.q, found.k, found.v};
  gradients.insert(gradients.end(), found.parameters.begin(), found.parameters.end());
  return filled(std::move(gradients), inputs, all_needs);
}

Tensors attention_backward_shapes(const at::Tensor&, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v, std::string_view, at::TensorList,
                                  at::TensorList parameters, at::TensorList, std::string_view,
                                  std::string_view, std::string_view, std::optional<double>,
                                  std::optional<std::int64_t>, std::int64_t, std::optional<double>,
                                  std::optional<std::int64_t>, bool, at::IntArrayRef needs) {
  return gradient_shapes(operands(q, k, v, parameters), needs);
}

struct TracedState : torch::CustomClassHolder {
  std::string mask;
  Tensors constants;
  Settings settings;
  std::size_t inputs = 0;
};

// The forward and the backward operator as one differentiable call.
class TracedAttention : public torch::autograd::Function<TracedAttention> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::TensorList inputs,
                            const c10::intrusive_ptr<TracedState>& state) {
    static const auto forward = find_operator<decltype(attention_forward_op)>("topomask::attention_forward");
    const at::AutoDispatchBelowADInplaceOrView below;
    const Settings& s = state->settings;
    const Tensors result =
        forward.call(inputs[0], inputs[1], inputs[2], state->mask, state->constants, inputs.slice(3), s.kind,
                     s.feature_map, s.engine, s.epsilon, s.num_features, s.feature_seed, s.guard,
                     s.max_workspace, s.check_finite);
    Tensors kept = inputs.vec();
    kept.insert(kept.end(), result.begin(), result.end());
    state->inputs = inputs.size();
    context->save_for_backward(kept);
    context->saved_data["state"] = c10::IValue::make_capsule(state);
    return result[0];
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    static const auto backward =
        find_operator<decltype(attention_backward_op)>("topomask::attention_backward");
    const Tensors kept = context->get_saved_variables();
    const auto state =
        c10::static_intrusive_pointer_cast<TracedState>(context->saved_data["state"].toCapsule());
    const at::TensorList inputs = at::TensorList(kept).slice(0, state->inputs);
    std::vector<std::int64_t> needs;
    for (std::size_t i = 0; i < inputs.size(); ++i) needs.push_back(context->needs_input_grad(i));
    const Settings& s = state->settings;
    torch::autograd::variable_list result = backward.call(
        grads[0], inputs[0], inputs[1], inputs[2], state->mask, state->constants, inputs.slice(3),
        at::TensorList(kept).slice(state->inputs), s.kind, s.feature_map, s.engine, s.epsilon, s.num_features,
        s.feature_seed, s.guard, s.max_workspace, s.check_finite, needs);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (needs[i] == 0) result[i] = at::Tensor();
    }
    result.emplace_back();  // for the state
    return result;
  }
};

at::Tensor attention_autograd(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              std::string_view mask, at::TensorList constants, at::TensorList parameters,
                              std::string_view kind, std::string_view feature_map, std::string_view engine,
                              std::optional<double> epsilon, std::optional<std::int64_t> num_features,
                              std::int64_t feature_seed, std::optional<double> guard,
                              std::optional<std::int64_t> max_workspace, bool check_finite) {
  const Settings settings = settings_of(kind, feature_map, engine, epsilon, num_features, feature_seed, guard,
                                        max_workspace, check_finite);
  const Tensors inputs = operands(q, k, v, parameters);
  LibraryCall call;
  call.forward_operator = [=](const Tensors& x) {
    static const auto forward = find_operator<decltype(attention_op)>("topomask::attention");
    return forward.call(x[0], x[1], x[2], mask, constants, at::TensorList(x).slice(3), kind, feature_map,
                        engine, epsilon, num_features, feature_seed, guard, max_workspace, check_finite);
  };
  if (is_learning(inputs) && is_traced(inputs)) {
    refuse_forward_mode(inputs);
    auto state = c10::make_intrusive<TracedState>();
    state->mask = mask;
    state->constants = constants.vec();
    state->settings = settings;
    state->settings.engine =
        word_of(traced_engine(std::string(mask), settings.options(), q, v, is_learning(parameters.vec())));
    return TracedAttention::apply(at::TensorList(inputs), state);
  }
  if (is_learning(inputs)) {
    refuse_forward_mode(inputs);
    if (const auto state = pure_call(inputs, std::string(mask), constants, settings))
      return PureAttention::apply(at::TensorList(inputs), state);
  }
  call.run = run_attention(std::string(mask), constants, settings);
  return differentiable(inputs, call);
}

// Sizes of what attention_forward keeps for a batch of one, each after 1 if the first of them is proportional
// to the batch, 0 if not.
std::vector<std::vector<std::int64_t>> attention_saved_op(std::string_view mask, at::IntArrayRef shape,
                                                          at::ScalarType dtype, at::Device device,
                                                          std::string_view kind, std::string_view feature_map,
                                                          std::string_view engine) {
  check(shape.size() == 4, "attention_saved: expected heads, nodes and channels of q and v, got {} numbers",
        shape.size());
  const AttentionShape sizes{1, shape[0], shape[1], shape[2], shape[3], dtype, device};
  const Settings settings{
      .kind = std::string(kind), .feature_map = std::string(feature_map), .engine = std::string(engine)};
  const AttentionOptions options = settings.options();
  if (!keeps_something(std::string(mask), options, sizes)) return {};
  const ScoreKind scores = score_rule_of(options, sizes.d).kind;
  const MaskProfile profile = profile_of(std::string(mask));
  const std::int64_t entries = profile.pattern_per_head ? profile.entries : profile.entries * sizes.heads;
  std::vector<std::vector<std::int64_t>> result;
  for (const SavedTensor& saved : options.engine == Engine::mask ? mask_engine_saved(sizes, scores, entries)
                                                                 : dense_engine_saved(sizes, scores)) {
    result.push_back({1});
    result.back().insert(result.back().end(), saved.sizes.begin(), saved.sizes.end());
  }
  // The values of M come last.
  if (options.engine == Engine::mask)
    result.push_back({0, profile.pattern_per_head ? profile.entries : profile.entries * profile.heads});
  return result;
}

// ---- a pattern without a mask ----

// The entries of a pattern that is passed again at every call: nothing of it is cached.
at::Tensor csr_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const at::Tensor& row_ptr, const at::Tensor& col,
                         const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
                         std::string_view kind, std::string_view feature_map, std::string_view engine,
                         std::optional<double> epsilon, std::optional<std::int64_t> num_features,
                         std::int64_t feature_seed, std::optional<double> guard,
                         std::optional<std::int64_t> max_workspace, bool check_finite) {
  check(row_ptr.dim() == 1 && row_ptr.size(0) >= 1 && is_index(row_ptr) && col.dim() == 1 && is_index(col),
        "attention: csr must be row_ptr [N+1] and col [E] of whole numbers, got {} and {}", describe(row_ptr),
        describe(col));
  check(!(weight && bias) && (!bias || kind == word_of(AttentionKind::softmax)),
        "attention: expected a weight, or for kind='softmax' a bias instead");
  check_rows_on_gpu("attention: csr", row_ptr, col);
  const at::Tensor rows = row_ptr.to(at::kLong), columns = narrowed_columns(col);
  const std::optional<at::Tensor>& values = bias ? bias : weight;
  at::Tensor entries;
  if (!values) {
    entries = at::ones({1, col.size(0)}, q.options().dtype(at::kFloat).requires_grad(false));
  } else {
    entries = values->dim() == 1 ? values->unsqueeze(0) : *values;
    check(entries.dim() == 2 && entries.size(1) == col.size(0) && entries.is_floating_point(),
          "attention: {} must be real [{}] or [H, {}] as the pattern's entries, got {}",
          bias ? "bias" : "weight", col.size(0), col.size(0), describe(*values));
    if (entries.scalar_type() != at::kDouble) entries = entries.to(at::kFloat);
  }
  if (bias) {
    // exp(s + b) = exp(b) exp(s), up to a factor of the row, which the normalised average does not see.
    at::Tensor row;
    try {
      row = at::repeat_interleave(rows.diff(), std::optional<std::int64_t>(col.size(0)))
                .unsqueeze(0)
                .expand_as(entries);
    } catch (const c10::Error&) {
      fail("attention: row_ptr of csr must ascend from 0 to the {} entries of col", col.size(0));
    }
    const at::Tensor fixed = entries.detach();
    const at::Tensor largest = at::full({entries.size(0), rows.size(0) - 1},
                                        -std::numeric_limits<double>::infinity(), fixed.options())
                                   .scatter_reduce(1, row, fixed, "amax");
    entries = (entries - largest.gather(1, row)).exp();
  }
  static const auto attend = find_operator<decltype(attention_op)>("topomask::attention");
  const Tensors constants = {rows, columns}, parameters = {entries};
  return attend.call(q, k, v, csr_recipe(rows.size(0) - 1, col.size(0), entries.size(0)), constants,
                     parameters, kind, feature_map, engine, epsilon, num_features, feature_seed, guard,
                     max_workspace, check_finite);
}

// ---- masks that can only multiply, in Python ----

// Queries and keys as features [H, N, B, m], [v | 1] as [H, N, B, d_v + 1], and how many features to send
// through the mask at a time.
std::tuple<at::Tensor, at::Tensor, at::Tensor, std::int64_t> column_operands(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::int64_t num_nodes, std::int64_t heads,
    std::string_view feature_map, std::optional<double> epsilon, std::optional<std::int64_t> num_features,
    std::int64_t feature_seed, std::optional<std::int64_t> max_workspace) {
  const Settings settings{.kind = "linear",
                          .feature_map = std::string(feature_map),
                          .engine = "feature",
                          .epsilon = epsilon,
                          .num_features = num_features,
                          .feature_seed = feature_seed,
                          .max_workspace = max_workspace};
  const AttentionOptions options = settings.options();
  check_attention_operands(q, k, v, "of your own", num_nodes, heads, options);
  const auto wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto by_node = [&](const at::Tensor& x) {
    return (x.dim() == 3 ? x.permute({1, 0, 2}).unsqueeze(2) : x.permute({1, 2, 0, 3})).to(wide);
  };
  MaskProfile profile;
  profile.num_nodes = num_nodes;
  const std::int64_t block = plan_attention(profile, AttentionShape::of(q, v), options).feature_block;
  const auto features = [&](const at::Tensor& x, bool is_query) {
    const at::Tensor rows = x.dim() == 3 ? x.permute({1, 0, 2}).unsqueeze(0) : x;
    return options.feature_map(rows.to(wide), is_query).permute({1, 2, 0, 3});
  };
  const at::Tensor values = by_node(v);
  return {features(q, true), features(k, false), at::cat({values, at::ones_like(values.slice(-1, 0, 1))}, -1),
          block};
}

// The sums of numerator and normaliser, [H, N, B, d_v + 1], as attention returns them.
at::Tensor column_result(const at::Tensor& sums, const at::Tensor& v, std::optional<double> guard) {
  const at::Tensor out =
      divide_by_normaliser(sums, guard.value_or(AttentionOptions().normaliser_guard)).to(v.scalar_type());
  return v.dim() == 3 ? out.squeeze(2).permute({1, 0, 2}) : out.permute({2, 0, 1, 3});
}

// The plan in words; of q and v the shapes matter alone.
std::string plan_attention_op(const at::Tensor& q, const at::Tensor& v, std::string_view mask,
                              std::string_view kind, std::string_view feature_map, std::string_view engine,
                              std::optional<std::int64_t> num_features,
                              std::optional<std::int64_t> max_workspace, bool learning) {
  check((q.dim() == 3 || q.dim() == 4) && v.dim() == q.dim(),
        "plan_attention: q and v must be [B, H, N, d] or packed [N, H, d], got {} and {}", describe(q),
        describe(v));
  AttentionShape sizes = AttentionShape::of(q, v);
  sizes.learning = learning;
  const Settings settings{.kind = std::string(kind),
                          .feature_map = std::string(feature_map),
                          .engine = std::string(engine),
                          .num_features = num_features,
                          .max_workspace = max_workspace};
  const MaskProfile profile =
      mask.empty() ? NoMask(sizes.num_nodes).profile() : profile_of(std::string(mask));
  return plan_attention(profile, sizes, settings.options()).to_string();
}

}  // namespace

TORCH_LIBRARY_IMPL(topomask, CompositeExplicitAutograd, m) {
  m.impl("attention", attention_op);
  m.impl("attention_forward", attention_forward_op);
  m.impl("attention_backward", attention_backward_op);
  m.impl("attention_saved", attention_saved_op);
  m.impl("plan_attention", plan_attention_op);
}

TORCH_LIBRARY_IMPL(topomask, Meta, m) {
  m.impl("attention_backward", attention_backward_shapes);
}

// Made of operators that have gradients of their own.
TORCH_LIBRARY_IMPL(topomask, CompositeImplicitAutograd, m) {
  m.impl("csr_attention", csr_attention);
  m.impl("column_operands", column_operands);
  m.impl("column_result", column_result);
}

TORCH_LIBRARY_IMPL(topomask, Autograd, m) {
  m.impl("attention", attention_autograd);
}

}  // namespace topomask::ops
