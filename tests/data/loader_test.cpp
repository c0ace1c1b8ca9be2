#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/sort.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "data/encoded.h"
#include "support/expect_edges.h"
#include "support/temporary_folder.h"
#include "topomask/data.h"

namespace topomask::testing {
namespace {

std::vector<std::int64_t> values(const at::Tensor& x) {
  const at::Tensor flat = x.contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

std::vector<Batch> rest_of_epoch(BatchLoader& loader) {
  std::vector<Batch> batches;
  while (auto batch = loader.next()) batches.push_back(std::move(*batch));
  return batches;
}

void expect_same(const std::vector<Batch>& a, const std::vector<Batch>& b, std::size_t skip_of_a = 0) {
  ASSERT_EQ(a.size(), b.size() + skip_of_a);
  for (std::size_t i = 0; i < b.size(); ++i) {
    const Batch& x = a[i + skip_of_a];
    EXPECT_TRUE(at::equal(x.images, b[i].images)) << i;
    EXPECT_TRUE(at::equal(x.labels, b[i].labels)) << i;
    EXPECT_TRUE(at::equal(x.indices, b[i].indices)) << i;
    EXPECT_EQ(x.step, b[i].step);
    EXPECT_EQ(x.epoch, b[i].epoch);
  }
}

TEST(EpochOrder, IsAPermutationOfSeedAndEpochAlone) {
  const at::Tensor order = epoch_order(1000, 3, 7);
  EXPECT_TRUE(at::equal(std::get<0>(order.sort()), at::arange(1000, at::kLong)));
  EXPECT_TRUE(at::equal(order, epoch_order(1000, 3, 7)));
  EXPECT_FALSE(at::equal(order, epoch_order(1000, 3, 8)));
  EXPECT_FALSE(at::equal(order, epoch_order(1000, 4, 7)));
  EXPECT_EQ(epoch_order(0, 0, 0).numel(), 0);
}

TEST(EpochOrder, EveryPlaceIsEquallyLikely) {
  // Where image 0 of 8 ends up over many epochs: 1/8 each, within four standard errors.
  constexpr int kEpochs = 4000;
  std::vector<int> count(8, 0);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto order = values(epoch_order(8, 11, epoch));
    for (std::size_t place = 0; place < 8; ++place) count[place] += order[place] == 0;
  }
  for (const int times : count)
    EXPECT_NEAR(times / double{kEpochs}, 1.0 / 8, 4 * std::sqrt(7.0 / 64 / kEpochs));
}

// The two kinds of sets must behave alike: one in memory, one of files on disk.
class Loader : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!GetParam()) {
      data = open_image_data("strokes:12,train=23,val=10");
      return;
    }
    for (const char* part : {"train", "val"}) {
      for (const char* name : {"cat", "dog"}) {
        const std::string base = std::string(part) + "/" + name;
        std::filesystem::create_directories(folder.path() / base);
        const int count = part == std::string("val") ? 5 : name == std::string("cat") ? 11 : 12;
        for (int i = 0; i < count; ++i) {
          const int offset = 20 * i + (name == std::string("dog") ? 7 : 0);
          folder.write(base + "/" + std::to_string(100 + i) + ".jpg",
                       encode_jpeg(gradient(24, 16, 3, offset), 24, 16));
        }
      }
    }
    data = open_image_data("folder:" + folder.path().string() + ",size=12,cache=no");
  }

  BatchLoader training(std::int64_t batch_size, int workers = 2, int prefetch = 2) const {
    LoaderOptions options;
    options.batch_size = batch_size;
    options.seed = 9;
    options.workers = workers;
    options.prefetch = prefetch;
    return BatchLoader(data.train, options);
  }

  TemporaryFolder folder;
  ImageData data;
};

