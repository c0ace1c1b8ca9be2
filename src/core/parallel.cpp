#include "core/parallel.h"

#include <algorithm>
#include <atomic>

#include "core/check.h"
#include "core/interruption.h"

namespace topomask {

void for_runs(std::int64_t count, std::int64_t size,
              const std::function<void(std::int64_t, std::int64_t)>& run) {
  const std::int64_t runs = (count + size - 1) / size;
  std::atomic<std::int64_t> next = 0;
  parallel_for(std::min<std::int64_t>(runs, num_threads()), 1, [&](std::int64_t, std::int64_t) {
    for (std::int64_t i = next++; i < runs; i = next++) {
      poll_interruption();
      run(i * size, std::min(count, (i + 1) * size));
    }
  });
}

}  // namespace topomask

#ifdef TOPOMASK_STD_THREADS

// ThreadSanitizer does not see the barriers inside libgomp, so its build runs the same chunks on std::thread.
#include <exception>
#include <thread>
#include <vector>

namespace topomask {

static int requested_threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));

void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& chunk) {
  if (count <= 0) return;
  const std::int64_t by_grain =
      (count + std::max<std::int64_t>(grain, 1) - 1) / std::max<std::int64_t>(grain, 1);
  const std::int64_t threads = std::min<std::int64_t>(requested_threads, by_grain);
  const std::int64_t step = (count + threads - 1) / threads;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(threads));
  std::vector<std::thread> pool;
  for (std::int64_t t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      try {
        const std::int64_t begin = t * step;
        if (begin < count) chunk(begin, std::min(count, begin + step));
      } catch (...) {
        errors[static_cast<std::size_t>(t)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : pool) thread.join();
  try {
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  } catch (...) {
    rethrow_reason();
  }
}

int num_threads() {
  return requested_threads;
}

void set_num_threads(int threads) {
  check(threads >= 1, "set_num_threads: threads must be at least 1, got {}", threads);
  requested_threads = threads;
}

}  // namespace topomask

#else

#include <ATen/Parallel.h>

namespace topomask {

void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& chunk) {
  try {
    poll_interruption();
    at::parallel_for(0, count, grain, chunk);
  } catch (...) {
    if (at::in_parallel_region()) throw;  // the loop around this one has threads to stop
    rethrow_reason();
  }
}

int num_threads() {
  return at::get_num_threads();
}

void set_num_threads(int threads) {
  check(threads >= 1, "set_num_threads: threads must be at least 1, got {}", threads);
  at::set_num_threads(threads);
}

}  // namespace topomask

#endif
