// The part of `topomask demo` about attention.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace topomask::cli {

struct AttentionDemo {
  std::int64_t largest = 1024;  // side of the largest grid
  std::uint64_t seed = 0;
  std::string stem;  // of the plot's .png and .svg
  bool print = true, quiet = false;
};

// Time against N for softmax, linear and masked attention on grids: prints the table, writes the plot, and
// returns the numbers.
nlohmann::ordered_json demonstrate_attention(const AttentionDemo& demo);

}  // namespace topomask::cli
