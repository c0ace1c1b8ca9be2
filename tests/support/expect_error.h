// An assertion on the one sentence that a caller's mistake raises.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

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

template <class Action>
void expect_error(Action&& action, const char* part) {
  expect_error(action, {part});
}

}  // namespace topomask::testing
