// The masks of all layers of a model, computed together.
#pragma once

#include <memory>
#include <vector>

#include "topomask/nn.h"

namespace topomask {

class DenseMaskModule;

// The masks of all layers of a model at once, in as few steps as one layer's where they are alike: on a GPU,
// many small steps take longer than what they compute.
class MaskBank {
 public:
  MaskBank() = default;
  explicit MaskBank(std::vector<std::shared_ptr<MaskModule>> modules);  // one per layer, or null
  std::vector<MaskPtr> masks();                                         // mask() of each

 private:
  at::Tensor head_constants();

  std::vector<std::shared_ptr<MaskModule>> modules_;
  std::vector<const DenseMaskModule*> together_;  // the dense masks, if all masks are such and alike
  at::Tensor constants_;
};

}  // namespace topomask