TEST_P(Loader, TrainingBatchesFollowTheOrder) {
  EXPECT_EQ(data.train.resident(), !GetParam());
  BatchLoader loader = training(5);
  EXPECT_EQ(loader.batches_per_epoch(), 4);
  const auto batches = rest_of_epoch(loader);
  ASSERT_EQ(batches.size(), 4u);
  const at::Tensor order = epoch_order(23, 9, 0);
  for (std::int64_t i = 0; i < 4; ++i) {
    const Batch& batch = batches[static_cast<std::size_t>(i)];
    EXPECT_EQ(batch.step, i);
    EXPECT_EQ(batch.images.sizes(), (at::IntArrayRef{5, data.channels, 12, 12}));
    EXPECT_TRUE(at::equal(batch.indices, order.narrow(0, 5 * i, 5)));
    EXPECT_TRUE(at::equal(batch.labels, data.train.labels.index_select(0, batch.indices)));
    if (data.train.resident()) {
      EXPECT_TRUE(at::equal(batch.images, data.train.images.index_select(0, batch.indices)));
    }
  }
  EXPECT_FALSE(loader.next().has_value());
}

TEST_P(Loader, AnEpochContinuesInTheMiddle) {
  BatchLoader whole = training(5), resumed = training(5);
  whole.start_epoch(3);
  resumed.next();
  resumed.start_epoch(3, 2);
  expect_same(rest_of_epoch(whole), rest_of_epoch(resumed), 2);
  resumed.start_epoch(3, 4);
  EXPECT_FALSE(resumed.next().has_value());
}

TEST_P(Loader, ThreadsAndPrefetchChangeNothing) {
  BatchLoader one = training(4, 1, 1), many = training(4, 5, 3);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    one.start_epoch(epoch), many.start_epoch(epoch);
    expect_same(rest_of_epoch(one), rest_of_epoch(many));
  }
}

TEST_P(Loader, EvaluationVisitsEveryImageOnce) {
  LoaderOptions options;
  options.mode = LoaderMode::evaluation;
  options.batch_size = 4;
  BatchLoader loader(data.validation, options);
  EXPECT_EQ(loader.batches_per_epoch(), 3);
  std::vector<std::int64_t> seen;
  for (const Batch& batch : rest_of_epoch(loader)) {
    const auto part = values(batch.indices);
    seen.insert(seen.end(), part.begin(), part.end());
  }
  EXPECT_EQ(seen, values(at::arange(10, at::kLong)));
  BatchLoader again(data.validation, options);
  loader.start_epoch(6);
  const auto later = rest_of_epoch(loader), first = rest_of_epoch(again);
  ASSERT_EQ(later.size(), first.size());
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(later[i].images, first[i].images));
}

TEST_P(Loader, ASetSmallerThanABatchIsOneBatch) {
  BatchLoader loader = training(100);
  EXPECT_EQ(loader.batches_per_epoch(), 1);
  EXPECT_EQ(loader.next()->images.size(0), 23);
}

TEST_P(Loader, WrongOptionsAreErrors) {
  expect_error([&] { training(0); }, {"batch_size", "got 0"});
  expect_error([&] { training(4, -1); }, {"workers", "got -1"});
  expect_error([&] { training(4, 1, 0); }, {"prefetch", "got 0"});
  BatchLoader loader = training(5);
  expect_error([&] { loader.start_epoch(-1); }, {"epoch", "got -1"});
  expect_error([&] { loader.start_epoch(0, 5); }, {"4 batches", "batch 5"});
  expect_error([] { BatchLoader(ImageSet{}, {}); }, {"no images"});
}

// All parts of a batch one after the other; with partners, their own images alone.
Batch joined(const std::vector<Batch>& parts) {
  Batch whole = parts.front();
  std::vector<at::Tensor> images, labels, indices;
  for (const Batch& batch : parts) {
    const std::int64_t begin = batch.part.own_begin, end = batch.part.own_end;
    images.push_back(batch.images.slice(0, begin, end));
    labels.push_back(batch.labels.slice(0, begin, end));
    indices.push_back(batch.indices.slice(0, begin, end));
    EXPECT_EQ(batch.step, whole.step);
    EXPECT_EQ(batch.part.places.size(0), batch.images.size(0));
  }
  whole.images = at::cat(images), whole.labels = at::cat(labels), whole.indices = at::cat(indices);
  return whole;
}

