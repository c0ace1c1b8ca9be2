// A kernel as prefactor * sum_k a_k (scale * W)^k; {1, 1} for series given term by term.
#pragma once

#include "topomask/kernels.h"

namespace topomask {

struct SeriesForm {
  double prefactor = 1;
  double scale = 1;
};
SeriesForm series_form(const NodeKernel& kernel);

}  // namespace topomask
