// CIFAR and IDX: files of records that are read whole.
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "core/check.h"
#include "data/io/records.h"
#include "data/sources.h"
#include "io/files.h"
#include "io/text.h"

namespace topomask {

namespace fs = std::filesystem;

namespace {

// Records of one or more files, all of one size, as one set.
ImageSet set_of_records(const std::vector<ImageRecords>& parts) {
  std::int64_t count = 0;
  for (const ImageRecords& part : parts) count += part.count;
  const ImageRecords& first = parts.front();
  ImageSet set = empty_set(count, first.channels, first.height, first.width);
  auto* pixel = set.images.data_ptr<std::uint8_t>();
  auto* label = set.labels.data_ptr<std::int64_t>();
  for (const ImageRecords& part : parts) {
    pixel = std::copy(part.pixels.begin(), part.pixels.end(), pixel);
    label = std::copy(part.labels.begin(), part.labels.end(), label);
  }
  return set;
}

void check_folder(const std::string& folder) {
  std::error_code ignored;
  check(fs::is_directory(folder, ignored), "there is no folder '{}'", folder);
}

// The path of folder/name as it is or with a compressor's ending; "" if there is none.
std::string find_file(const std::string& folder, const std::string& name) {
  for (const char* ending : {"", ".xz", ".gz"}) {
    const fs::path path = fs::path(folder) / (name + ending);
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored)) return path.string();
  }
  return "";
}

// --- CIFAR -----------------------------------------------------------------------------------------------

const std::vector<std::string> kCifar10Names = {"airplane", "automobile", "bird",  "cat",  "deer",
                                                "dog",      "frog",       "horse", "ship", "truck"};

// The batches that exist: 1 to 5, and "test".
std::map<std::string, std::string> cifar10_files(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (int i = 1; i <= 5; ++i) {
    const std::string path = find_file(folder, fmt::format("data_batch_{}.bin", i));
    if (!path.empty()) files[std::to_string(i)] = path;
  }
  const std::string test = find_file(folder, "test_batch.bin");
  if (!test.empty()) files["test"] = test;
  return files;
}

// "1-3", "2", "1+3+5", "test".
std::vector<std::string> parse_batches(const DataSpec& spec, const std::string& key, std::string_view words) {
  std::vector<std::string> batches;
  while (true) {
    const std::size_t plus = words.find('+');
    const std::string_view word = words.substr(0, plus);
    const std::size_t dash = word.find('-');
    if (word == "test") {
      batches.emplace_back(word);
    } else {
      const int first = spec.parse<int>(word.substr(0, dash), key, 1, 5);
      const int last =
          dash == std::string_view::npos ? first : spec.parse<int>(word.substr(dash + 1), key, first, 5);
      for (int i = first; i <= last; ++i) batches.push_back(std::to_string(i));
    }
    if (plus == std::string_view::npos) return batches;
    words.remove_prefix(plus + 1);
  }
}

ImageSet read_batches(const DataSpec& spec, const std::map<std::string, std::string>& files,
                      const std::vector<std::string>& batches) {
  std::vector<ImageRecords> parts;
  for (const std::string& batch : batches) {
    const auto found = files.find(batch);
    check(found != files.end(), "'{}' holds no batch {} ({})", spec.subject(), batch,
          batch == "test" ? "test_batch.bin" : fmt::format("data_batch_{}.bin", batch));
    parts.push_back(read_cifar(read_file(found->second), found->second));
  }
  return set_of_records(parts);
}

// Class names from a text file, one per line, if the file exists and has one for each label.
std::vector<std::string> names_from(const std::string& folder, const std::string& file, std::size_t count,
                                    std::vector<std::string> otherwise) {
  const std::string path = find_file(folder, file);
  if (path.empty()) return otherwise;
  const std::string content = read_file(path);
  std::vector<std::string> names;
  LineReader lines(content);
  for (std::string_view line; lines.next(line);) {
    if (!line.empty()) names.emplace_back(line);
  }
  return names.size() == count ? names : otherwise;
}

std::vector<std::string> numbered_names(std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

}  // namespace

ImageData open_cifar10(DataSpec& spec, const ImageDataOptions&) {
  const std::string train = spec.text("train", ""), validation = spec.text("val", "");
  spec.finish();
  check_folder(spec.subject());
  const auto files = cifar10_files(spec.subject());
  check(files.size() >= 2,
        "'{}' holds {} CIFAR-10 batches (data_batch_1.bin to 5, test_batch.bin, plain, .xz or .gz): expected "
        "at least 2",
        spec.subject(), files.size());

  // By default the last one (the test batch, if it exists) validates, and all others train.
  const std::vector<std::string> val_batches =
      validation.empty() ? std::vector{files.rbegin()->first} : parse_batches(spec, "val", validation);
  std::vector<std::string> train_batches;
  if (!train.empty()) {
    train_batches = parse_batches(spec, "train", train);
  } else {
    for (const auto& [batch, path] : files) {
      const bool validates = std::find(val_batches.begin(), val_batches.end(), batch) != val_batches.end();
      if (!validates && batch != "test") train_batches.push_back(batch);
    }
  }
  for (const std::string& batch : train_batches) {
    check(std::find(val_batches.begin(), val_batches.end(), batch) == val_batches.end(),
          "--data cifar10: batch {} would both train and validate", batch);
  }
  check(!train_batches.empty(), "--data cifar10: no batch of '{}' is left to train on", spec.subject());

  ImageData data;
  data.train = read_batches(spec, files, train_batches);
  data.validation = read_batches(spec, files, val_batches);
  data.class_names = names_from(spec.subject(), "batches.meta.txt", 10, kCifar10Names);
  data.patch_size = 2;
  return data;
}

