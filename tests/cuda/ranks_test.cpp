// Ranks that compute on a GPU: NCCL with one rank, which really calls its collectives, and Gloo between two
// processes that share the GPU. Walks and features against one process bit for bit, attention with all its
// gradients and the losses of training up to rounding.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "compare.h"
#include "distributed/cases.h"
#include "gpu.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "topomask/distributed.h"
#include "topomask/error.h"
#include "topomask/grf_mask.h"
#include "topomask/runs.h"

namespace topomask {
namespace {

using testing::TemporaryFolder;

constexpr const char* kDevice = "cuda";
constexpr const char* kMeeting =
    "TOPOMASK_RANK_TEST";  // set in the processes of a test, not in the test itself
constexpr std::int64_t kBatch = 2, kHeads = 2;

// --- what every rank checks

struct Rows {
  at::Tensor q, k, v, f, weight;  // weight: of the loss sum(weight * out)

  Rows(std::int64_t nodes, at::ScalarType dtype, c10::Device device, std::int64_t channels) {
    // A function of its place, so that every rank has the same numbers.
    const auto draw = [&](double salt) {
      const at::Tensor x = at::arange(kBatch * kHeads * nodes * channels, at::kDouble);
      return (x * 12.9898 + salt).sin().view({kBatch, kHeads, nodes, channels}).to(device, dtype);
    };
    q = draw(1).abs() + 0.2;
    k = draw(2).abs() + 0.2;
    v = draw(3);
    weight = draw(4);
    f = at::tensor({1.0, 0.6, 0.3, 0.2, 0.9, 0.4, 0.3, 0.1}, at::kDouble).view({kHeads, 4}).to(device, dtype);
  }
  Rows of(const at::Tensor& nodes) const {
    Rows own = *this;
    for (at::Tensor* x : {&own.q, &own.k, &own.v, &own.weight})
      *x = x->index_select(2, nodes.to(x->device()));
    return own;
  }
};

// The result, then the gradients of q, k, v and f.
template <class Attend>
std::vector<at::Tensor> outcome_of(Rows rows, const Attend& attend) {
  std::vector<at::Tensor> leaves;
  for (at::Tensor* x : {&rows.q, &rows.k, &rows.v, &rows.f})
    leaves.push_back(*x = x->detach().clone().requires_grad_());
  const at::Tensor out = attend(rows);
  std::vector<at::Tensor> all = {out.detach()};
  for (const at::Tensor& gradient : torch::autograd::grad({(out * rows.weight).sum()}, leaves))
    all.push_back(gradient);
  return all;
}

void expect_own_rows(const std::vector<at::Tensor>& own, const std::vector<at::Tensor>& whole,
                     const at::Tensor& nodes, at::ScalarType dtype) {
  const char* names[] = {"out", "q", "k", "v", "f"};
  for (std::size_t i = 0; i < whole.size(); ++i) {
    ASSERT_TRUE(own[i].defined()) << names[i];
    const at::Tensor expected = i == 4 ? whole[i] : whole[i].index_select(2, nodes);
    const at::Tensor found = own[i].to(at::kCPU, at::kDouble);
    ASSERT_EQ(found.sizes(), expected.sizes()) << names[i];
    if (expected.numel() == 0) continue;
    const double size = std::max(1.0, whole[i].abs().max().item<double>());
    EXPECT_LE((found - expected).abs().max().item<double>(), (dtype == at::kDouble ? 1e-11 : 1e-5) * size)
        << names[i];
  }
}

void expect_same_features(const WalkFeatures& own, const WalkFeatures& whole, const at::Tensor& nodes) {
  const WalkFeatures expected = whole.to(c10::kCPU);
  const std::int64_t* node = nodes.const_data_ptr<std::int64_t>();
  const auto row = [](const WalkFeatures& of, std::int64_t i) {
    const std::int64_t first = of.row_ptr[i].item<std::int64_t>(),
                       last = of.row_ptr[i + 1].item<std::int64_t>();
    const std::int64_t deposit = of.deposit_ptr[first].item<std::int64_t>(),
                       end = of.deposit_ptr[last].item<std::int64_t>();
    return std::vector<at::Tensor>{of.col.slice(0, first, last),
                                   of.deposit_ptr.slice(0, first, last + 1) - deposit,
                                   of.hop.slice(0, deposit, end), of.load.slice(0, deposit, end)};
  };
  ASSERT_EQ(own.num_nodes(), nodes.numel());
  for (std::int64_t i = 0; i < nodes.numel(); ++i) {
    const std::vector<at::Tensor> a = row(own, i), b = row(expected, node[i]);
    for (std::size_t part = 0; part < a.size(); ++part) EXPECT_TRUE(at::equal(a[part], b[part])) << i;
  }
}

// Features of one process on the GPU; attention and gradients of one on the CPU, in float64.
void check_attention(const RanksPtr& ranks) {
  const c10::Device device = ranks->compute_on(kDevice);
  std::vector<testing::GraphCase> cases = testing::graph_cases();
  cases.push_back({"single", path_graph(1)});  // one rank has no node at all
  cases.push_back({"path", path_graph(240)});  // few rows at the border
  for (const testing::GraphCase& one : cases) {
    const DistributedGraph graph =
        DistributedGraph::from_graph(one.graph, testing::parts_of(one.graph, ranks->size()), ranks);
    const DistributedGraph w = graph.normalised(Normalisation::symmetric);
    const Graph whole_w = normalise(one.graph, Normalisation::symmetric);
    for (const auto& ensembles : words<Ensembles>()) {
      const FeatureOptions options = testing::feature_options(ensembles.value);
      const GraphFeatures on_gpu = sample_features(whole_w.to(device), options);
      const DistributedGrfMask sampled(w, options, at::ones({1}, device));
      expect_same_features(sampled.features().query.features, on_gpu.query, w.nodes());
      for (const Engine engine : {Engine::mask, Engine::feature}) {
        for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
          for (const std::int64_t channels : {5, 32}) {  // rows of whole vectors, and others
            SCOPED_TRACE(fmt::format("{}, {}, {}, {}, {} channels", one.name, ensembles.word, word_of(engine),
                                     c10::toString(dtype), channels));
            AttentionOptions how;
            how.engine = engine;
            const std::int64_t nodes = one.graph.num_nodes();
            const auto whole = outcome_of(Rows(nodes, at::kDouble, c10::kCPU, channels), [&](const Rows& x) {
              AttentionOptions on_cpu = how;
              on_cpu.engine = Engine::mask;
              return attention(x.q, x.k, x.v, std::make_shared<GrfMask>(whole_w, options, x.f), on_cpu);
            });
            const auto own = outcome_of(
                Rows(nodes, dtype, device, channels).of(w.nodes()),
                [&](const Rows& x) { return attention(x.q, x.k, x.v, *sampled.with_f(x.f), how); });
            expect_own_rows(own, whole, w.nodes(), dtype);
          }
        }
      }
    }
    for (const Engine engine : {Engine::mask, Engine::feature}) {  // an f of the keys' own
      SCOPED_TRACE(fmt::format("{}, two f, {}", one.name, word_of(engine)));
      const FeatureOptions options = testing::feature_options(Ensembles::shared);
      const DistributedGrfMask sampled(w, options, at::ones({1}, device));
      const auto with_two_f = [](Rows x) {
        x.f = at::stack({x.f, x.f.flip(1) * 0.5}, 1);
        return x;
      };
      AttentionOptions how;
      how.engine = engine;
      const auto whole =
          outcome_of(with_two_f(Rows(one.graph.num_nodes(), at::kDouble, c10::kCPU, 8)), [&](const Rows& x) {
            return attention(x.q, x.k, x.v, std::make_shared<GrfMask>(whole_w, options, x.f), how);
          });
      const auto own =
          outcome_of(with_two_f(Rows(one.graph.num_nodes(), at::kFloat, device, 8)).of(w.nodes()),
                     [&](const Rows& x) { return attention(x.q, x.k, x.v, *sampled.with_f(x.f), how); });
      expect_own_rows(own, whole, w.nodes(), at::kFloat);
    }
    // Without a mask.
    const auto plain = [&](const Rows& x, const auto& attend) { return attend(x) + 0 * x.f.sum(); };
    const auto whole = outcome_of(Rows(one.graph.num_nodes(), at::kDouble, c10::kCPU, 8), [&](const Rows& x) {
      return plain(x, [](const Rows& r) { return attention(r.q, r.k, r.v, Ranks::alone()); });
    });
    const auto own =
        outcome_of(Rows(one.graph.num_nodes(), at::kFloat, device, 8).of(w.nodes()), [&](const Rows& x) {
          return plain(x, [&](const Rows& r) { return attention(r.q, r.k, r.v, ranks); });
        });
    expect_own_rows(own, whole, w.nodes(), at::kFloat);
  }
}

// Counts differ from rank to rank, and some are 0.
void check_collectives(const RanksPtr& ranks) {
  const c10::Device device = ranks->compute_on(kDevice);
  const std::int64_t rank = ranks->rank(), size = ranks->size();
  std::vector<std::int64_t> send, receive;
  std::vector<at::Tensor> sent, expected;
  const auto count = [](std::int64_t from, std::int64_t to) { return (from + 2 * to + 1) % 4; };
  const auto message = [&](std::int64_t from, std::int64_t to) {
    return (at::arange(3 * count(from, to), at::kFloat) + static_cast<double>(100 * from + to)).view({-1, 3});
  };
  for (std::int64_t other = 0; other < size; ++other) {
    send.push_back(count(rank, other));
    receive.push_back(count(other, rank));
    sent.push_back(message(rank, other));
    expected.push_back(message(other, rank));
  }
  const at::Tensor found = ranks->start_exchange(at::cat(sent).to(device), send, receive, "rows").wait();
  EXPECT_EQ(found.device(), device);
  EXPECT_TRUE(at::equal(found.cpu(), at::cat(expected)));
  const at::Tensor own =
      at::full({2}, static_cast<double>(rank + 1), at::TensorOptions(device).dtype(at::kDouble));
  EXPECT_EQ(ranks->sum(own, "numbers").device(), device);
  EXPECT_EQ(ranks->sum(own, "numbers")[1].item<double>(), static_cast<double>(size * (size + 1) / 2));
  EXPECT_EQ(ranks->largest(own, "numbers")[0].item<double>(), static_cast<double>(size));
  EXPECT_EQ(ranks->from_first("a word", "words"), "a word");
}

std::vector<double> losses_of(const std::string& folder) {
  std::ifstream file(folder + "/" + kMetricsFile);
  std::vector<double> losses;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json["kind"] == "step") losses.push_back(json["train_loss"]);
  }
  return losses;
}

