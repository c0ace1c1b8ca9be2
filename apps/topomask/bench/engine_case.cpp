#include "bench/engine_case.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>

#include <memory>

#include "topomask/grf_mask.h"

namespace topomask::cli {

EngineCase case_of(MaskPtr mask, const AttentionShape& shape) {
  EngineCase made;
  made.mask = std::move(mask);
  made.shape = shape;
  made.shape.num_nodes = made.mask->num_nodes();
  const auto random = [&](std::int64_t channels) {
    return at::randn({shape.batch, shape.heads, made.shape.num_nodes, channels},
                     at::TensorOptions(at::kFloat).device(shape.device))
        .to(shape.dtype);
  };
  made.q = random(shape.d);
  made.k = random(shape.d);
  made.v = random(shape.d_v);
  return made;
}

EngineCase grf_case(const Graph& normalised, const FeatureOptions& walks, const AttentionShape& shape,
                    bool learning) {
  const at::Tensor hops = at::arange(walks.walks.max_hops + 1, at::kFloat).to(shape.device);
  const at::Tensor f = (hops * -0.5).exp();
  const auto mask = std::make_shared<const GrfMask>(normalised, walks, f);
  EngineCase made = case_of(mask, shape);
  made.shape.learning = learning;
  made.f = f.unsqueeze(0);
  return made;
}

MaskPtr EngineCase::with_new_f() const {
  return mask->with_parameters({f * (1 + 1e-4 * static_cast<double>(++*calls))});
}

std::function<void()> EngineCase::pass(Engine engine) const {
  AttentionOptions own = options;
  own.engine = engine;
  return [this, own] {
    const at::NoGradGuard no_grad;
    attention(q, k, v, shape.learning ? with_new_f() : mask, own);
  };
}

AttentionPlan EngineCase::plan() const {
  return plan_attention(mask->profile(), shape, options);
}

}  // namespace topomask::cli
