// Collectives made of the two that ranks.cpp has, exchanges and gathers: whatever carries them, sums run in
// the order of ranks.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <exception>
#include <string>

#include "core/check.h"
#include "topomask/distributed.h"

namespace topomask {

std::vector<std::int64_t> Ranks::exchange_counts(const std::vector<std::int64_t>& send_counts,
                                                 const std::string& what) const {
  at::Tensor counts = at::empty({size_}, at::kLong);
  std::copy(send_counts.begin(), send_counts.end(), counts.data_ptr<std::int64_t>());
  const std::vector<std::int64_t> ones(static_cast<std::size_t>(size_), 1);
  const at::Tensor received = start_exchange(counts, ones, ones, what).wait();
  const std::int64_t* found = received.const_data_ptr<std::int64_t>();
  return {found, found + size_};
}

at::Tensor Ranks::sum(const at::Tensor& x, const std::string& what) const {
  const at::Tensor all = all_gather(x, what);
  at::Tensor total = all[0].clone();
  for (int r = 1; r < size_; ++r) total.add_(all[r]);
  return total;
}

at::Tensor Ranks::largest(const at::Tensor& x, const std::string& what) const {
  return all_gather(x, what).amax(0);
}

void Ranks::together(const std::string& what, const std::function<void()>& stage) const {
  constexpr std::size_t kMostLetters = 1000;
  std::string complaint;
  std::exception_ptr own;
  try {
    stage();
  } catch (const std::exception& error) {
    own = std::current_exception();
    complaint = std::string(error.what()).substr(0, kMostLetters);
    if (complaint.empty()) complaint = "unknown error";
  }
  if (size_ == 1) {
    if (own) std::rethrow_exception(own);
    return;
  }
  at::Tensor text = at::empty({static_cast<std::int64_t>(kMostLetters) + 1}, at::kByte);
  text.zero_();
  std::copy(complaint.begin(), complaint.end(), text.data_ptr<std::uint8_t>());
  const at::Tensor all = all_gather(text, what);
  if (own) std::rethrow_exception(own);
  for (int r = 0; r < size_; ++r) {
    const auto* letters = reinterpret_cast<const char*>(all.const_data_ptr<std::uint8_t>()) +
                          static_cast<std::ptrdiff_t>(r) * (static_cast<std::ptrdiff_t>(kMostLetters) + 1);
    check(*letters == '\0', "rank {} failed: {}", r, letters);
  }
}

template <>
std::span<const Word<RankBackend>> words<RankBackend>() {
  static constexpr Word<RankBackend> kWords[] = {
      {RankBackend::automatic, "auto", "NCCL where every rank has its own GPU, else Gloo"},
      {RankBackend::gloo, "gloo", "through host memory; ranks may share a GPU"},
      {RankBackend::nccl, "nccl", "from GPU to GPU; one GPU per rank"},
  };
  return kWords;
}

}  // namespace topomask
