// The only file that knows c10d. Collectives go to the group's backend for CPU tensors.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <numeric>
#include <string_view>
#include <thread>
#include <utility>

#include "core/check.h"
#include "core/parallel.h"
#include "core/tensors.h"
#include "topomask/distributed.h"

#ifdef TOPOMASK_WITH_GLOO
#define USE_C10D_GLOO  // what the wheel was built with; its headers do not say so themselves
#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#endif

namespace topomask {

#ifdef TOPOMASK_WITH_GLOO

namespace {

using std::chrono::milliseconds;

milliseconds limit_of(const RankOptions& options) {
  check(options.timeout_seconds > 0 && options.timeout_seconds < 1e6,
        "ranks: the time limit must be above 0 and below 1e6 seconds, got {}", options.timeout_seconds);
  return milliseconds(std::max<std::int64_t>(1, static_cast<std::int64_t>(options.timeout_seconds * 1000)));
}

std::string seconds_text(milliseconds limit) {
  return fmt::format("{:g} s", static_cast<double>(limit.count()) / 1000);
}

// Torch logs what it throws as well, with a trace of calls: nobody needs that beside our sentence.
class QuietTorch {
#ifndef C10_USE_GLOG
 public:
  QuietTorch() : level_(FLAGS_caffe2_log_level) {
    FLAGS_caffe2_log_level = 3;
  }  // fatal errors alone
  ~QuietTorch() {
    FLAGS_caffe2_log_level = level_;
  }
  QuietTorch(const QuietTorch&) = delete;
  QuietTorch& operator=(const QuietTorch&) = delete;

 private:
  int level_;
#endif
};

// The first line of a message, without the place in torch's sources that it begins with.
std::string first_line(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  text = text.substr(0, text.find('\n'));
  if (text.starts_with('[')) text = text.substr(std::min(text.size(), text.find(']') + 2));
  const std::size_t end = text.find(". ");
  return text.substr(0, end);
}

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

int environment_number(const char* name, int least, int most) {
  const char* value = environment(name);
  check(value != nullptr, "ranks: the environment variable {} is not set; torchrun sets it", name);
  int number = 0;
  const std::string_view text = value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  check(error == std::errc() && end == text.data() + text.size() && number >= least && number <= most,
        "ranks: expected a number from {} to {} in the environment variable {}, got '{}'", least, most, name,
        text);
  return number;
}

std::string text_of(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

// Each rank says that it is there and of how many; a sentence where one is missing, twice there or counts
// otherwise.
void meet(c10d::Store& store, int rank, int size, milliseconds limit) {
  const auto key = [](int r) { return fmt::format("topomask/rank-{}", r); };
  check(store.add(fmt::format("topomask/claim-{}", rank), 1) == 1,
        "ranks: two processes have RANK {} of {}; each needs a number of its own", rank, size);
  const std::string own = std::to_string(size);
  store.set(key(rank), std::vector<std::uint8_t>(own.begin(), own.end()));
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (int other = 0; other < size; ++other) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
    try {
      store.wait({key(other)}, std::max(left, milliseconds(1)));
    } catch (const std::exception&) {
      std::vector<int> missing;
      for (int r = 0; r < size; ++r) {
        bool there = false;
        try {
          there = store.check({key(r)});
        } catch (const std::exception&) {
          fail("rank {} of {}: lost the meeting point before all ranks had come; did rank 0 end?", rank,
               size);
        }
        if (!there) missing.push_back(r);
      }
      fail("rank {} of {}: rank {} did not come within {}", rank, size, fmt::join(missing, ", "),
           seconds_text(limit));
    }
    const std::string theirs = text_of(store.get(key(other)));
    check(theirs == own, "rank {} of {}: rank {} was told that there are {} ranks; WORLD_SIZE must agree",
          rank, size, other, theirs);
  }
}

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            bool local, milliseconds limit) {
  const auto options = c10d::ProcessGroupGloo::Options::create(limit);
  const char* interface = environment("GLOO_SOCKET_IFNAME");
  options->devices.push_back(interface != nullptr
                                 ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                             : local ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                     : c10d::ProcessGroupGloo::createDefaultDevice());
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

}  // namespace

struct Ranks::Group {
  c10::intrusive_ptr<c10d::Store> store;  // kept: rank 0 may be its server
  c10::intrusive_ptr<c10d::Backend> own;  // a group of our own,
  std::string name;                       // or somebody's, who may end it any time: looked up at every use
  std::string limit;                      // as text, for errors
  std::atomic<std::int64_t> bytes_sent = 0;