VitSettings vit_settings() {
  return VitSettings::from({{"data", "strokes:16,classes=2,coupling=3,noise=0,train=80,val=20"},
                            {"attention", "grf"},
                            {"layers", "2"},
                            {"embedding", "32"},
                            {"mlp", "64"},
                            {"batch", "20"},
                            {"epochs", "3"},
                            {"log-every", "1"},
                            {"dropout", "0.1"},
                            {"mixup", "0.4"},
                            {"bf16", "false"},
                            {"device", kDevice}});
}

// The losses of one process on the GPU. The first rank compares.
void check_training(const RanksPtr& ranks, const std::string& scratch) {
  const bool first = ranks->rank() == 0;
  std::unique_ptr<RunFolder> shared;
  if (first) shared = std::make_unique<RunFolder>(scratch + "/shared", RunStart::fresh);
  train_vit(ranks, shared.get(), vit_settings());
  if (!first) return;
  RunFolder alone(scratch + "/alone", RunStart::fresh);
  train_vit(alone, vit_settings());
  const std::vector<double> a = losses_of(alone.path()), b = losses_of(shared->path());
  ASSERT_EQ(a.size(), 12u);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << i;
}

// --- two processes, each of which is this program again: autograd has one thread for a GPU, and a process
// that has used one has no children that can

