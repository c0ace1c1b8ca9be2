#include "data/io/records.h"

#include "data/records.h"
#include "support/expect_edges.h"

namespace topomask::testing {
namespace {

const auto read_cifar10 = [](std::string_view content, const std::string& name) {
  return read_cifar(content, name);
};

TEST(Cifar, ReadsRecordsInOrder) {
  const ImageRecords records = read_cifar(cifar_batch(12), "batch");
  ASSERT_EQ(records.count, 12);
  EXPECT_EQ(records.channels, 3);
  EXPECT_EQ(records.height, 32);
  EXPECT_EQ(records.width, 32);
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(records.labels[i], i % 10);
    for (int p = 0; p < 3072; p += 311) EXPECT_EQ(records.pixels[i * 3072 + p], (7 * i + p) % 256);
  }
}

TEST(Cifar, HundredClassesHaveTwoLabels) {
  const std::string record = std::string({7, 63}) + std::string(3072, '\5');
  EXPECT_EQ(read_cifar(record, "f", CifarLayout::cifar100_coarse).labels.at(0), 7);
  EXPECT_EQ(read_cifar(record, "f", CifarLayout::cifar100_fine).labels.at(0), 63);
  EXPECT_EQ(read_cifar(record, "f", CifarLayout::cifar100_fine).pixels.at(0), 5);
}

TEST(Cifar, RejectsWhatIsNoBatch) {
  expect_rejected(read_cifar10, "", {"is empty"});
  expect_rejected(read_cifar10, cifar_batch(2).substr(0, 6000), {"6000 bytes", "3073"});
  expect_rejected(read_cifar10, cifar_batch(1) + "x", {"3074 bytes"});
  std::string bad_label = cifar_batch(3);
  bad_label[2 * 3073] = 10;
  expect_rejected(read_cifar10, bad_label, {"record 2", "0 to 9", "got 10"});
  const std::string coarse = std::string({20, 0}) + std::string(3072, '\0');
  expect_error([&] { read_cifar(coarse, "f", CifarLayout::cifar100_coarse); }, {"0 to 19", "got 20"});
}

TEST(Idx, ReadsShapeAndBytes) {
  const IdxArray array = read_idx(idx_images(3, 5), "file");
  EXPECT_EQ(array.shape, (std::vector<std::int64_t>{3, 5, 5}));
  ASSERT_EQ(array.bytes.size(), 75u);
  EXPECT_EQ(array.bytes[26], (3 * 1 + 1) % 256);
}

TEST(Idx, RejectsWhatIsNoIdx) {
  expect_rejected(read_idx, "", {"no IDX file", "0 bytes"});
  expect_rejected(read_idx, "GIF89a", {"two zero bytes", "47 49"});
  expect_rejected(read_idx, idx_header(13, {2}) + std::string(8, '\0'), {"unsigned bytes", "0d"});
  expect_rejected(read_idx, idx_header(8, {}), {"dimensions", "got 0"});
  expect_rejected(read_idx, idx_header(8, {1, 1, 1, 1, 1, 1, 1, 1, 1}) + "x", {"dimensions", "got 9"});
  expect_rejected(read_idx, idx_images(3, 5).substr(0, 10), {"truncated", "header alone takes 16"});
  expect_rejected(read_idx, idx_images(3, 5).substr(0, 80), {"[3, 5, 5]", "64 bytes follow"});
  expect_rejected(read_idx, idx_images(3, 5) + "xx", {"[3, 5, 5]", "77 bytes follow"});
}

TEST(Idx, ForgedExtentsDoNotOverflow) {
  const std::string forged = idx_header(8, {0x80000000u, 0x80000000u, 0x80000000u, 4}) + std::string(16, 'x');
  expect_rejected(read_idx, forged, {"16 bytes follow"});
  expect_rejected(read_idx, idx_header(8, {0xFFFFFFFFu, 0xFFFFFFFFu, 0}) + "x", {"1 bytes follow"});
}

TEST(Idx, ImagesNeedTheirLabels) {
  const auto pair = [](const std::string& images, const std::string& labels) {
    return pair_idx(read_idx(images, "i"), read_idx(labels, "l"), "i", "l");
  };
  const ImageRecords records = pair(idx_images(4, 6), idx_labels(4, 3));
  EXPECT_EQ(records.count, 4);
  EXPECT_EQ(records.channels, 1);
  EXPECT_EQ(records.width, 6);
  EXPECT_EQ(records.labels, (std::vector<std::uint8_t>{0, 1, 2, 0}));
  expect_error([&] { pair(idx_images(4, 6), idx_labels(5, 3)); },
               {"'i' holds 4 images", "'l' holds 5 labels"});
  expect_error([&] { pair(idx_labels(4, 3), idx_labels(4, 3)); }, {"'i'", "[N, height, width]", "[4]"});
  expect_error([&] { pair(idx_images(4, 6), idx_images(4, 6)); }, {"'l'", "labels [N]", "[4, 6, 6]"});
  expect_error([&] { pair(idx_images(0, 6), idx_labels(0, 3)); }, {"'i' holds no images"});
}

}  // namespace
}  // namespace topomask::testing
