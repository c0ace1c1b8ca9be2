// What ranks do together at their own pace, and what the first of them tells the others.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "topomask/distributed.h"

namespace topomask {

// A second thread tells the other ranks from time to time that this one still works: a rank that ends is
// noticed, and a slow one is not taken for dead.
void Ranks::together_patiently(const std::string& what, const std::function<void()>& stage) const {
  if (size_ == 1) return stage();
  constexpr auto kBeat = std::chrono::milliseconds(200);
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  std::exception_ptr beat_failed, stage_failed;
  std::thread beats([&] {
    try {
      for (bool all = false; !all;) {
        std::unique_lock lock(mutex);
        const bool own = ended.wait_for(lock, kBeat, [&] { return done; });
        lock.unlock();
        all = largest(at::full({1}, own ? 0 : 1, at::kLong), what).item<std::int64_t>() == 0;
      }
    } catch (...) {
      beat_failed = std::current_exception();
    }
  });
  try {
    stage();
  } catch (...) {
    stage_failed = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex);
    done = true;
  }
  ended.notify_all();
  beats.join();
  if (beat_failed) std::rethrow_exception(stage_failed ? stage_failed : beat_failed);
  together(what, [&] {
    if (stage_failed) std::rethrow_exception(stage_failed);
  });
}

at::Tensor Ranks::from_first(const at::Tensor& x, const std::string& what) const {
  if (size_ == 1) return x;
  const at::Tensor flat = x.detach().cpu().contiguous().view(-1);
  const auto ranks = static_cast<std::size_t>(size_);
  std::vector<std::int64_t> send(ranks, 0), receive(ranks, 0);
  if (rank_ > 0) {
    receive[0] = flat.size(0);
    return start_exchange(flat.narrow(0, 0, 0), send, receive, what).wait().view(x.sizes());
  }
  std::fill(send.begin() + 1, send.end(), flat.size(0));
  start_exchange(flat.repeat({size_ - 1}), send, receive, what).wait();
  return flat.view(x.sizes());
}

std::string Ranks::from_first(const std::string& text, const std::string& what) const {
  if (size_ == 1) return text;
  const std::int64_t length =
      from_first(at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong), what).item<std::int64_t>();
  at::Tensor letters = at::empty({length}, at::kByte);
  if (rank_ == 0) std::copy(text.begin(), text.end(), letters.data_ptr<std::uint8_t>());
  letters = from_first(letters, what);
  const auto* begin = reinterpret_cast<const char*>(letters.const_data_ptr<std::uint8_t>());
  return {begin, begin + length};
}

}  // namespace topomask
