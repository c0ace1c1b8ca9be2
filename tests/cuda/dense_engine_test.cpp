// The dense engine on a GPU, values and gradients, against the same sums written out in float64 on the CPU.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <vector>

#include "attention/engines.h"
#include "gpu.h"
#include "topomask/attention.h"
#include "topomask/masks.h"

namespace topomask {
namespace {

struct Case {
  std::int64_t batch = 3, heads = 2, n = 64, d = 64, d_v = 64;
  bool softmax = false, relu = true, shared_mask = false, packed_layout = false, signed_mask = false;
  at::ScalarType dtype = at::kBFloat16;
};

void PrintTo(const Case& c, std::ostream* to) {
  *to << "B" << c.batch << " H" << c.heads << " N" << c.n << " d" << c.d << " d_v" << c.d_v
      << (c.softmax ? " softmax" : " linear") << (c.relu ? " relu" : "") << (c.shared_mask ? " shared" : "")
      << (c.packed_layout ? " packed" : "") << (c.signed_mask ? " signed" : "") << " "
      << c10::toString(c.dtype);
}

constexpr double kGuard = 1e-20;

struct Result {
  at::Tensor out, q, k, v, mask;  // the value, then the gradients

  const at::Tensor& operator[](int i) const {
    const at::Tensor* all[] = {&out, &q, &k, &v, &mask};
    return *all[i];
  }
};

struct Operands {
  at::Tensor q, k, v, grad_out, mask;
};

// 16-bit numbers, so that both sides start from the same ones; the mask stays float32 and is rounded inside.
Operands operands(const Case& c) {
  at::manual_seed(static_cast<std::uint64_t>(c.n * 100 + c.d));
  const auto rows = [&](std::int64_t channels) {
    if (!c.packed_layout) return at::randn({c.batch, c.heads, c.n, channels}).to(c.dtype);
    return at::randn({c.batch, c.n, c.heads, channels}).to(c.dtype).transpose(1, 2);
  };
  Operands o = {rows(c.d), rows(c.d), rows(c.d_v), rows(c.d_v), {}};
  // At zero, where max(x, 0) has two derivatives, all engines take the same.
  for (at::Tensor* x : {&o.q, &o.k}) x->masked_fill_(at::rand(x->sizes()) < 0.02, 0);
  if (!c.softmax && !c.relu) {  // features are positive, or normalisers come close to zero
    o.q = o.q.abs();
    o.k = o.k.abs();
  }
  at::Tensor mask = at::rand({c.shared_mask ? 1 : c.heads, c.n, c.n});
  if (c.signed_mask) mask = mask - 0.2;
  o.mask = mask.masked_fill(at::rand(mask.sizes()) < 0.3, 0);
  if (c.n > 9) o.mask.select(1, 9).zero_();  // a row without a normaliser
  return o;
}

at::Tensor plain_attention(const Case& c, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& mask, double epsilon) {
  const auto features = [&](const at::Tensor& x) { return c.relu ? x.clamp_min(0) + epsilon : x; };
  at::Tensor scores = at::matmul(features(q), features(k).transpose(-2, -1));
  if (c.softmax) {
    scores = scores / std::sqrt(static_cast<double>(c.d));
    // Zeros of M have a gradient, rows of zeros have no maximum.
    const at::Tensor max = scores.masked_fill(mask == 0, -1e30).amax(-1, true).detach();
    scores = (scores - max.masked_fill(max <= -1e30, 0)).exp();
  }
  const at::Tensor weights = scores * mask;
  const at::Tensor normaliser = weights.sum(-1, true);
  const at::Tensor guarded = normaliser.abs() <= kGuard;
  return (at::matmul(weights, v) / normaliser.masked_fill(guarded, 1)).masked_fill(guarded, 0);
}

Result with_gradients(const Operands& o, const std::function<at::Tensor(const Operands&)>& attend) {
  Operands leaves = o;
  for (at::Tensor* x : {&leaves.q, &leaves.k, &leaves.v, &leaves.mask}) *x = x->detach().requires_grad_();
  const at::Tensor out = attend(leaves);
  const auto grads = torch::autograd::grad({out}, {leaves.q, leaves.k, leaves.v, leaves.mask}, {o.grad_out});
  return {out.detach(), grads[0], grads[1], grads[2], grads[3]};
}

at::Tensor attend_on_gpu(const Case& c, const Operands& x, double epsilon) {
  EngineInputs inputs;
  inputs.q = x.q;
  inputs.k = x.k;
  inputs.v = x.v;
  inputs.rule.kind = c.softmax ? ScoreKind::softmax : c.relu ? ScoreKind::relu : ScoreKind::features;
  inputs.rule.scale = c.softmax ? 1 / std::sqrt(static_cast<double>(c.d)) : 1;
  inputs.rule.epsilon = epsilon;
  inputs.rule.guard = kGuard;
  inputs.max_workspace = std::int64_t{1} << 30;
  return run_dense_engine(inputs, DenseMask(x.mask));
}

Operands moved_to_gpu(const Operands& o) {
  const auto move = [](const at::Tensor& x) { return x.to(at::kCUDA); };
  return {move(o.q), move(o.k), move(o.v), move(o.grad_out), move(o.mask)};
}

Result on_gpu(const Case& c, const Operands& o, double epsilon) {
  return with_gradients(moved_to_gpu(o), [&](const Operands& x) { return attend_on_gpu(c, x, epsilon); });
}

Result in_float64(const Case& c, const Operands& o, double epsilon) {
  const auto widen = [](const at::Tensor& x) { return x.to(at::kDouble); };
  return with_gradients(
      {widen(o.q), widen(o.k), widen(o.v), widen(o.grad_out), widen(o.mask)},
      [&](const Operands& x) { return plain_attention(c, x.q, x.k, x.v, x.mask, epsilon); });
}

class DenseEngine : public ::testing::TestWithParam<Case> {};

TEST_P(DenseEngine, AgreesWithFloat64) {
  TOPOMASK_NEEDS_GPU();
  const Case& c = GetParam();
  constexpr double kEpsilon = 1e-3;
  const Operands o = operands(c);
  const Result expected = in_float64(c, o, kEpsilon), actual = on_gpu(c, o, kEpsilon);
  const double tolerance = c.dtype == at::kBFloat16 ? 1e-2 : c.dtype == at::kHalf ? 2e-3 : 1e-5;
  const char* names[] = {"out", "grad q", "grad k", "grad v", "grad mask"};
  for (int i = 0; i < 5; ++i) {
    const at::Tensor x = actual[i].cpu().to(at::kDouble), y = expected[i];
    ASSERT_EQ(x.sizes(), y.sizes()) << names[i];
    // One row alone has gradients of exactly zero, which rounding cannot keep.
    const double scale = std::max(y.norm().item<double>(), 1e-2 * std::sqrt(static_cast<double>(y.numel())));
    EXPECT_LE((x - y).norm().item<double>(), tolerance * scale) << names[i];
    // No single entry may be far off either: a wrong tile would hide in the norm of a long sum.
    EXPECT_LE((x - y).abs().max().item<double>(),
              6 * tolerance * y.abs().max().clamp_min(1e-2).item<double>())
        << names[i];
  }
  EXPECT_EQ(actual.mask.scalar_type(), at::kFloat);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::int64_t n : {1, 17, 64, 196, 197, 256, 300, 1024}) {
    for (const bool softmax : {false, true}) {
      Case c;
      c.n = n;
      c.softmax = softmax;
      c.relu = !softmax;
      c.shared_mask = n % 2 == 1;
      c.packed_layout = n >= 196;
      if (n == 1024) c.batch = 1;
      all.push_back(c);
    }
  }
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const auto& [d, d_v] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {32, 32}, {128, 128}, {16, 64}, {64, 16}, {48, 96}, {128, 32}, {8, 8}, {24, 40}}) {
      for (const bool softmax : {false, true}) {
        Case c;
        c.n = 150;
        c.d = d;
        c.d_v = d_v;
        c.dtype = dtype;
        c.softmax = softmax;
        c.relu = !softmax && d != 48;
        c.packed_layout = true;
        all.push_back(c);
      }
    }
  }
  Case half;
  half.dtype = at::kHalf;
  half.n = 400;
  all.push_back(half);
  half.d = half.d_v = 128;
  half.softmax = true;
  half.relu = false;
  all.push_back(half);
  // More entries of the batch than blocks of threads, in every order of heads.
  Case many;
  many.batch = 200;
  many.heads = 3;
  many.n = 70;
  all.push_back(many);
  many.shared_mask = true;
  all.push_back(many);
  // Masks of both signs, as unconstrained modulation functions give them.
  Case signs;
  signs.signed_mask = true;
  signs.n = 120;
  all.push_back(signs);
  // What the fused kernels do not take.
  Case general;
  general.d = 20;
  general.d_v = 12;
  general.n = 33;
  all.push_back(general);
  general.d = 160;
  general.softmax = true;
  general.relu = false;
  all.push_back(general);
  general.dtype = at::kFloat;
  all.push_back(general);
  general.dtype = at::kDouble;
  general.softmax = false;
  all.push_back(general);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, DenseEngine, ::testing::ValuesIn(cases()));

