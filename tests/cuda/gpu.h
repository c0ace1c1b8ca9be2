// For tests that need a GPU.
#pragma once

#include <gtest/gtest.h>

#include "topomask/device.h"

// First line of a test body, or of a fixture's SetUp.
#define TOPOMASK_NEEDS_GPU() \
  if (!topomask::cuda_is_available()) GTEST_SKIP() << "no GPU on this machine"
