// Groups of c10d and the two collectives of which all others are made (collectives.cpp). Beside this file,
// meeting.cpp and nccl.cpp know c10d.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

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
#include "core/gpu.h"
#include "core/hash.h"
#include "core/parallel.h"
#include "core/tensors.h"
#include "topomask/device.h"
#include "topomask/distributed.h"

#ifdef TOPOMASK_WITH_GLOO
#define USE_C10D_GLOO  // what the wheel was built with; its headers do not say so themselves
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "distributed/meeting.h"
#include "distributed/nccl.h"
#endif

namespace topomask {

namespace {

c10::Device own_device(const std::string& word) {
  const char* local = std::getenv("LOCAL_RANK");
  if (word != "cuda" || local == nullptr || num_gpus() == 0) return parse_device(word);
  int number = 0;
  const std::string_view text = local;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  check(error == std::errc() && end == text.data() + text.size() && number >= 0,
        "ranks: expected a number from 0 in the environment variable LOCAL_RANK, got '{}'", text);
  return parse_device(fmt::format("cuda:{}", number % num_gpus()));
}

}  // namespace

#ifdef TOPOMASK_WITH_GLOO

namespace {

using std::chrono::milliseconds;

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

// What takes tensors to other ranks, and where they must lie for it.
struct Carrier {
  c10::intrusive_ptr<c10d::Backend> backend;
  c10::Device device = c10::Device(c10::kCPU);
};

// Only here do tensors move between host and GPU: Gloo sends from the memory of the host, NCCL from that of a
// GPU. (Gloo would take what lies on a GPU, too, and copy it as we do, but not for every collective.)
at::Tensor room_on(const Carrier& carrier, at::IntArrayRef sizes, const at::Tensor& like) {
  const bool for_copies = like.is_cuda() && carrier.device.is_cpu();
  return at::empty(sizes, like.options().device(carrier.device).pinned_memory(for_copies));
}

at::Tensor moved_to(const Carrier& carrier, const at::Tensor& x) {
  return x.device().type() == carrier.device.type() ? x : room_on(carrier, x.sizes(), x).copy_(x);
}

at::Tensor moved_back(const at::Tensor& x, c10::Device target) {
  return x.device().type() == target.type() ? x : x.to(target, /*non_blocking=*/target.is_cuda());
}

}  // namespace

struct Ranks::Group {
  c10::intrusive_ptr<c10d::Store> store;         // kept: rank 0 may be its server
  c10::intrusive_ptr<c10d::Backend> gloo, nccl;  // a group of our own, with NCCL where GPUs use it,
  std::string name;   // or the caller's group, which may end at any time: looked up at every use
  std::string limit;  // as text, for errors
  milliseconds timeout = {};
  RankBackend wanted = RankBackend::automatic;
  std::atomic<std::int64_t> bytes_sent = 0;

  ~Group() {
    try {
      if (nccl) nccl->abort();  // nothing is under way any more; without it torch complains
    } catch (const std::exception&) {
      nccl.reset();
    }
  }

