// Masks that are written out, as a function of one parameter.
#pragma once

#include "topomask/masks.h"
#include "topomask/nn.h"

namespace topomask {

// The masks of several layers can be computed together, as those of one layer with more heads.
class DenseMaskModule : public MaskModule {
 public:
  MaskPtr mask() const final { return std::make_shared<DenseMask>(matrices(parameter(), head_constants())); }

  virtual const at::Tensor& parameter() const = 0;  // [heads, ...]
  // What belongs to the graph: [heads, ...], and what all heads share; undefined where there is none.
  virtual at::Tensor head_constants() const { return {}; }
  virtual at::Tensor shared_constants() const { return {}; }
  // [heads, N, N], for parameters and constants of any number of heads.
  virtual at::Tensor matrices(const at::Tensor& parameter, const at::Tensor& head_constants) const = 0;
};

}  // namespace topomask
