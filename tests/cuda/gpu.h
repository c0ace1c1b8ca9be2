// For tests that need a GPU.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <string>

#include "topomask/device.h"

// First line of a test body, or of a fixture's SetUp.
#define TOPOMASK_NEEDS_GPU() \
  if (!topomask::cuda_is_available()) GTEST_SKIP() << "no GPU on this machine"

namespace topomask::testing {

template <class Param>
class OnGpu : public ::testing::TestWithParam<Param> {
 protected:
  void SetUp() override { TOPOMASK_NEEDS_GPU(); }
};

// Names of cases may hold letters, digits and underscores alone.
inline std::string case_name(std::string words) {
  for (char& c : words) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return words;
}

}  // namespace topomask::testing
