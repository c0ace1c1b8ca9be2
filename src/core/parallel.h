// Threads for the framework-free kernels.
//
// `parallel_for` splits [0, count) into contiguous chunks of at least `grain` items and runs them on the same
// threads as torch, so that the two never compete for cores. An exception thrown by a chunk is rethrown to
// the caller after all threads have joined (the first one, if several chunks throw).
#pragma once

#include <cstdint>
#include <functional>

namespace topomask {

void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t begin, std::int64_t end)>& chunk);

// The same in runs of `size` items (the last may be shorter): a thread takes the next one as it finishes,
// since cores are seldom equally fast and runs seldom equally long. Between runs it checks for interruption
// (interruption.h); chunks of parallel_for that take long should do so themselves.
void for_runs(std::int64_t count, std::int64_t size,
              const std::function<void(std::int64_t begin, std::int64_t end)>& run);

int num_threads();
void set_num_threads(int threads);

}  // namespace topomask