  c10::intrusive_ptr<c10d::Backend> backend() const {
    return own.defined() ? own : c10d::resolve_process_group(name)->getBackend(c10::DeviceType::CPU);
  }
};

namespace {

// Runs a collective; what c10d throws becomes one sentence.
template <class Run>
auto guarded(const Ranks& ranks, const std::string& limit, const std::string& what, const Run& run) {
  try {
    return run();
  } catch (const std::exception& error) {
    fail("rank {} of {}: the exchange of {} failed: another rank ended, or did not answer within {} ({})",
         ranks.rank(), ranks.size(), what, limit, first_line(error));
  }
}

// Waits for the result, and then until Gloo's thread has let go of the work. Whoever lets go last destroys it
// with the thread's state that it took along, which may be Python's: not on a thread that outlives Python.
void finish_work(c10::intrusive_ptr<c10d::Work> work) {
  work->wait();
  const auto deadline = std::chrono::steady_clock::now() + milliseconds(200);
  while (work.use_count() > 1 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
}

}  // namespace

struct Ranks::Pending::State {
  at::Tensor sent, received;  // kept until all has gone
  c10::intrusive_ptr<c10d::Work> work;
  std::function<void(c10::intrusive_ptr<c10d::Work>)> finish;
};

at::Tensor Ranks::Pending::wait() {
  check(state_ != nullptr, "ranks: there is no exchange to wait for");
  const std::unique_ptr<State> state = std::move(state_);
  if (state->work) state->finish(std::move(state->work));
  return state->received;
}

RanksPtr Ranks::from_store(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                           const RankOptions& options) {
  check(size >= 1 && rank >= 0 && rank < size,
        "ranks: the rank must be from 0 to one less than the number of ranks, got {} of {}", rank, size);
  if (size == 1) return alone();
  const milliseconds limit = limit_of(options);
  meet(*store, rank, size, limit);
  auto group = std::make_shared<Group>();
  group->store = store;
  group->limit = seconds_text(limit);
  const char* address = environment("MASTER_ADDR");
  const bool local = address == nullptr || std::string_view(address) == "127.0.0.1" ||
                     std::string_view(address) == "localhost";
  try {
    group->own =
        make_gloo(c10::make_intrusive<c10d::PrefixStore>("topomask/gloo", store), rank, size, local, limit);
  } catch (const std::exception& error) {
    fail("rank {} of {}: could not connect to the other ranks within {} ({})", rank, size, group->limit,
         first_line(error));
  }
  RanksPtr ranks(new Ranks(rank, size, std::move(group)));
  ranks->all_gather(at::empty({1}, at::kLong), "greetings");  // the store may end now
  ranks->reset_bytes_sent();
  return ranks;
}

RanksPtr Ranks::from_environment(const RankOptions& options) {
  const milliseconds limit = limit_of(options);
  const QuietTorch quiet;
  const int size = environment_number("WORLD_SIZE", 1, 1 << 20);
  const int rank = environment_number("RANK", 0, size - 1);
  if (size == 1) return alone();
  const char* address = environment("MASTER_ADDR");
  check(address != nullptr, "ranks: the environment variable MASTER_ADDR is not set; torchrun sets it");
  const int port = environment_number("MASTER_PORT", 1, 65535);
  // torchrun's own process may keep the store: then no rank is its server, and each restart has keys of its
  // own.
  const char* agent = environment("TORCHELASTIC_USE_AGENT_STORE");
  const bool served = agent != nullptr && std::string_view(agent) == "True";
  c10d::TCPStoreOptions how;
  how.port = static_cast<std::uint16_t>(port);
  how.isServer = rank == 0 && !served;
  how.waitWorkers = false;
  how.timeout = limit;
  c10::intrusive_ptr<c10d::Store> store;
  try {
    store = c10::make_intrusive<c10d::TCPStore>(address, how);
  } catch (const std::exception& error) {
    const std::string reason = first_line(error);
    if (how.isServer) {
      fail("rank 0 of {}: could not listen on port {}; is it in use? ({}); choose another MASTER_PORT", size,
           port, reason);
    }
    fail("rank {} of {}: nobody answered at {}:{} within {}; is rank 0 running there?", rank, size, address,
         port, seconds_text(limit));
  }
  if (served) {
    const char* attempt = environment("TORCHELASTIC_RESTART_COUNT");
    store = c10::make_intrusive<c10d::PrefixStore>(
        fmt::format("/worker/attempt_{}", attempt == nullptr ? "0" : attempt), store);
  }
  return from_store(store, rank, size, options);
}

RanksPtr Ranks::from_file(const std::string& path, int rank, int size, const RankOptions& options) {
  if (size == 1) return alone();
  const QuietTorch quiet;
  return from_store(c10::make_intrusive<c10d::FileStore>(path, size), rank, size, options);
}

RanksPtr Ranks::from_group(const std::string& name) {
  auto group = std::make_shared<Group>();
  int rank = 0, size = 1;
  try {
    const c10::intrusive_ptr<c10d::ProcessGroup> found = c10d::resolve_process_group(name);
    rank = found->getRank();
    size = found->getSize();
    group->limit = "its time limit";
    found->getBackend(c10::DeviceType::CPU);
    group->name = name;
  } catch (const std::exception& error) {
    fail(
        "ranks: expected the name of a process group with a backend for CPU tensors (gloo, or "
        "cpu:gloo,cuda:nccl), got '{}' ({})",
        name, first_line(error));
  }
  if (size == 1) return alone();
  return RanksPtr(new Ranks(rank, size, std::move(group)));
}

void Ranks::run_threads(int size, const std::function<void(const RanksPtr&)>& each,
                        const RankOptions& options) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const int all_threads = num_threads();
  set_num_threads(std::max(1, all_threads / std::max(1, size)));  // of each rank
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::atomic<int> first = -1;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      RanksPtr ranks;  // lives until its error is noted: the others notice its end
      try {
        ranks = from_store(store, rank, size, options);
        each(ranks);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
        int none = -1;
        first.compare_exchange_strong(none, rank);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  set_num_threads(all_threads);
  if (first >= 0) std::rethrow_exception(errors[static_cast<std::size_t>(first)]);
}

Ranks::Pending Ranks::start_exchange(const at::Tensor& given, const std::vector<std::int64_t>& send_counts,
                                     const std::vector<std::int64_t>& receive_counts,
                                     const std::string& what) const {
  const auto total = [](const std::vector<std::int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  };
  check(static_cast<int>(send_counts.size()) == size_ && static_cast<int>(receive_counts.size()) == size_ &&
            given.dim() >= 1 && given.size(0) == total(send_counts) && given.is_cpu(),
        "ranks: the exchange of {} needs counts for {} ranks and their rows on the CPU, got {}", what, size_,
        describe(given));
  Pending pending;
  pending.state_ = std::make_unique<Pending::State>();
  Pending::State& state = *pending.state_;
  state.sent = given.detach().contiguous();
  if (size_ == 1) {
    state.received = state.sent;
    return pending;
  }
  std::vector<std::int64_t> sizes = given.sizes().vec();
  sizes[0] = total(receive_counts);
  state.received = at::empty(sizes, given.options());
  const std::int64_t row_bytes =
      state.sent.size(0) == 0 ? 0 : static_cast<std::int64_t>(state.sent.nbytes()) / state.sent.size(0);
  group_->bytes_sent += row_bytes * (state.sent.size(0) - send_counts[static_cast<std::size_t>(rank_)]);
  std::vector<std::int64_t> out_counts = receive_counts, in_counts = send_counts;
  // As bytes: Gloo knows few types of numbers. A row of no bytes is no message, whatever the counts say.
  std::int64_t width = state.sent.element_size();
  for (std::size_t axis = 1; axis < sizes.size(); ++axis) width *= sizes[axis];
  for (std::vector<std::int64_t>* counts : {&out_counts, &in_counts}) {
    for (std::int64_t& count : *counts) count *= width;
  }
  at::Tensor in = state.sent.view(-1).view(at::kByte), out = state.received.view(-1).view(at::kByte);
  const auto group = group_;
  state.work = guarded(*this, group->limit, what,
                       [&] { return group->backend()->alltoall_base(out, in, out_counts, in_counts); });
  const int rank = rank_, size = size_;
  state.finish = [group, rank, size, what, in, out](c10::intrusive_ptr<c10d::Work> work) {
    guarded(Ranks(rank, size, group), group->limit, what, [&] { finish_work(std::move(work)); });
  };
  return pending;
}

at::Tensor Ranks::all_gather(const at::Tensor& x, const std::string& what) const {
  at::Tensor own = x.detach().contiguous();
  if (size_ == 1) return own.unsqueeze(0);
  std::vector<at::Tensor> in = {own};
  std::vector<std::vector<at::Tensor>> out(1);
  for (int r = 0; r < size_; ++r) out[0].push_back(at::empty_like(own));
  group_->bytes_sent += static_cast<std::int64_t>(own.nbytes()) * (size_ - 1);
  guarded(*this, group_->limit, what, [&] { finish_work(group_->backend()->allgather(out, in)); });
  return at::stack(out[0]);
}

std::int64_t Ranks::bytes_sent() const {
  return group_ ? group_->bytes_sent.load() : 0;
}

void Ranks::reset_bytes_sent() const {
  if (group_) group_->bytes_sent = 0;
}

#else  // torch without Gloo

namespace {
[[noreturn]] void no_gloo() {
  fail(
      "ranks: this program was built with a torch that lacks torch.distributed with Gloo; only one rank can "
      "work");
}
}  // namespace

struct Ranks::Group {};
struct Ranks::Pending::State {
  at::Tensor received;
};

at::Tensor Ranks::Pending::wait() {
  check(state_ != nullptr, "ranks: there is no exchange to wait for");
  const std::unique_ptr<State> state = std::move(state_);
  return state->received;
}

RanksPtr Ranks::from_store(const c10::intrusive_ptr<c10d::Store>&, int, int, const RankOptions&) {
  no_gloo();
}
RanksPtr Ranks::from_environment(const RankOptions&) {
  no_gloo();
}
RanksPtr Ranks::from_file(const std::string&, int, int size, const RankOptions&) {
  if (size != 1) no_gloo();
  return alone();
}
RanksPtr Ranks::from_group(const std::string&) {
  no_gloo();
}
void Ranks::run_threads(int size, const std::function<void(const RanksPtr&)>& each, const RankOptions&) {
  if (size != 1) no_gloo();
  each(alone());
}
Ranks::Pending Ranks::start_exchange(const at::Tensor& given, const std::vector<std::int64_t>&,
                                     const std::vector<std::int64_t>&, const std::string&) const {
  Pending pending;
  pending.state_ = std::make_unique<Pending::State>(Pending::State{given.detach().contiguous()});
  return pending;
}
at::Tensor Ranks::all_gather(const at::Tensor& x, const std::string&) const {
  return x.detach().unsqueeze(0);
}
std::int64_t Ranks::bytes_sent() const {
  return 0;
}
void Ranks::reset_bytes_sent() const {}

#endif

Ranks::Pending::Pending() = default;
Ranks::Pending::Pending(Pending&&) noexcept = default;
Ranks::Pending& Ranks::Pending::operator=(Pending&&) noexcept = default;
Ranks::Pending::~Pending() {
  try {
    if (state_) wait();  // whoever gives up an exchange must not pull the memory away under it
  } catch (const std::exception&) {
    state_.reset();
  }
}

Ranks::Ranks(int rank, int size, std::shared_ptr<Group> group)
    : rank_(rank), size_(size), group_(std::move(group)) {}
Ranks::~Ranks() = default;

RanksPtr Ranks::alone() {
  return RanksPtr(new Ranks(0, 1, nullptr));
}

bool Ranks::in_environment() {
  const char *rank = std::getenv("RANK"), *size = std::getenv("WORLD_SIZE");
  return rank != nullptr && *rank != '\0' && size != nullptr && *size != '\0';
}

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

}  // namespace topomask
