// The words for floating-point types.
#pragma once

#include <c10/core/ScalarType.h>

#include "topomask/words.h"

namespace topomask {

template <>
inline std::span<const Word<at::ScalarType>> words<at::ScalarType>() {
  static constexpr Word<at::ScalarType> kWords[] = {{at::kFloat, "float32", ""},
                                                    {at::kDouble, "float64", ""},
                                                    {at::kBFloat16, "bfloat16", ""},
                                                    {at::kHalf, "float16", ""}};
  return kWords;
}

}  // namespace topomask
