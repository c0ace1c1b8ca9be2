// Exchanges between ranks, and what the others say when one of them fails, is late or is not who it says.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "support/expect_error.h"
#include "topomask/distributed.h"

namespace topomask {
namespace {

using topomask::testing::expect_error;

TEST(Ranks, exchange_rows_of_any_type_and_number) {
  for (const int size : {1, 2, 3, 8}) {
    Ranks::run_threads(size, [&](const RanksPtr& ranks) {
      const int rank = ranks->rank();
      for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kShort, at::kByte}) {
        // Rank r sends s rows to rank s: all of them r.
        std::vector<std::int64_t> send, receive(static_cast<std::size_t>(size), rank);
        for (int r = 0; r < size; ++r) send.push_back(r);
        const at::Tensor rows = at::full({size * (size - 1) / 2, 3}, rank, at::TensorOptions(type));
        ranks->reset_bytes_sent();
        const at::Tensor found = ranks->start_exchange(rows, send, receive, "rows").wait();
        EXPECT_EQ(ranks->bytes_sent(),
                  (rows.size(0) - rank) * 3 * static_cast<std::int64_t>(rows.element_size()));
        ASSERT_EQ(found.size(0), static_cast<std::int64_t>(rank) * size);
        for (int r = 0; r < size; ++r) {
          for (int k = 0; k < rank; ++k) EXPECT_EQ(found[r * rank + k][2].item<int>(), r);
        }
      }
      EXPECT_EQ(ranks->sum(at::full({2}, rank + 1, at::kLong), "ranks")[1].item<int>(),
                size * (size + 1) / 2);
      EXPECT_EQ(ranks->largest(at::full({2}, rank, at::kDouble), "ranks")[0].item<double>(), size - 1);
    });
  }
}

TEST(Ranks, sums_have_the_same_bits_on_every_rank) {
  Ranks::run_threads(4, [](const RanksPtr& ranks) {
    const at::Tensor part = at::full({5}, 0.1 * (ranks->rank() + 1), at::kFloat);
    const at::Tensor all = ranks->all_gather(part, "parts");
    EXPECT_TRUE(at::equal(ranks->sum(part, "parts"), all[0] + all[1] + all[2] + all[3]));
  });
}

TEST(Ranks, all_say_what_went_wrong_on_one) {
  Ranks::run_threads(3, [](const RanksPtr& ranks) {
    expect_error(
        [&] {
          ranks->together("a stage", [&] {
            if (ranks->rank() == 1) throw Error("the file is gone");
          });
        },
        ranks->rank() == 1 ? "the file is gone" : "rank 1 failed: the file is gone");
  });
}

TEST(Ranks, notice_that_a_rank_has_ended) {
  const auto before = std::chrono::steady_clock::now();
  Ranks::run_threads(3, [](const RanksPtr& ranks) {
    if (ranks->rank() == 2) return;
    expect_error([&] { ranks->sum(at::full({1}, 1, at::kLong), "gradients"); },
                 "the exchange of gradients failed: another rank ended, or did not answer within 60 s");
  });
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(30));
}

// Whether a write to a socket that the other side has closed returns an error. Ends a process that minds
// SIGPIPE.
bool survives_a_closed_socket() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return false;
  close(ends[1]);
  const bool failed = write(ends[0], "x", 1) == -1 && errno == EPIPE;
  close(ends[0]);
  return failed;
}