void run_two(const std::string& test) {
  const TemporaryFolder folder;
  std::vector<pid_t> started;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string number = std::to_string(rank), log = folder / ("log-" + number);
    std::vector<std::string> environment = {std::string(kMeeting) + "=" + folder.path().string(),
                                            "RANK=" + number, "LOCAL_RANK=" + number};
    for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
    std::vector<std::string> arguments = {"ranks_test", "--gtest_filter=RankOfTwo." + test};
    const auto pointers = [](std::vector<std::string>& words) {
      std::vector<char*> list;
      for (std::string& word : words) list.push_back(word.data());
      list.push_back(nullptr);
      return list;
    };
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT, 0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    pid_t child = 0;
    const int failed = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, pointers(arguments).data(),
                                   pointers(environment).data());
    posix_spawn_file_actions_destroy(&actions);
    ASSERT_EQ(failed, 0);
    started.push_back(child);
  }
  for (int rank = 0; rank < 2; ++rank) {
    int status = 0;
    waitpid(started[static_cast<std::size_t>(rank)], &status, 0);
    std::ifstream file(folder / ("log-" + std::to_string(rank)));
    std::stringstream log;
    log << file.rdbuf();
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank << ":\n" << log.str();
    EXPECT_THAT(log.str(), ::testing::HasSubstr("[  PASSED  ] 1 test"));  // rather than none, or one skipped
  }
}

