// Assertions on what readers reject.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "support/expect_error.h"
#include "topomask/edge_list.h"

namespace topomask::testing {

// Calls a reader on `content` under the name "file" and expects an error that names it and the given parts.
template <class Reader>
void expect_rejected(Reader&& reader, std::string_view content, std::initializer_list<const char*> parts) {
  SCOPED_TRACE(content.substr(0, 60));
  expect_error([&] { reader(content, "file"); }, {"file"});
  expect_error([&] { reader(content, "file"); }, parts);
}

// A hundred bytes that are no text in any encoding we read.
inline std::string binary_garbage() {
  std::string bytes;
  for (int k = 0; k < 100; ++k) bytes += static_cast<char>(k * 37 + 128);
  return bytes;
}

using Ids = std::vector<std::int32_t>;
using Weights = std::vector<float>;
using Names = std::vector<std::string>;

}  // namespace topomask::testing