TEST(DenseEngineOnGpu, GivesZeroForGuardedRows) {
  TOPOMASK_NEEDS_GPU();
  Case c;
  c.n = 40;
  const Result r = on_gpu(c, operands(c), 1e-3);
  for (int i : {0, 1}) EXPECT_EQ(r[i].select(2, 9).abs().max().item<double>(), 0);
  EXPECT_EQ(r.mask.select(1, 9).abs().max().item<double>(), 0);
}

TEST(DenseEngineOnGpu, IsTheSameFromRunToRun) {
  TOPOMASK_NEEDS_GPU();
  Case c;
  c.batch = 40;
  c.n = 300;
  const Operands o = operands(c);
  const Result first = on_gpu(c, o, 1e-3), second = on_gpu(c, o, 1e-3);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(at::equal(first[i], second[i])) << i;
}

TEST(DenseEngineOnGpu, DoesNotNeedAMaskThatLearns) {
  TOPOMASK_NEEDS_GPU();
  for (const bool softmax : {false, true}) {
    Case c;
    c.n = 300;
    c.softmax = softmax;
    c.relu = !softmax;
    Operands o = moved_to_gpu(operands(c));
    const Result learning = on_gpu(c, o, 1e-3);
    for (at::Tensor* x : {&o.q, &o.k, &o.v}) x->requires_grad_();
    const at::Tensor out = attend_on_gpu(c, o, 1e-3);
    const auto grads = torch::autograd::grad({out}, {o.q, o.k, o.v}, {o.grad_out});
    EXPECT_TRUE(at::equal(out, learning.out));
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(grads[i], learning[i + 1])) << i;
  }
}

