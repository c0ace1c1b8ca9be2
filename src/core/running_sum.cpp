#include "core/running_sum.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/parallel.h"

namespace topomask {

namespace {

constexpr std::int64_t kValuesPerBlock = std::int64_t{1} << 16;

}  // namespace

void running_sum(std::int64_t* values, std::int64_t count) {
  const std::int64_t blocks = (count + kValuesPerBlock - 1) / kValuesPerBlock;
  if (blocks <= 1 || num_threads() == 1) {
    std::partial_sum(values, values + count, values);
    return;
  }
  const auto block_end = [&](std::int64_t b) { return std::min(count, (b + 1) * kValuesPerBlock); };
  std::vector<std::int64_t> before(static_cast<std::size_t>(blocks) + 1, 0);
  parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      before[b + 1] = std::accumulate(values + b * kValuesPerBlock, values + block_end(b), std::int64_t{0});
    }
  });
  std::partial_sum(before.begin(), before.end(), before.begin());
  parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      values[b * kValuesPerBlock] += before[b];
      std::partial_sum(values + b * kValuesPerBlock, values + block_end(b), values + b * kValuesPerBlock);
    }
  });
}

}  // namespace topomask
