// Numbers in files: JSON writes null for what is not finite, and it comes back as NaN.
#pragma once

#include <limits>

namespace topomask {

template <class Json>
bool is_number_or_null(const Json& json) {
  return json.is_number() || json.is_null();
}

template <class Json>
double number_or_nan(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.template get<double>();
}

}  // namespace topomask