class RankOfTwo : public ::testing::Test {
 protected:
  void SetUp() override {
    TOPOMASK_NEEDS_GPU();
    const char* given = std::getenv(kMeeting);
    if (given == nullptr) GTEST_SKIP() << "part of TwoRanksOnOneGpu";
    folder = given;
    ranks = Ranks::from_file(folder + "/store", std::atoi(std::getenv("RANK")), 2);
  }
  std::string folder;
  RanksPtr ranks;
};

TEST_F(RankOfTwo, Collectives) {
  EXPECT_EQ(ranks->carrier(ranks->compute_on(kDevice)), "gloo");  // NCCL refuses to share a GPU
  check_collectives(ranks);
}
TEST_F(RankOfTwo, Attention) {
  check_attention(ranks);
}
TEST_F(RankOfTwo, Training) {
  check_training(ranks, folder);
}
TEST_F(RankOfTwo, HearsThatNcclCannotShareAGpu) {
  const RanksPtr others = Ranks::from_file(folder + "/second", ranks->rank(), 2,
                                           {.timeout_seconds = 60, .backend = RankBackend::nccl});
  testing::expect_error([&] { others->compute_on(kDevice); }, "share a GPU");
}

TEST(TwoRanksOnOneGpu, ExchangeRows) {
  TOPOMASK_NEEDS_GPU();
  run_two("Collectives");
}
TEST(TwoRanksOnOneGpu, AttendAsOneProcess) {
  TOPOMASK_NEEDS_GPU();
  run_two("Attention");
}
TEST(TwoRanksOnOneGpu, TrainAsOneProcess) {
  TOPOMASK_NEEDS_GPU();
  run_two("Training");
}
TEST(TwoRanksOnOneGpu, AreRefusedNccl) {
  TOPOMASK_NEEDS_GPU();
  run_two("HearsThatNcclCannotShareAGpu");
}

// --- one rank, with NCCL

class OneRankWithNccl : public ::testing::Test {
 protected:
  void SetUp() override {
    TOPOMASK_NEEDS_GPU();
    ranks = Ranks::from_file(folder / "store", 0, 1, {.timeout_seconds = 60, .backend = RankBackend::nccl});
    ASSERT_TRUE(ranks->has_group());
    try {
      EXPECT_EQ(ranks->carrier(ranks->compute_on(kDevice)), "nccl");
    } catch (const Error& error) {
      if (std::string(error.what()).find("without NCCL") == std::string::npos) throw;
      GTEST_SKIP() << error.what();
    }
  }
  TemporaryFolder folder;
  RanksPtr ranks;
};

TEST_F(OneRankWithNccl, ExchangesRows) {
  check_collectives(ranks);
}
TEST_F(OneRankWithNccl, AttendsAsOneProcess) {
  check_attention(ranks);
}
TEST_F(OneRankWithNccl, TrainsAsOneProcess) {
  check_training(ranks, folder.path().string());
}

}  // namespace
}  // namespace topomask