TEST_P(Loader, PartsOfABatchMakeTheBatch) {
  for (const bool skip_bad : {false, true}) {
    for (const bool partners : {false, true}) {
      for (const int parts : {2, 3, 5, 7}) {
        LoaderOptions options;
        options.batch_size = 7;
        options.seed = 9;
        options.workers = 1;
        options.skip_bad = skip_bad;
        BatchLoader whole(data.train, options);
        std::vector<BatchLoader> loaders;
        for (options.part = {0, parts, partners}; options.part.part < parts; ++options.part.part)
          loaders.emplace_back(data.train, options);
        whole.start_epoch(2, 1);
        for (BatchLoader& loader : loaders) loader.start_epoch(2, 1);
        std::vector<Batch> expected = rest_of_epoch(whole), found;
        ASSERT_EQ(expected.size(), 2u);
        for (std::size_t b = 0; b < expected.size(); ++b) {
          std::vector<Batch> batches;
          for (BatchLoader& loader : loaders) {
            batches.push_back(loader.next().value());
            const Batch& batch = batches.back();
            EXPECT_EQ(batch.part.whole, 7);
            // The i-th from the front and the i-th from the end of a batch are mixed, in a part as in the
            // whole.
            for (std::int64_t i = 0; partners && i < batch.images.size(0); ++i)
              EXPECT_EQ((batch.part.places + batch.part.places.flip(0))[i].item<std::int64_t>(), 6);
          }
          found.push_back(joined(batches));
        }
        expect_same(expected, found);
        for (BatchLoader& loader : loaders) EXPECT_FALSE(loader.next().has_value());
      }
    }
  }
  LoaderOptions options;
  options.batch_size = 2;
  options.part = {0, 3};
  expect_error([&] { BatchLoader(data.train, options); },
               {"a batch of 2 cannot be shared by 3 ranks; make the batch larger"});
  options.part = {3, 3};
  expect_error([&] { BatchLoader(data.train, options); }, {"expected part 0 to 2 of 3, got 3"});
}

TEST_P(Loader, PartsOfAnEvaluationAreWholeBatches) {
  LoaderOptions options;
  options.mode = LoaderMode::evaluation;
  options.batch_size = 4;
  BatchLoader all(data.validation, options);  // batches of 4, 4 and 2
  const std::vector<Batch> expected = rest_of_epoch(all);
  for (const int parts : {2, 3, 4}) {
    std::vector<Batch> found(expected.size());
    for (options.part = {0, parts}; options.part.part < parts; ++options.part.part) {
      BatchLoader loader(data.validation, options);
      EXPECT_EQ(loader.batches_per_epoch(), 3);
      for (Batch& batch : rest_of_epoch(loader)) found.at(static_cast<std::size_t>(batch.step)) = batch;
    }
    expect_same(expected, found);
  }
}

INSTANTIATE_TEST_SUITE_P(InMemoryAndStreamed, Loader, ::testing::Values(false, true),
                         [](const auto& kind) { return kind.param ? "Streamed" : "InMemory"; });

class BadImages : public Loader {
 protected:
  void SetUp() override {
    Loader::SetUp();
    folder.write("train/dog/103.jpg", "not an image");
    for (std::size_t i = 0; i < data.train.files.size(); ++i) {
      if (data.train.files[i].ends_with("dog/103.jpg")) bad = static_cast<std::int64_t>(i);
    }
  }
  std::int64_t bad = -1;
};

TEST_P(BadImages, StopTheEpochWithTheirName) {
  BatchLoader loader = training(5);
  std::int64_t good_batches = 0;
  expect_error(
      [&] {
        while (loader.next()) ++good_batches;
      },
      {"dog/103.jpg", "neither a JPEG nor a PNG"});
  const auto order = values(epoch_order(23, 9, 0));
  const auto place = std::find(order.begin(), order.end(), bad) - order.begin();
  if (place < 20) {
    EXPECT_EQ(good_batches, place / 5);
    expect_error([&] { loader.next(); }, {"dog/103.jpg"});  // asked again, the same batch fails again
  }
}

