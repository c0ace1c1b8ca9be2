// The training loop on several ranks that share a toy: the steps of one process, one folder, one end.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "support/expect_error.h"
#include "support/gradients.h"
#include "topomask/distributed.h"
#include "topomask/safetensors.h"
#include "topomask/train.h"

namespace topomask {
namespace {

namespace fs = std::filesystem;
using testing::expect_error;

// Fits y = 3 x - 1 to batches of 8 points, of which each rank has a part.
class SharedToy final : public Task {
 public:
  explicit SharedToy(RanksPtr given) : ranks_(std::move(given)) {}

  std::vector<NamedParameter> parameters() override {
    return {{"slope", slope, ParameterKind::weight}, {"offset", offset, ParameterKind::plain}};
  }
  std::int64_t batches_per_epoch() const override { return 10; }
  std::int64_t batch_size() const override { return 8; }
  RanksPtr ranks() const override { return ranks_; }
  void start_epoch(std::int64_t new_epoch, std::int64_t new_batch) override {
    epoch = new_epoch;
    batch = new_batch;
  }
  Loss loss() override {
    const std::int64_t size = ranks_->size(), rank = ranks_->rank();
    const std::int64_t begin = 8 * rank / size, end = 8 * (rank + 1) / size;
    const at::Tensor x =
        at::sin(at::arange(8, at::kDouble) + static_cast<double>(100 * epoch + batch)).slice(0, begin, end);
    const at::Tensor error = slope * x + offset - (3 * x - 1 + 0.1 * at::sin(37 * x));
    ++batch;
    before_loss(++losses);
    at::Tensor mean = error.square().mean();
    if (losses == spoiled) mean = mean * std::numeric_limits<double>::quiet_NaN();
    return {mean, at::full({}, 0.5 + static_cast<double>(rank)), static_cast<double>(end - begin) / 8};
  }
  Evaluation evaluate() override {
    const double error = std::abs(slope.item<double>() - 3) + std::abs(offset.item<double>() + 1);
    return {error, 1 / (1 + error), 1};
  }
  void set_training(bool) override {}

  at::Tensor slope = at::zeros({1, 1}, at::kDouble).requires_grad_();
  at::Tensor offset = at::zeros({1}, at::kDouble).requires_grad_();
  std::function<void(std::int64_t)> before_loss = [](std::int64_t) {};
  std::int64_t epoch = 0, batch = 0, losses = 0, spoiled = -1;

 private:
  RanksPtr ranks_;
};

class SharedTrainer : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    path = fs::temp_directory_path() / (std::string("topomask-") + info->name() + std::to_string(getpid()));
    options.epochs = 4;
    options.learning_rate = 0.1;
    options.warmup_epochs = 1;
    options.clip_norm = 0.5;
    options.accumulate = 2;
    options.ema = 0.8;
    options.log_every = 1;
  }
  void TearDown() override { fs::remove_all(path); }

  std::string folder(const std::string& name) const {
    fs::create_directories(path / name);
    return (path / name).string();
  }
  // The first rank has the folder, the others have none.
  std::string folder(const std::string& name, const RanksPtr& ranks) const {
    return ranks->rank() == 0 ? folder(name) : "";
  }
  std::map<std::string, at::Tensor> saved(const std::string& name) const {
    return read_safetensors((path / name / kLastCheckpoint).string()).tensors;
  }
  std::vector<double> losses(const std::string& name) const {
    std::ifstream file(path / name / kMetricsFile);
    std::vector<double> values;
    for (std::string line; std::getline(file, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json["kind"] == "step") values.push_back(json["train_loss"]);
    }
    return values;
  }
  void expect_close(const std::string& a, const std::string& b) const {
    const auto left = saved(a), right = saved(b);
    ASSERT_EQ(left.size(), right.size());
    for (const auto& [key, tensor] : left)
      EXPECT_TRUE(at::allclose(tensor, right.at(key), 1e-9, 1e-12)) << key;
    const std::vector<double> of_a = losses(a), of_b = losses(b);
    ASSERT_EQ(of_a.size(), of_b.size());
    for (std::size_t i = 0; i < of_a.size(); ++i) EXPECT_NEAR(of_a[i], of_b[i], 1e-10) << i;
  }

  oracle::OneThread one_thread;
  fs::path path;
  TrainOptions options;
};

