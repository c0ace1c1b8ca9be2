#include "distributed/meeting.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "core/check.h"

namespace topomask {

using std::chrono::milliseconds;

namespace {

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

[[noreturn]] void fail_without_meeting_point(int rank, int size) {
  fail("rank {} of {}: lost the meeting point before all ranks had come; did rank 0 end?", rank, size);
}

// The store may end with this rank, so the other rank gets some time to read the error.
void leave_together(c10d::Store& store, int rank, int other) {
  constexpr milliseconds kMoment(2000);
  const auto key = [](int r) { return fmt::format("topomask/leaves-{}", r); };
  try {
    store.set(key(rank), std::vector<std::uint8_t>{1});
    if (rank == 0) store.wait({key(other)}, kMoment);
  } catch (const std::exception&) {  // the other rank has ended, or never starts
  }
}

void meet_all(c10d::Store& store, int rank, int size, milliseconds limit) {
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
          fail_without_meeting_point(rank, size);
        }
        if (!there) missing.push_back(r);
      }
      fail("rank {} of {}: rank {} did not come within {}", rank, size, fmt::join(missing, ", "),
           limit_text(limit));
    }
    const std::string theirs = text_of(store.get(key(other)));
    if (theirs == own) continue;
    leave_together(store, rank, other);
    fail("rank {} of {}: rank {} was told that there are {} ranks; WORLD_SIZE must agree", rank, size, other,
         theirs);
  }
}

}  // namespace

milliseconds limit_of(const RankOptions& options) {
  check(options.timeout_seconds > 0 && options.timeout_seconds < 1e6,
        "ranks: the time limit must be above 0 and below 1e6 seconds, got {}", options.timeout_seconds);
  return milliseconds(std::max<std::int64_t>(1, static_cast<std::int64_t>(options.timeout_seconds * 1000)));
}

std::string limit_text(milliseconds limit) {
  return fmt::format("{:g} s", static_cast<double>(limit.count()) / 1000);
}

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

std::string first_line(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  text = text.substr(0, text.find('\n'));
  if (text.starts_with('[')) text = text.substr(std::min(text.size(), text.find(']') + 2));
  const std::size_t end = text.find(". ");
  return text.substr(0, end);
}

void ignore_closed_sockets() {
  struct sigaction now = {};
  const bool known = sigaction(SIGPIPE, nullptr, &now) == 0;
  if (known && (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

void meet(c10d::Store& store, int rank, int size, milliseconds limit) {
  try {
    meet_all(store, rank, size, limit);
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    fail_without_meeting_point(rank, size);
  }
}

RanksPtr Ranks::from_environment(const RankOptions& options) {
  const milliseconds limit = limit_of(options);
  ignore_closed_sockets();
  const QuietTorch quiet;
  const int size = environment_number("WORLD_SIZE", 1, 1 << 20);
  const int rank = environment_number("RANK", 0, size - 1);
  if (size == 1 && options.backend == RankBackend::automatic) return alone();
  const char* address = environment("MASTER_ADDR");
  check(address != nullptr, "ranks: the environment variable MASTER_ADDR is not set; torchrun sets it");
  const int port = environment_number("MASTER_PORT", 1, 65535);
  // torchrun's own process may keep the store: then no rank is its server, and each restart has its own keys.
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
         port, limit_text(limit));
  }
  if (served) {
    const char* attempt = environment("TORCHELASTIC_RESTART_COUNT");
    store = c10::make_intrusive<c10d::PrefixStore>(
        fmt::format("/worker/attempt_{}", attempt == nullptr ? "0" : attempt), store);
  }
  return from_store(store, rank, size, options);
}

RanksPtr Ranks::from_file(const std::string& path, int rank, int size, const RankOptions& options) {
  if (size == 1 && options.backend == RankBackend::automatic) return alone();
  const QuietTorch quiet;
  return from_store(c10::make_intrusive<c10d::FileStore>(path, size), rank, size, options);
}

}  // namespace topomask
