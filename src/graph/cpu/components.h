// Weakly connected components.
#pragma once

#include <cstdint>
#include <vector>

#include "topomask/csr.h"

namespace topomask {

struct ComponentLabels {
  std::vector<std::int32_t> label;  // [N], numbered by their smallest node
  std::vector<std::int64_t> size;   // [components]
};

ComponentLabels weak_components(const CsrView& graph);

}  // namespace topomask