TEST(Ranks, survive_sockets_that_others_have_closed) {
  // In a separate process: a signal that was ignored once stays ignored.
  const auto meet_and_write = [](void (*handler)(int)) {
    std::signal(SIGPIPE, handler);
    Ranks::from_store(c10::make_intrusive<c10d::HashStore>(), 0, 1, {.backend = RankBackend::gloo});
    std::_Exit(survives_a_closed_socket() ? 0 : 1);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(meet_and_write(SIG_DFL), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(meet_and_write([](int) { std::_Exit(7); }), ::testing::ExitedWithCode(7), "");
}

TEST(Ranks, wait_no_longer_than_the_limit) {
  RankOptions options;
  options.timeout_seconds = 0.5;
  const auto before = std::chrono::steady_clock::now();
  expect_error(
      [&] {
        Ranks::run_threads(
            2,
            [](const RanksPtr& ranks) {
              if (ranks->rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
              ranks->sum(at::full({1}, 1, at::kLong), "sums");
            },
            options);
      },
      "rank 0 of 2: the exchange of sums failed: another rank ended, or did not answer within 0.5 s");
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(10));
}

// Variables of torchrun for this process alone.
class Environment {
 public:
  Environment(const char* rank, const char* size, const std::string& port) {
    setenv("RANK", rank, 1);
    setenv("WORLD_SIZE", size, 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port.c_str(), 1);
  }
  ~Environment() {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
  }
};

// A port that somebody listens on, or that nobody does once it is closed.
class Listener {
 public:
  Listener() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(socket_, 1), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { close(socket_); }
  std::string port() const { return std::to_string(port_); }

 private:
  int socket_, port_;
};

TEST(Ranks, from_the_environment_or_a_sentence) {
  RankOptions options;
  options.timeout_seconds = 1;
  const auto meet = [&] { Ranks::from_environment(options); };
  unsetenv("WORLD_SIZE");
  expect_error(meet, "the environment variable WORLD_SIZE is not set; torchrun sets it");
  {
    const Environment one("0", "1", "1");
    EXPECT_TRUE(Ranks::in_environment());
    EXPECT_EQ(Ranks::from_environment()->size(), 1);
  }
  EXPECT_FALSE(Ranks::in_environment());
  {
    const Environment wrong("2", "2", "1");
    expect_error(meet, "expected a number from 0 to 1 in the environment variable RANK, got '2'");
  }
  {
    const Listener taken;
    const Environment server("0", "2", taken.port());
    expect_error(meet, ("rank 0 of 2: could not listen on port " + taken.port()).c_str());
  }
  std::string free;
  {
    const Listener listener;
    free = listener.port();
  }
  {
    const Environment client("1", "2", free);
    expect_error(meet, ("rank 1 of 2: nobody answered at 127.0.0.1:" + free + " within 1 s").c_str());
  }
  {
    const Environment server("0", "3", free);
    expect_error(meet, "rank 0 of 3: rank 1, 2 did not come within 1 s");
  }
  options.timeout_seconds = 0;
  expect_error(meet, "the time limit must be above 0");
}

TEST(Ranks, agree_on_their_number_and_on_who_is_who) {
  RankOptions options;
  options.timeout_seconds = 20;
  const auto both = [&](int second_rank, int second_size, const char* of_first, const char* of_second) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    std::thread other([&] {
      expect_error([&] { Ranks::from_store(store, second_rank, second_size, options); }, of_second);
    });
    expect_error([&] { Ranks::from_store(store, 0, 2, options); }, of_first);
    other.join();
  };
  both(1, 3, "rank 0 of 2: rank 1 was told that there are 3 ranks; WORLD_SIZE must agree",
       "rank 1 of 3: rank 0 was told that there are 2 ranks; WORLD_SIZE must agree");
  options.timeout_seconds = 1;
  const auto store = c10::make_intrusive<c10d::HashStore>();
  expect_error([&] { Ranks::from_store(store, 0, 2, options); },
               "rank 0 of 2: rank 1 did not come within 1 s");
  expect_error([&] { Ranks::from_store(store, 0, 2, options); }, "two processes have RANK 0 of 2");
  expect_error([&] { Ranks::from_store(store, 2, 2, options); }, "got 2 of 2");
}

TEST(Ranks, say_which_group_they_wanted) {
  expect_error([] { Ranks::from_group("nobody"); }, "expected the name of a process group");
}

}  // namespace
}  // namespace topomask
