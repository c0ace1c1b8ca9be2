// `check(condition, format, ...)`: throw topomask::Error with a formatted sentence unless the condition
// holds.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "topomask/error.h"

namespace topomask {

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void check(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]] {
    fail(format, std::forward<Args>(args)...);
  }
}

}  // namespace topomask
