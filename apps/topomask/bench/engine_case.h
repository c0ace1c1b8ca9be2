// One graph, one mask and operands, on which every engine can be timed beside what the planner predicts.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "topomask/attention.h"
#include "topomask/features.h"
#include "topomask/graph.h"

namespace topomask::cli {

struct EngineCase {
  MaskPtr mask;
  AttentionShape shape;
  AttentionOptions options;
  at::Tensor q, k, v;                                     // random
  at::Tensor f;                                           // for `shape.learning`: [1, terms]
  std::shared_ptr<int> calls = std::make_shared<int>(0);  // so far

  MaskPtr with_new_f() const;  // one that no call had before: its values are not kept from the last
  // One forward pass without gradients, with new values of the mask where shape.learning says so.
  std::function<void()> pass(Engine engine) const;
  AttentionPlan plan() const;
};

// `learning`: f is another in every pass.
EngineCase grf_case(const Graph& normalised, const FeatureOptions& walks, const AttentionShape& shape,
                    bool learning);
EngineCase case_of(MaskPtr mask, const AttentionShape& shape);

}  // namespace topomask::cli