ImageData open_cifar100(DataSpec& spec, const ImageDataOptions&) {
  const std::string labels = spec.text("labels", "fine");
  spec.finish();
  if (labels != "fine" && labels != "coarse") {
    spec.complain(fmt::format("expected labels=fine or labels=coarse, got '{}'", labels));
  }
  check_folder(spec.subject());
  const bool fine = labels == "fine";
  const auto read = [&](const char* name) {
    const std::string path = find_file(spec.subject(), name);
    check(!path.empty(), "'{}' holds no {} (plain, .xz or .gz)", spec.subject(), name);
    return set_of_records({read_cifar(read_file(path), path,
                                      fine ? CifarLayout::cifar100_fine : CifarLayout::cifar100_coarse)});
  };
  ImageData data;
  data.train = read("train.bin");
  data.validation = read("test.bin");
  const std::size_t classes = fine ? 100 : 20;
  data.class_names = names_from(spec.subject(), fine ? "fine_label_names.txt" : "coarse_label_names.txt",
                                classes, numbered_names(classes));
  data.patch_size = 2;
  return data;
}

// --- IDX -------------------------------------------------------------------------------------------------

namespace {

struct IdxPair {
  std::string images, labels;  // paths, "" if there is none
};

// The files whose names tell that they are IDX images or labels of the training or of the other part, as in
// train-images-idx3-ubyte.gz, t10k-labels.idx1-ubyte, emnist-letters-test-images-idx3-ubyte.
IdxPair find_idx_pair(const std::string& folder, bool training) {
  IdxPair pair;
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    const std::string name = lower_case(path.filename().string());
    const auto has = [&name](const char* part) { return name.find(part) != std::string::npos; };
    if (!has("idx") || (training ? !has("train") : has("train"))) continue;
    for (auto [part, slot] : {std::pair{"images", &pair.images}, std::pair{"labels", &pair.labels}}) {
      if (!has(part)) continue;
      check(slot->empty(), "'{}' holds two files of {} {}, '{}' and '{}': expected one", folder,
            training ? "training" : "test", part, fs::path(*slot).filename().string(),
            path.filename().string());
      *slot = path.string();
    }
  }
  check(pair.images.empty() == pair.labels.empty(), "'{}' holds '{}' without its {}", folder,
        fs::path(pair.images + pair.labels).filename().string(), pair.images.empty() ? "images" : "labels");
  return pair;
}

ImageSet read_idx_pair(const IdxPair& pair) {
  return set_of_records({pair_idx(read_idx(read_file(pair.images), pair.images),
                                  read_idx(read_file(pair.labels), pair.labels), pair.images, pair.labels)});
}

ImageSet part_of(const ImageSet& set, const at::Tensor& indices) {
  ImageSet part = set;
  part.images = set.images.index_select(0, indices);
  part.labels = set.labels.index_select(0, indices);
  return part;
}

}  // namespace

ImageData open_idx(DataSpec& spec, const ImageDataOptions&) {
  constexpr double kDefaultPart = 0.2;
  const double asked = spec.number<double>("val", 0, 0.001, 0.999);
  spec.finish();
  check_folder(spec.subject());
  const IdxPair train = find_idx_pair(spec.subject(), true), test = find_idx_pair(spec.subject(), false);
  check(!train.images.empty() || !test.images.empty(),
        "'{}' holds no IDX files: expected names such as train-images-idx3-ubyte[.gz]", spec.subject());

  ImageData data;
  if (asked == 0 && !train.images.empty() && !test.images.empty()) {
    data.train = read_idx_pair(train);
    data.validation = read_idx_pair(test);
  } else {
    // One pair of files is divided, always in the same way.
    const ImageSet all = read_idx_pair(train.images.empty() ? test : train);
    const double part = asked > 0 ? asked : kDefaultPart;
    const auto validation = static_cast<std::int64_t>(part * static_cast<double>(all.size()));
    check(validation >= 1 && validation < all.size(),
          "--data idx: {} of {} images cannot be set apart to validate", part, all.size());
    const at::Tensor order = epoch_order(all.size(), 0, 0);
    data.validation = part_of(all, order.narrow(0, 0, validation));
    data.train = part_of(all, order.narrow(0, validation, all.size() - validation));
  }
  std::int64_t largest = 0;
  for (const ImageSet* set : {&data.train, &data.validation}) {
    const auto* label = set->labels.const_data_ptr<std::int64_t>();
    largest = std::max(largest, *std::max_element(label, label + set->size()));
  }
  data.class_names = numbered_names(static_cast<std::size_t>(largest) + 1);
  data.patch_size = data.train.height % 4 == 0 && data.train.width % 4 == 0 ? 4 : 1;
  return data;
}

}  // namespace topomask