TEST_P(BadImages, AreSkippedAndCountedIfAsked) {
  LoaderOptions options;
  options.mode = LoaderMode::evaluation;
  options.batch_size = 6;
  options.skip_bad = true;
  BatchLoader loader(data.train, options);
  std::set<std::int64_t> seen;
  for (const Batch& batch : rest_of_epoch(loader)) {
    EXPECT_EQ(batch.images.size(0), batch.labels.size(0));
    for (const std::int64_t index : values(batch.indices)) seen.insert(index);
  }
  EXPECT_EQ(seen.size(), 22u);
  EXPECT_FALSE(seen.contains(bad));
  EXPECT_EQ(loader.skipped(), 1);
  loader.start_epoch(1);
  EXPECT_EQ(loader.skipped(), 0);
}

// A batch of nothing has no loss: in training it is an error, in evaluation it adds nothing.
TEST_P(BadImages, LeaveNoEmptyBatch) {
  LoaderOptions options;
  options.batch_size = 1;
  options.skip_bad = true;
  BatchLoader loader(data.train, options);
  const auto order = values(epoch_order(23, 0, 0));
  const auto place = std::find(order.begin(), order.end(), bad) - order.begin();
  loader.start_epoch(0, place);
  for (int again = 0; again < 2; ++again)
    expect_error([&] { loader.next(); },
                 {"0 of 1 files of a batch can be read, expected at least 1", "dog/103.jpg"});
  loader.start_epoch(0, (place + 1) % 23);
  EXPECT_EQ(loader.next()->images.size(0), 1);

  options.mode = LoaderMode::evaluation;
  BatchLoader evaluation(data.train, options);
  EXPECT_EQ(evaluation.batches_per_epoch(), 23);
  const auto batches = rest_of_epoch(evaluation);
  ASSERT_EQ(batches.size(), 22u);
  for (const Batch& batch : batches) {
    EXPECT_EQ(batch.images.size(0), 1);
    EXPECT_EQ(batch.step, batch.indices[0].item<std::int64_t>());  // the others keep their numbers
  }
  EXPECT_EQ(evaluation.skipped(), 1);
}

TEST_P(BadImages, LeaveAnImageToEachPart) {
  LoaderOptions options;
  options.batch_size = 2;
  options.skip_bad = true;
  options.part = {0, 2};
  BatchLoader loader(data.train, options);
  const auto order = values(epoch_order(23, 0, 0));
  const auto place = std::find(order.begin(), order.end(), bad) - order.begin();
  ASSERT_LT(place, 22);  // the last image is left over
  loader.start_epoch(0, place / 2);
  expect_error([&] { loader.next(); }, {"1 of 2 files", "at least one for each of 2 ranks"});
}

TEST_P(BadImages, LeaveThePlacesOfTheOthersToAllParts) {
  LoaderOptions options;
  options.batch_size = 11;
  options.seed = 9;
  options.skip_bad = true;
  BatchLoader whole(data.train, options);
  std::vector<BatchLoader> loaders;
  for (options.part = {0, 2, true}; options.part.part < 2; ++options.part.part)
    loaders.emplace_back(data.train, options);
  std::int64_t smaller = 0;
  while (auto expected = whole.next()) {
    std::vector<Batch> parts;
    for (BatchLoader& loader : loaders) parts.push_back(loader.next().value());
    expect_same({*expected}, {joined(parts)});
    smaller += expected->images.size(0) < 11;
    for (const Batch& part : parts) EXPECT_EQ(part.part.whole, expected->images.size(0));
  }
  EXPECT_EQ(smaller, 1);
  for (const BatchLoader& loader : loaders) EXPECT_EQ(loader.skipped(), 1);
}

INSTANTIATE_TEST_SUITE_P(Streamed, BadImages, ::testing::Values(true));

}  // namespace
}  // namespace topomask::testing