// They have no device of their own and write themselves out on the CPU.
TEST(DenseEngineOnGpu, TakesMasksThatWorkAnywhere) {
  TOPOMASK_NEEDS_GPU();
  Case c;
  c.n = 40;
  const Operands o = operands(c);
  const std::vector<MaskPtr> masks = {std::make_shared<NoMask>(c.n), std::make_shared<CausalMask>(c.n)};
  for (const MaskPtr& mask : masks) {
    for (const AttentionKind kind : {AttentionKind::linear, AttentionKind::softmax}) {
      for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
        AttentionOptions options;
        options.kind = kind;
        options.engine = Engine::dense;
        const auto attend = [&](c10::Device device, at::ScalarType own) {
          const auto moved = [&](const at::Tensor& x) { return x.to(device, own); };
          return attention(moved(o.q), moved(o.k), moved(o.v), mask, options);
        };
        const at::Tensor expected = attend(at::kCPU, at::kDouble), actual = attend(at::kCUDA, dtype);
        EXPECT_LE((actual.cpu().to(at::kDouble) - expected).norm().item<double>(),
                  (dtype == at::kFloat ? 1e-5 : 1e-2) * expected.norm().item<double>())
            << mask->name();
      }
    }
  }
}

// Slices of one projection of q, k and v are read in place, and so is a gradient that was broadcast.
TEST(DenseEngineOnGpu, TakesAnyStrides) {
  TOPOMASK_NEEDS_GPU();
  Case c;
  c.n = 100;
  Operands o = operands(c);
  for (at::Tensor* x : {&o.q, &o.k, &o.v, &o.grad_out, &o.mask})
    *x = x->to(at::kCUDA);  // copies lose their strides
  const Result plain = on_gpu(c, o, 1e-3);
  const at::Tensor together =
      at::stack({o.q, o.k, o.v}, 2).permute({0, 3, 2, 1, 4}).contiguous();  // [B, N, 3, H, d]
  const auto slice = [&](std::int64_t which) { return together.select(2, which).transpose(1, 2); };
  const Result sliced = on_gpu(
      c, {slice(0), slice(1), slice(2), o.grad_out, o.mask.transpose(1, 2).contiguous().transpose(1, 2)},
      1e-3);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(at::equal(plain[i], sliced[i])) << i;
  // Channels that are not contiguous, rows that start anywhere.
  const auto scattered = [](const at::Tensor& x) { return x.transpose(2, 3).contiguous().transpose(2, 3); };
  const auto shifted = [](const at::Tensor& x) {
    return at::constant_pad_nd(x, {3, 2}).slice(3, 3, 3 + x.size(3));
  };
  const Result odd =
      on_gpu(c, {scattered(o.q), shifted(o.k), shifted(o.v), scattered(o.grad_out), o.mask}, 1e-3);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(at::equal(plain[i], odd[i])) << i;
  const at::Tensor one = at::ones({1, 1, 1, 1}, o.v.options()).expand_as(o.v);
  const Result broadcast = on_gpu(c, {o.q, o.k, o.v, one, o.mask}, 1e-3),
               written = on_gpu(c, {o.q, o.k, o.v, one.contiguous(), o.mask}, 1e-3);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(at::equal(broadcast[i], written[i])) << i;
}

}  // namespace
}  // namespace topomask
