// --data: every kind of set, and what is said about descriptions and folders that are wrong.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "core/parallel.h"
#include "data/encoded.h"
#include "data/records.h"
#include "support/compressed.h"
#include "support/expect_edges.h"
#include "support/temporary_folder.h"
#include "topomask/data.h"

namespace topomask::testing {
namespace {

class Sets : public ::testing::Test {
 protected:
  void add(const std::string& name, const std::string& content) {
    std::filesystem::create_directories((folder.path() / name).parent_path());
    folder.write(name, content);
  }
  std::string spec(const std::string& kind, const std::string& options = "") const {
    return kind + ":" + folder.path().string() + options;
  }
  TemporaryFolder folder;
};

// --- descriptions ----------------------------------------------------------------------------------------

TEST_F(Sets, DescriptionsSayWhatIsWrong) {
  expect_error([] { open_image_data(""); }, {"got nothing"});
  expect_error([] { open_image_data("stroke:32"); }, {"'stroke'", "did you mean 'strokes'?"});
  expect_error([] { open_image_data("strokes"); }, {"expected a size", "strokes:SIZE"});
  expect_error([] { open_image_data("strokes:0"); }, {"a size from 6 to 512", "'0'"});
  expect_error([] { open_image_data("strokes:32x"); }, {"'32x'"});
  expect_error([] { open_image_data("strokes:32,clases=3"); }, {"'clases'", "did you mean 'classes'?"});
  expect_error([] { open_image_data("strokes:32,3"); }, {"key=value", "'3'"});
  expect_error([] { open_image_data("strokes:32,classes=9"); }, {"classes from 2 to 5", "'9'"});
  expect_error([] { open_image_data("strokes:32,classes=2,classes=3"); }, {"given twice"});
  expect_error([] { open_image_data("strokes:32,cell=20"); }, {"two cells of 20"});
  expect_error([] { open_image_data("strokes:32,noise=nan"); }, {"noise from 0 to 10"});
  expect_error([] { open_image_data("strokes:32,train=-1"); }, {"train from 1"});
  expect_error([] { open_image_data("pathfinder:16,dashes=300,train=4,val=4"); }, {"300 dashes"});
  expect_error([] { open_image_data("cifar10:/no/such/folder"); },
               {"--data: there is no folder '/no/such/folder'"});
  EXPECT_THAT(image_data_forms(), ::testing::HasSubstr("pathfinder:SIZE"));
}

// --- generated -------------------------------------------------------------------------------------------

TEST_F(Sets, GeneratedSetsAreBalancedAndOfOneSeed) {
  const ImageData data = open_image_data("strokes:24,train=60,val=30,seed=4");
  EXPECT_EQ(data.num_classes(), 3);
  EXPECT_EQ(data.class_names.front(), "parallel");
  EXPECT_EQ(data.class_names.back(), "perpendicular");
  EXPECT_EQ(data.train.images.sizes(), (at::IntArrayRef{60, 1, 24, 24}));
  EXPECT_EQ(data.validation.size(), 30);
  EXPECT_EQ(data.patch_size, 4);
  for (int label = 0; label < 3; ++label) EXPECT_EQ((data.train.labels == label).sum().item<int>(), 20);

  const ImageData larger = open_image_data("strokes:24,train=90,val=30,seed=4");
  EXPECT_TRUE(at::equal(larger.train.images.narrow(0, 0, 60), data.train.images));
  EXPECT_TRUE(at::equal(larger.validation.images, data.validation.images));
  EXPECT_FALSE(at::equal(data.train.images.narrow(0, 0, 30), data.validation.images));
  EXPECT_FALSE(
      at::equal(open_image_data("strokes:24,train=60,val=30,seed=5").train.images, data.train.images));
}

TEST_F(Sets, GeneratedSetsDoNotDependOnTheNumberOfThreads) {
  const int before = num_threads();
  for (const char* spec : {"strokes:24,train=50,val=10", "pathfinder:32,train=50,val=10"}) {
    set_num_threads(1);
    const ImageData one = open_image_data(spec);
    set_num_threads(3);
    const ImageData three = open_image_data(spec);
    EXPECT_TRUE(at::equal(one.train.images, three.train.images)) << spec;
    EXPECT_EQ(one.mean, three.mean);
  }
  set_num_threads(before);
}

TEST_F(Sets, MeanAndDeviationAreThoseOfTheTrainingImages) {
  const ImageData data = open_image_data("pathfinder:32,train=40,val=10");
  const at::Tensor pixels = data.train.images.to(at::kDouble) / 255;
  EXPECT_NEAR(data.mean.at(0), pixels.mean().item<double>(), 1e-12);
  EXPECT_NEAR(data.stddev.at(0), pixels.std(false).item<double>(), 1e-10);

  ImageDataOptions given;
  given.mean = {0.5}, given.stddev = {0.25};
  EXPECT_EQ(open_image_data("strokes:24,train=6,val=6", given).mean, given.mean);
  EXPECT_EQ(open_image_data("strokes:24,train=6,val=6", given).stddev, given.stddev);
  given.mean = {0.5, 0.5};
  expect_error([&] { open_image_data("strokes:24,train=6,val=6", given); }, {"1 values of mean", "got 2"});
  given.mean = {0.5}, given.stddev = {0};
  expect_error([&] { open_image_data("strokes:24,train=6,val=6", given); }, {"positive", "stddev", "got 0"});
}

// --- CIFAR -----------------------------------------------------------------------------------------------

TEST_F(Sets, FingerprintsSeeEveryImageAndLabel) {
  ImageData data = open_image_data("strokes:16,train=40,val=20");
  const DataFingerprint before = fingerprint(data),
                        again = fingerprint(open_image_data("strokes:16,train=40,val=20"));
  EXPECT_EQ(before.train_images, again.train_images);
  EXPECT_EQ(before.validation_labels, again.validation_labels);
  EXPECT_NE(before.train_images,
            fingerprint(open_image_data("strokes:16,train=40,val=20,seed=1")).train_images);
  // Any byte anywhere, and the order.
  for (const std::int64_t at :
       {std::int64_t{0}, data.train.images.numel() / 3, data.train.images.numel() - 1}) {
    std::uint8_t& pixel = data.train.images.data_ptr<std::uint8_t>()[at];
    ++pixel;
    EXPECT_NE(fingerprint(data).train_images, before.train_images);
    EXPECT_EQ(fingerprint(data).train_labels, before.train_labels);
    EXPECT_EQ(fingerprint(data).validation_images, before.validation_images);
    --pixel;
  }
  std::int64_t* label = data.validation.labels.data_ptr<std::int64_t>();
  const std::int64_t other = *std::find_if(label, label + 20, [&](std::int64_t l) { return l != label[0]; });
  std::swap(*std::find(label, label + 20, other), label[0]);
  EXPECT_NE(fingerprint(data).validation_labels, before.validation_labels);
  EXPECT_EQ(fingerprint(data).train_images, before.train_images);
}

TEST_F(Sets, CifarTakesTheLastBatchToValidate) {
  add("data_batch_1.bin", cifar_batch(4));
  add("data_batch_2.bin.xz", xz(cifar_batch(5, 1)));
  add("data_batch_4.bin.gz", gzip(cifar_batch(6, 2)));
  const ImageData data = open_image_data(spec("cifar10"));
  EXPECT_EQ(data.train.size(), 9);
  EXPECT_EQ(data.validation.size(), 6);
  EXPECT_EQ(data.num_classes(), 10);
  EXPECT_EQ(data.class_names.at(6), "frog");
  EXPECT_EQ(data.train.images.sizes(), (at::IntArrayRef{9, 3, 32, 32}));
  EXPECT_EQ(data.train.labels[4].item<int>(), 1);  // the first of batch 2
  EXPECT_EQ(data.train.images[4][0][0][3].item<int>(), 4);
  EXPECT_EQ(data.mean.size(), 3u);

  const ImageData chosen = open_image_data(spec("cifar10", ",train=1+4,val=2"));
  EXPECT_EQ(chosen.train.size(), 10);
  EXPECT_EQ(chosen.validation.size(), 5);
  add("test_batch.bin", cifar_batch(3));
  const ImageData with_test = open_image_data(spec("cifar10"));
  EXPECT_EQ(with_test.train.size(), 15);
  EXPECT_EQ(with_test.validation.size(), 3);
  EXPECT_EQ(open_image_data(spec("cifar10", ",val=4")).train.size(), 9);  // never trains on the test batch
}

TEST_F(Sets, CifarFoldersSayWhatIsWrong) {
  expect_error([&] { open_image_data(spec("cifar10")); }, {"holds 0 CIFAR-10 batches"});
  add("data_batch_1.bin", cifar_batch(4));
  expect_error([&] { open_image_data(spec("cifar10")); }, {"holds 1 CIFAR-10 batches"});
  add("data_batch_2.bin", cifar_batch(4).substr(0, 5000));
  expect_error([&] { open_image_data(spec("cifar10")); }, {"data_batch_2.bin", "5000 bytes"});
  expect_error([&] { open_image_data(spec("cifar10", ",train=1,val=5")); },
               {"no batch 5", "data_batch_5.bin"});
  expect_error([&] { open_image_data(spec("cifar10", ",train=1-2,val=2")); }, {"batch 2 would both"});
  expect_error([&] { open_image_data(spec("cifar10", ",train=0-2")); }, {"train from 1 to 5", "'0'"});
  add("data_batch_3.bin.xz", "garbage that is not xz");
  expect_error([&] { open_image_data(spec("cifar10", ",train=1,val=3")); }, {"data_batch_3.bin.xz", "xz"});
  add("data_batch_3.bin.xz", xz(cifar_batch(2)).substr(0, 60));
  expect_error([&] { open_image_data(spec("cifar10", ",train=1,val=3")); },
               {"data_batch_3.bin.xz", "truncated"});
}

TEST_F(Sets, CifarHundred) {
  std::string records;
  for (int i = 0; i < 3; ++i)
    records += std::string({static_cast<char>(i), static_cast<char>(90 + i)}) + std::string(3072, 'p');
  add("train.bin", records);
  expect_error([&] { open_image_data(spec("cifar100")); }, {"holds no test.bin"});
  add("test.bin.xz", xz(records));
  EXPECT_EQ(open_image_data(spec("cifar100")).num_classes(), 100);
  EXPECT_EQ(open_image_data(spec("cifar100")).train.labels[2].item<int>(), 92);
  EXPECT_EQ(open_image_data(spec("cifar100", ",labels=coarse")).train.labels[2].item<int>(), 2);
  EXPECT_EQ(open_image_data(spec("cifar100", ",labels=coarse")).num_classes(), 20);
  EXPECT_EQ(open_image_data(spec("cifar100")).stddev.at(0), 1);  // one colour: nothing to divide by
  expect_error([&] { open_image_data(spec("cifar100", ",labels=both")); }, {"labels=fine", "'both'"});
}

// --- IDX -------------------------------------------------------------------------------------------------

TEST_F(Sets, IdxPairsByName) {
  add("train-images-idx3-ubyte.gz", gzip(idx_images(20, 8)));
  add("train-labels-idx1-ubyte.gz", gzip(idx_labels(20, 4)));
  add("t10k-images.idx3-ubyte", idx_images(10, 8));
  add("t10k-labels.idx1-ubyte", idx_labels(10, 5));
  const ImageData data = open_image_data(spec("idx"));
  EXPECT_EQ(data.train.size(), 20);
  EXPECT_EQ(data.validation.size(), 10);
  EXPECT_EQ(data.num_classes(), 5);
  EXPECT_EQ(data.channels, 1);
  EXPECT_EQ(data.train.images[2][0][0][1].item<int>(), 7);
  const ImageData divided = open_image_data(spec("idx", ",val=0.25"));
  EXPECT_EQ(divided.train.size(), 15);
  EXPECT_EQ(divided.validation.size(), 5);
}

TEST_F(Sets, OneIdxPairIsDividedAlwaysInTheSameWay) {
  add("t10k-images-idx3-ubyte", idx_images(50, 8));
  add("t10k-labels-idx1-ubyte", idx_labels(50, 50));
  const ImageData a = open_image_data(spec("idx")), b = open_image_data(spec("idx"));
  EXPECT_EQ(a.train.size(), 40);
  EXPECT_TRUE(at::equal(a.train.labels, b.train.labels));
  std::vector<int> seen(50, 0);  // every image is in one of the two
  for (const ImageSet* set : {&a.train, &a.validation}) {
    for (std::int64_t i = 0; i < set->size(); ++i)
      ++seen[static_cast<std::size_t>(set->labels[i].item<int>())];
  }
  EXPECT_EQ(seen, std::vector<int>(50, 1));
}

TEST_F(Sets, IdxFoldersSayWhatIsWrong) {
  expect_error([&] { open_image_data(spec("idx")); }, {"holds no IDX files"});
  add("train-images-idx3-ubyte", idx_images(20, 8));
  expect_error([&] { open_image_data(spec("idx")); }, {"train-images-idx3-ubyte", "without its labels"});
  add("train-labels-idx1-ubyte", idx_labels(19, 4));
  expect_error([&] { open_image_data(spec("idx")); }, {"20 images", "19 labels"});
  add("train-labels-idx1-ubyte", idx_labels(20, 4));
  add("train-images-idx3-ubyte.gz", "garbage");
  expect_error([&] { open_image_data(spec("idx")); }, {"two files of training images"});
  std::filesystem::remove(folder / "train-images-idx3-ubyte");
  expect_error([&] { open_image_data(spec("idx")); }, {"train-images-idx3-ubyte.gz", "gzip"});
  add("train-images-idx3-ubyte.gz", gzip(idx_images(20, 8)));
  add("t10k-images-idx3-ubyte", idx_images(4, 6));
  add("t10k-labels-idx1-ubyte", idx_labels(4, 4));
  expect_error([&] { open_image_data(spec("idx")); }, {"1 x 8 x 8", "1 x 6 x 6"});
}

// --- folders ---------------------------------------------------------------------------------------------

class Folders : public Sets {
 protected:
  void SetUp() override {
    for (const char* part : {"train", "val"}) {
      for (int label = 0; label < 3; ++label) {
        for (int i = 0; i < 4; ++i) {
          const std::string name =
              std::string(part) + "/class" + std::to_string(label) + "/" + std::to_string(i);
          const Bytes pixels = gradient(20, 20, 3, 50 * label + i);
          if (i % 2 == 0) {
            add(name + ".png", encode_png(pixels, 20, 20, SPNG_COLOR_TYPE_TRUECOLOR));
          } else {
            add(name + ".jpg", encode_jpeg(pixels, 20, 20));
          }
        }
      }
    }
  }
};

TEST_F(Folders, SmallOnesAreHeldInMemory) {
  const ImageData data = open_image_data(spec("folder", ",size=20"));
  EXPECT_TRUE(data.train.resident());
  EXPECT_EQ(data.train.images.sizes(), (at::IntArrayRef{12, 3, 20, 20}));
  EXPECT_EQ(data.class_names, (std::vector<std::string>{"class0", "class1", "class2"}));
  EXPECT_EQ(data.train.labels[11].item<int>(), 2);
  EXPECT_EQ(data.train.min_crop_area, 0.25);
  EXPECT_EQ(data.validation.min_crop_area, 1);
  const Bytes first = gradient(20, 20, 3, 0);
  EXPECT_EQ(data.train.images[0][1][7][3].item<int>(), first[(7 * 20 + 3) * 3 + 1]);
}

TEST_F(Folders, LargeOnesAreStreamed) {
  ImageDataOptions options;
  options.max_cached_bytes = 1000;
  const ImageData data = open_image_data(spec("folder", ",size=20,crop=0.5"), options);
  EXPECT_FALSE(data.train.resident());
  EXPECT_EQ(data.train.files.size(), 12u);
  EXPECT_EQ(data.train.min_crop_area, 0.5);
  const ImageData cached = open_image_data(spec("folder", ",size=20,cache=yes"), options);
  EXPECT_TRUE(cached.train.resident());
  EXPECT_EQ(cached.mean, data.mean);  // twelve images are few enough to be measured all
  EXPECT_EQ(cached.stddev, data.stddev);
}

TEST_F(Folders, FingerprintsFollowTheContentAlone) {
  for (const char* cache : {"yes", "no"}) {
    const std::string options = std::string(",size=8,cache=") + cache;
    const auto hash = [&] { return fingerprint(open_image_data(spec("folder", options))); };
    const DataFingerprint before = hash();
    const std::filesystem::path moved = folder.path().string() + "-moved";
    std::filesystem::copy(folder.path(), moved, std::filesystem::copy_options::recursive);
    const DataFingerprint there = fingerprint(open_image_data("folder:" + moved.string() + options));
    std::filesystem::remove_all(moved);
    EXPECT_EQ(there.train_images, before.train_images);
    EXPECT_EQ(there.train_labels, before.train_labels);
    EXPECT_EQ(there.validation_images, before.validation_images);
    EXPECT_EQ(there.validation_labels, before.validation_labels);
  }
}

TEST_F(Folders, BadImagesStopOrAreCounted) {
  add("train/class1/broken.jpg", encode_jpeg(gradient(20, 20, 3), 20, 20).substr(0, 300));
  expect_error([&] { open_image_data(spec("folder", ",size=20")); }, {"class1/broken.jpg", "damaged JPEG"});
  ImageDataOptions options;
  options.skip_bad = true;
  const ImageData data = open_image_data(spec("folder", ",size=20"), options);
  EXPECT_EQ(data.train.size(), 12);
  EXPECT_EQ(data.train.skipped, 1);
  EXPECT_EQ(data.train.labels[8].item<int>(), 2);  // labels stay with their images
  EXPECT_EQ(data.validation.skipped, 0);
}

TEST_F(Folders, WrongFoldersAreErrors) {
  expect_error([&] { open_image_data(spec("folder", "/nothing")); }, {"there is no folder", "nothing/train"});
  expect_error([&] { open_image_data(spec("folder", ",cache=maybe")); }, {"cache=auto", "'maybe'"});
  expect_error([&] { open_image_data(spec("folder", ",size=0")); }, {"size from 1"});
  add("val/class9/1.png", "x");
  expect_error([&] { open_image_data(spec("folder")); }, {"'class9'", "3 classes of the training images"});
  std::filesystem::remove_all(folder.path() / "val");
  expect_error([&] { open_image_data(spec("folder")); }, {"there is no folder", "/val"});
  std::filesystem::create_directory(folder.path() / "train" / "class4");
  expect_error([&] { open_image_data(spec("folder")); }, {"class4", "no image"});
}

}  // namespace
}  // namespace topomask::testing