  Carrier carrier(c10::Device device) const {
    c10::intrusive_ptr<c10d::Backend> on_cpu = gloo, on_gpu = nccl;
    if (!name.empty()) {
      const c10::intrusive_ptr<c10d::ProcessGroup> group = c10d::resolve_process_group(name);
      for (const c10::Device& known : group->getDeviceTypes()) {
        if (known.is_cpu()) on_cpu = group->getBackend(c10::DeviceType::CPU);
        if (known.is_cuda()) on_gpu = group->getBackend(c10::DeviceType::CUDA);
      }
      if (on_gpu && on_gpu->getBackendName() == "gloo") on_gpu.reset();
    }
    if (on_gpu && (device.is_cuda() || !on_cpu))
      return {on_gpu, device.is_cuda() ? device : c10::Device(c10::kCUDA)};
    check(on_cpu.defined(), "the process group has no backend for tensors on the CPU or on a GPU");
    return {on_cpu, c10::Device(c10::kCPU)};
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
// NCCL works on a stream of its own, which the current one then waits for.
void finish_work(c10::intrusive_ptr<c10d::Work> work, const Carrier& carrier) {
  work->wait();
  if (!carrier.device.is_cpu()) return;
  const auto deadline = std::chrono::steady_clock::now() + milliseconds(200);
  while (work.use_count() > 1 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
}

#ifdef TOPOMASK_WITH_NCCL
constexpr bool kHasNccl = true;
#else
constexpr bool kHasNccl = false;
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>&, int, int, milliseconds) {
  return {};
}
#endif

// Whether NCCL carries what lies on GPUs. All ranks decide alike; where NCCL was asked for, one that cannot
// is an error on all of them.
bool chooses_nccl(const Ranks& ranks, RankBackend wanted, c10::Device device) {
  if (wanted == RankBackend::gloo) return false;
  const bool demanded = wanted == RankBackend::nccl;
  ranks.together("the backend", [&] {
    if (!demanded) return;
    check(device.is_cuda(), "ranks: NCCL works between GPUs, but rank {} computes on the CPU", ranks.rank());
    check(kHasNccl, "ranks: this topomask was built without NCCL; only gloo is available");
  });
  const bool able = kHasNccl && device.is_cuda();
  Hash64 hash;
  hash.add(able ? gpu_identity(device) : "");
  at::Tensor own = at::empty({2}, at::kLong);
  own.data_ptr<std::int64_t>()[0] = able ? 1 : 0;
  own.data_ptr<std::int64_t>()[1] = static_cast<std::int64_t>(hash.value());
  const at::Tensor all = ranks.all_gather(own, "the GPUs of the ranks");
  const std::int64_t* found = all.const_data_ptr<std::int64_t>();
  for (int r = 0; r < ranks.size(); ++r) {
    if (found[2 * r] == 0) return false;
    for (int s = 0; s < r; ++s) {
      if (found[2 * r + 1] != found[2 * s + 1]) continue;
      check(!demanded, "ranks: ranks {} and {} share a GPU, and NCCL needs one for each; use gloo", s, r);
      return false;
    }
  }
  return true;
}

}  // namespace

struct Ranks::Pending::State {
  at::Tensor sent, received;  // kept until all has gone
  c10::Device target = c10::Device(c10::kCPU);
  c10::intrusive_ptr<c10d::Work> work;
  std::function<void(c10::intrusive_ptr<c10d::Work>)> finish;
};

at::Tensor Ranks::Pending::wait() {
  check(state_ != nullptr, "ranks: there is no exchange to wait for");
  const std::unique_ptr<State> state = std::move(state_);
  if (state->work) state->finish(std::move(state->work));
  return moved_back(state->received, state->target);
}

std::string Ranks::carrier(c10::Device device) const {
  return group_ ? group_->carrier(device).backend->getBackendName() : "none";
}

RanksPtr Ranks::from_store(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                           const RankOptions& options) {
  check(size >= 1 && rank >= 0 && rank < size,
        "ranks: the rank must be from 0 to one less than the number of ranks, got {} of {}", rank, size);
  if (size == 1 && options.backend == RankBackend::automatic) return alone();
  const milliseconds limit = limit_of(options);
  ignore_closed_sockets();
  meet(*store, rank, size, limit);
  auto group = std::make_shared<Group>();
  group->store = store;
  group->limit = limit_text(limit);
  group->timeout = limit;
  group->wanted = options.backend;
  const char* address = environment("MASTER_ADDR");
  const bool local = address == nullptr || std::string_view(address) == "127.0.0.1" ||
                     std::string_view(address) == "localhost";
  try {
    group->gloo =
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

c10::Device Ranks::compute_on(const std::string& word) const {
  c10::Device device(c10::kCPU);
  together("the device", [&] { device = own_device(word); });
  if (!group_ || !group_->name.empty() || group_->nccl) return device;
  if (!chooses_nccl(*this, group_->wanted, device)) return device;
  const QuietTorch quiet;
  guarded(*this, group_->limit, "the GPUs of the ranks", [&] {
    group_->nccl = make_nccl(c10::make_intrusive<c10d::PrefixStore>("topomask/nccl", group_->store), rank_,
                             size_, group_->timeout);
  });
  all_gather(at::zeros({1}, at::TensorOptions(at::kLong).device(device)), "greetings");
  reset_bytes_sent();
  return device;
}

RanksPtr Ranks::from_group(const std::string& name) {
  ignore_closed_sockets();
  auto group = std::make_shared<Group>();
  int rank = 0, size = 1;
  try {
    const c10::intrusive_ptr<c10d::ProcessGroup> found = c10d::resolve_process_group(name);
    rank = found->getRank();
    size = found->getSize();
    group->limit = "its time limit";
    group->name = name;
    group->carrier(c10::Device(c10::kCPU));
  } catch (const std::exception& error) {
    fail(
        "ranks: expected the name of a process group with a backend for tensors on the CPU or on a GPU "
        "(gloo, nccl, cpu:gloo,cuda:nccl), got '{}' ({})",
        name, first_line(error));
  }
  return RanksPtr(new Ranks(rank, size, std::move(group)));
}

void Ranks::run_threads(int size, const std::function<void(const RanksPtr&)>& each,
                        const RankOptions& options) {
  check(size >= 1, "ranks: expected 1 or more, got {}", size);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const int all_threads = num_threads();
  set_num_threads(std::max(1, all_threads / size));  // of each rank
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
            given.dim() >= 1 && given.size(0) == total(send_counts) && (given.is_cpu() || given.is_cuda()),
        "ranks: the exchange of {} needs counts for {} ranks and their rows on the CPU or on a GPU, got {}",
        what, size_, describe(given));
  Pending pending;
  pending.state_ = std::make_unique<Pending::State>();
  Pending::State& state = *pending.state_;
  state.sent = given.detach().contiguous();
  state.target = given.device();
  if (!group_) {
    state.received = state.sent;
    return pending;
  }
  const auto group = group_;
  const Carrier carrier = guarded(*this, group->limit, what, [&] { return group->carrier(state.target); });
  std::vector<std::int64_t> sizes = given.sizes().vec();
  sizes[0] = total(receive_counts);
  state.received = room_on(carrier, sizes, given);
  state.sent = moved_to(carrier, state.sent);
  const std::int64_t row_bytes =
      state.sent.size(0) == 0 ? 0 : static_cast<std::int64_t>(state.sent.nbytes()) / state.sent.size(0);
  group_->bytes_sent += row_bytes * (state.sent.size(0) - send_counts[static_cast<std::size_t>(rank_)]);
  std::vector<std::int64_t> out_counts = receive_counts, in_counts = send_counts;
  // As bytes: Gloo knows few types of numbers. Rows of no bytes are not sent, whatever the counts are.
  std::int64_t width = state.sent.element_size();
  for (std::size_t axis = 1; axis < sizes.size(); ++axis) width *= sizes[axis];
  for (std::vector<std::int64_t>* counts : {&out_counts, &in_counts}) {
    for (std::int64_t& count : *counts) count *= width;
  }
  at::Tensor in = state.sent.view(-1).view(at::kByte), out = state.received.view(-1).view(at::kByte);
  state.work = guarded(*this, group->limit, what,
                       [&] { return carrier.backend->alltoall_base(out, in, out_counts, in_counts); });
  const int rank = rank_, size = size_;
  state.finish = [group, carrier, rank, size, what, in, out](c10::intrusive_ptr<c10d::Work> work) {
    guarded(Ranks(rank, size, group), group->limit, what, [&] { finish_work(std::move(work), carrier); });
  };
  return pending;
}

at::Tensor Ranks::all_gather(const at::Tensor& x, const std::string& what) const {
  at::Tensor own = x.detach().contiguous();
  if (!group_) return own.unsqueeze(0);
  const Carrier carrier = guarded(*this, group_->limit, what, [&] { return group_->carrier(x.device()); });
  own = moved_to(carrier, own);
  std::vector<at::Tensor> in = {own};
  std::vector<std::vector<at::Tensor>> out(1);
  for (int r = 0; r < size_; ++r) out[0].push_back(at::empty_like(own));
  group_->bytes_sent += static_cast<std::int64_t>(own.nbytes()) * (size_ - 1);
  guarded(*this, group_->limit, what, [&] { finish_work(carrier.backend->allgather(out, in), carrier); });
  return moved_back(at::stack(out[0]), x.device());
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
std::string Ranks::carrier(c10::Device) const {
  return "none";
}
c10::Device Ranks::compute_on(const std::string& word) const {
  return own_device(word);
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
    if (state_) wait();  // an abandoned exchange must not lose its memory while it runs
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

}  // namespace topomask
