// Assertions on the one sentence that a caller's mistake raises.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "topomask/edge_list.h"
#include "topomask/error.h"

namespace topomask::testing {

// Runs `action`, which must throw topomask::Error with a message that is one line and holds each of the
// parts.
template <class Action>
void expect_error(Action&& action, std::initializer_list<const char*> parts) {
  try {
    action();
  } catch (const Error& error) {
    const std::string message = error.what();
    for (const char* part : parts) EXPECT_THAT(message, ::testing::HasSubstr(part));
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return;
  }
  FAIL() << "expected an error that names " << *parts.begin();
}

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