TEST_F(SharedTrainer, TakesTheStepsOfOneProcess) {
  SharedToy one(Ranks::alone());
  Trainer(one, options, folder("one"), {}).run();
  ASSERT_EQ(losses("one").size(), 20u);
  for (const int size : {2, 3}) {
    const std::string name = std::to_string(size);
    std::vector<at::Tensor> slopes(3);
    Ranks::run_threads(size, [&](const RanksPtr& ranks) {
      SharedToy task(ranks);
      // Whatever the others begin with, the first rank's weights count.
      if (ranks->rank() > 0) task.slope.detach().fill_(5);
      const TrainResult result = Trainer(task, options, folder(name, ranks), {}).run();
      EXPECT_EQ(result.step, 20);
      slopes[static_cast<std::size_t>(ranks->rank())] = task.slope.detach();
    });
    expect_close("one", name);
    for (int rank = 1; rank < size; ++rank)
      EXPECT_TRUE(at::equal(slopes[static_cast<std::size_t>(rank)], slopes[0]));
  }
  EXPECT_FALSE(fs::exists(kMetricsFile));  // no rank writes elsewhere
}

TEST_F(SharedTrainer, StopsAtOneStepAndResumesOnAnyNumberOfRanks) {
  SharedToy straight(Ranks::alone());
  Trainer(straight, options, folder("straight"), {}).run();
  for (const int before : {1, 2}) {
    for (const int after : {1, 2, 3}) {
      const std::string name = std::to_string(before) + std::to_string(after);
      Ranks::run_threads(before, [&](const RanksPtr& ranks) {
        SharedToy task(ranks);
        TrainCallbacks callbacks;  // the last rank alone wants to stop
        callbacks.should_stop = [&] { return ranks->rank() == before - 1 && task.losses >= 14; };
        const TrainResult result = Trainer(task, options, folder(name, ranks), {}).run(callbacks);
        EXPECT_EQ(result.outcome, TrainOutcome::stopped);
        EXPECT_EQ(result.step, 7);
      });
      Ranks::run_threads(after, [&](const RanksPtr& ranks) {
        SharedToy task(ranks);
        Trainer trainer(task, options, folder(name, ranks), {});
        EXPECT_TRUE(trainer.resume());
        EXPECT_EQ(trainer.run().step, 20);
        EXPECT_EQ(task.losses, 26);
      });
      expect_close("straight", name);
    }
  }
  Ranks::run_threads(2, [&](const RanksPtr& ranks) {
    SharedToy task(ranks);
    EXPECT_FALSE(Trainer(task, options, folder("empty", ranks), {}).resume());
  });
}

TEST_F(SharedTrainer, NoticesWeightsThatDiffer) {
  Ranks::run_threads(3, [&](const RanksPtr& ranks) {
    SharedToy task(ranks);
    task.before_loss = [&](std::int64_t losses) {
      if (ranks->rank() == 2 && losses == 6) task.slope.detach().add_(1e-12);
    };
    Trainer trainer(task, options, folder("a", ranks), {});
    expect_error([&] { trainer.run(); },
                 "after step 5 of 20 the weights of rank 2 differ from those of rank 0");
  });
  EXPECT_FALSE(fs::exists(path / "a" / kLastCheckpoint));
}

TEST_F(SharedTrainer, StopsAtALossThatIsNoNumberOnOneRank) {
  options.checkpoint_steps = 3;
  Ranks::run_threads(2, [&](const RanksPtr& ranks) {
    SharedToy task(ranks);
    if (ranks->rank() == 1) task.spoiled = 9;
    Trainer trainer(task, options, folder("a", ranks), {});
    expect_error([&] { trainer.run(); }, {"not a number at step 5 of 20", "of step 3 is kept"});
  });
  EXPECT_EQ(losses("a").size(), 4u);
}

TEST_F(SharedTrainer, AllHearThatACheckpointCannotBeWritten) {
  options.checkpoint_steps = 3;
  Ranks::run_threads(2, [&](const RanksPtr& ranks) {
    SharedToy task(ranks);
    fs::path own = folder("a", ranks);
    task.before_loss = [&](std::int64_t losses) {  // a folder in place of the file
      if (ranks->rank() == 0 && losses == 6) fs::create_directories(own / kLastCheckpoint / "x");
    };
    Trainer trainer(task, options, own.string(), {});
    expect_error([&] { trainer.run(); },
                 {ranks->rank() == 0 ? "last.safetensors" : "rank 0 failed: ", "last.safetensors"});
  });
}

}  // namespace
}  // namespace topomask
