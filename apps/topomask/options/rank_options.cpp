#include "options/rank_options.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

#include "core/check.h"
#include "core/hash.h"
#include "core/parallel.h"
#include "options/choices.h"
#include "program.h"

namespace topomask::cli {
namespace {

constexpr const char* kRankGroup = "Ranks";
constexpr int kMostLocalRanks = 256;

// The file by which local ranks find each other. It has no name on disk and every rank inherits it, so
// nothing is left behind if a process is killed.
class MeetingPlace {
 public:
  MeetingPlace() : file_(memfd_create("topomask-ranks", 0)) {
    check(file_ >= 0, "--ranks: could not make a file for the ranks to meet in");
  }
  ~MeetingPlace() { close(file_); }
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;
  std::string path() const { return fmt::format("/proc/self/fd/{}", file_); }

 private:
  int file_;
};

// What local ranks have complained of, in memory that they share: all of them find a mistake of the caller's,
// and one says so.
class Complaints {
 public:
  Complaints()
      : said_(static_cast<Said*>(
            mmap(nullptr, sizeof(Said), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    check(said_ != MAP_FAILED, "--ranks: could not share memory between ranks");
  }
  ~Complaints() { munmap(said_, sizeof(Said)); }
  Complaints(const Complaints&) = delete;
  Complaints& operator=(const Complaints&) = delete;

  bool is_new(std::string_view message) const {
    Hash64 hash;
    hash.add(message);
    for (std::atomic<std::uint64_t>& slot : *said_) {
      std::uint64_t found = 0;
      if (slot.compare_exchange_strong(found, hash.value())) return true;
      if (found == hash.value()) return false;
    }
    return true;
  }

 private:
  using Said = std::array<std::atomic<std::uint64_t>, kMostLocalRanks>;  // hashes; 0: free
  Said* said_;
};

// Processes that get this one's signals; 0: ended. Read by a signal handler, hence no container.
std::array<std::atomic<pid_t>, kMostLocalRanks> local_ranks;

// A request to stop this process is meant for its ranks, which then save their state. A terminal signals them
// itself.
extern "C" void pass_on(int signal, siginfo_t* info, void*) {
  if (info->si_code == SI_KERNEL) return;
  for (const std::atomic<pid_t>& rank : local_ranks) {
    if (const pid_t process = rank.load(); process > 0) kill(process, signal);
  }
}

void pass_signals_on(const std::vector<pid_t>& ranks) {
  std::copy(ranks.begin(), ranks.end(), local_ranks.begin());
  struct sigaction action = {};
  action.sa_sigaction = pass_on;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

// The status of the first rank that failed, or 0. The others then get the time limit and a little more to
// end; one that hangs is killed.
int wait_for_ranks(std::vector<pid_t> ranks, double time_limit) {
  using Clock = std::chrono::steady_clock;
  constexpr double kGraceSeconds = 5;
  int status = 0;
  Clock::time_point deadline;
  for (std::size_t left = ranks.size(); left > 0;) {
    int how = 0;
    const pid_t ended = waitpid(-1, &how, status == 0 ? 0 : WNOHANG);
    if (ended < 0 && errno == EINTR) continue;
    if (ended < 0) break;
    if (ended == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (Clock::now() < deadline) continue;
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        if (ranks[rank] == 0) continue;
        fmt::print(stderr, "topomask: rank {} did not end within {:g} s of that, and was stopped\n", rank,
                   time_limit + kGraceSeconds);
        kill(ranks[rank], SIGKILL);
        waitpid(ranks[rank], nullptr, 0);
      }
      return status;
    }
    const auto found = std::find(ranks.begin(), ranks.end(), ended);
    if (found == ranks.end()) continue;
    *found = 0;
    local_ranks[static_cast<std::size_t>(found - ranks.begin())] = 0;
    --left;
    if (WIFSIGNALED(how)) {
      fmt::print(stderr, "topomask: rank {} was killed by signal {}\n", found - ranks.begin(), WTERMSIG(how));
    }
    if (status != 0) continue;
    status = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    deadline = Clock::now() +
               std::chrono::milliseconds(static_cast<std::int64_t>(1000 * (time_limit + kGraceSeconds)));
  }
  return status;
}

}  // namespace

bool RankFlags::wanted() const {
  if (ranks > 0) return true;
  return Ranks::in_environment() && std::string_view(std::getenv("WORLD_SIZE")) != "1";
}

void RankFlags::run(const RunOptions& options, const std::function<void(const RanksPtr&)>& work) const {
  if (ranks == 0) {
    check(Ranks::in_environment(), "--ranks: expected the number of ranks, or a start by torchrun");
    options.apply();
    work(Ranks::from_environment(limits));
    return;
  }
  check(!Ranks::in_environment(), "--ranks: torchrun has started the ranks already");
  // The ranks are copies of this process, made before it starts threads or uses a GPU. They meet in a file,
  // so no port is needed.
  MeetingPlace place;
  const Complaints complaints;
  std::fflush(nullptr);
  std::vector<pid_t> started;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    check(child >= 0, "--ranks: could not start rank {}", rank);
    if (child > 0) {
      started.push_back(child);
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM);                       // if the waiting process dies, ranks save and end
    setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);  // as torchrun does: the rank's GPU
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    set_num_threads(options.threads ? *options.threads : std::max(1, cores / ranks));
    try {
      work(Ranks::from_file(place.path(), rank, ranks, limits));
    } catch (const Error& error) {
      if (complaints.is_new(error.what())) throw;
      _exit(kBadInput);
    }
    flush_output();
    std::fflush(nullptr);
    _exit(0);
  }
  pass_signals_on(started);
  const int status = wait_for_ranks(started, limits.timeout_seconds);
  if (status == 0) return;
  _exit(status);  // the rank has said why
}

DistributedGraph RankFlags::load(const GraphOptions& graph, const RanksPtr& on) const {
  constexpr std::string_view kShards = "shards:";
  if (graph.spec.starts_with(kShards)) {
    const std::string folder = graph.spec.substr(kShards.size());
    if (read_shard_index(folder).parts == on->size()) return DistributedGraph::from_shards(folder, on);
  }
  PartitionOptions cut;
  cut.parts = on->size();
  cut.method = method;
  LoadOptions loading = graph.loading;
  loading.points = method == PartitionMethod::morton;
  GraphOptions source = graph;
  source.loading = loading;
  // Rank 0 prints warnings for all, and writes the ids.
  const LoadedGraph loaded = on->rank() == 0 ? source.load_all() : load_graph(graph.spec, loading);
  cut.points = loaded.points;
  return DistributedGraph::from_graph(loaded.graph, partition_graph(loaded.graph, cut), on);
}

namespace {

void add_common_options(CLI::App& command, RankFlags& flags, const char* time_limit, const char* ranks) {
  command
      .add_option_function<int>(
          "--ranks",
          [&flags](int number) {
            check(number >= 1 && number <= kMostLocalRanks, "--ranks: expected 1 to {}, got {}",
                  kMostLocalRanks, number);
            flags.ranks = number;
          },
          ranks)
      ->group(kRankGroup);
  command
      .add_option(time_limit, flags.limits.timeout_seconds,
                  "Seconds to wait for other ranks to start and to answer")
      ->capture_default_str()
      ->group(kRankGroup);
  add_choice(command, kRankGroup, "--backend", flags.limits.backend, "How tensors travel between GPUs");
}

}  // namespace

void add_training_rank_options(CLI::App& command, RankFlags& flags) {
  add_common_options(command, flags, "--rank-time-limit",
                     "Train in this many processes on this machine, each with a part of every batch; leave "
                     "it out under torchrun");
}

void add_rank_options(CLI::App& command, RankFlags& flags) {
  add_common_options(command, flags, "--time-limit",
                     "Work in this many processes on this machine, each with a part of the graph; leave it "
                     "out under torchrun");
  add_choice(command, kRankGroup, "--partition", flags.method,
             "How the graph is cut; shards:FOLDER with one shard per rank is cut already");
  add_choice(command, kRankGroup, "--route", flags.route, "How walks cross the border of a part");
}

at::Tensor gather_rows(const DistributedGraph& graph, const at::Tensor& own) {
  const Ranks& ranks = *graph.ranks();
  const auto size = static_cast<std::size_t>(ranks.size());
  std::vector<std::int64_t> send(size, 0), receive(size, 0);
  send[0] = graph.num_own();
  for (std::size_t r = 0; ranks.rank() == 0 && r < size; ++r)
    receive[r] = graph.begin()[r + 1] - graph.begin()[r];
  const at::Tensor nodes = ranks.start_exchange(graph.nodes(), send, receive, "results").wait();
  const at::Tensor rows = ranks.start_exchange(own, send, receive, "results").wait();
  return at::empty_like(rows).index_copy_(0, nodes, rows);
}

}  // namespace topomask::cli
