#include "topomask/image_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "core/check.h"
#include "core/suggest.h"
#include "io/files.h"
#include "io/folder_lock.h"
#include "train/finished_runs.h"
#include "train/settings.h"
#include "train/table_runs.h"

namespace topomask {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kWalksPrefix = "grf-walks-";
constexpr double kAblationHalt = 0.5;

// N of grf-walks-N.
std::int64_t number_of_walks(const std::string& variant) {
  std::int64_t walks = 0;
  const char *begin = variant.data() + kWalksPrefix.size(), *end = variant.data() + variant.size();
  const auto [rest, error] = std::from_chars(begin, end, walks);
  check(error == std::errc() && rest == end && walks >= 1, "variants: expected {}N with N walks, got '{}'",
        kWalksPrefix, variant);
  return walks;
}

// What all runs of a table share, and what the name of a variant says already.
const std::vector<std::string> kFixedSettings = {"data",      "seed",    "preset",
                                                 "attention", "encoder", "frame-order"};

constexpr std::string_view kJointPrefix = "joint-", kTimeSuffix = "+time";

// What a variant changes in a video model, beside the attention that is left of its name.
struct VideoVariant {
  std::string attention;
  bool joint = false, over_time = false;
  FrameOrder order = FrameOrder::given;
};

VideoVariant parse_video_variant(std::string name) {
  VideoVariant variant;
  if (name == "shuffled-frames" || name == "single-frame") {
    variant.order = name == "single-frame" ? FrameOrder::single : FrameOrder::shuffled;
    name = attention_variant_name(AttentionVariant::softmax_grf);
  }
  variant.joint = name.starts_with(kJointPrefix);
  if (variant.joint) name.erase(0, kJointPrefix.size());
  variant.over_time = !variant.joint && name.ends_with(kTimeSuffix);  // a joint encoder has no other time
  if (variant.over_time) name.erase(name.size() - kTimeSuffix.size());
  variant.attention = name;
  return variant;
}

// All slices of an experiment share their settings.
void check_settings(const ImageTable& table) {
  const std::string path = path_inside(table.folder, kConfigFile);
  if (!fs::exists(path)) return;
  const std::string differs = difference(VitSettings::from({}, path), table.settings);
  check(differs.empty(), "{}: {}; choose another folder for another experiment", path, differs);
}

void agree_on_settings(const ImageTable& table) {
  const FolderLock lock(table.folder, FolderLock::Wait::yes);
  remove_leftovers(table.folder, {kConfigFile, kSummaryFile});
  check_settings(table);
  const std::string path = path_inside(table.folder, kConfigFile);
  if (!fs::exists(path)) write_file(path, table.settings.to_toml());
}

// And their data: one table must not mix results on different images.
void check_finished_runs(const ImageTable& table, const DataFingerprint& fingerprint) {
  for (const FinishedRun& run : find_finished_runs(table.folder)) {
    const std::string changed = changed_data(run.result.value("data_fingerprint", Json()), fingerprint);
    check(changed.empty(),
          "{}: was trained on other data ({} differ); choose another folder for another experiment",
          path_inside(table.folder, run.folder), changed);
  }
}

// A variant that cannot be trained is refused before the first run.
void check_variants(const TableWork& work, const VitSettings& settings, const ImageData& data) {
  for (const std::string& variant : work.variants) {
    try {
      const VitSettings own = image_table_settings(settings, variant, work.seeds.front());
      check_vit_options(own.task_options(data).model);
      own.train_options();
    } catch (const Error& error) {
      if (variant.find('@') == variant.npos) throw;  // the settings of all are to blame
      fail("variants: '{}': {}", variant, error.what());
    }
  }
}

// One process at a time, or one that looked earlier could replace the results of one that looked later.
std::string merge_results(const ImageTable& table) {
  const FolderLock lock(table.folder, FolderLock::Wait::yes);
  Json summary = {{"experiment", table.settings.is_video() ? "video-table" : "image-table"},
                  {"data", table.settings.data}};
  summary.update(summarise_runs(find_finished_runs(table.folder)));
  write_file(path_inside(table.folder, kSummaryFile), summary.dump(1) + "\n");
  return summary.dump();
}

}  // namespace

const std::vector<std::string>& image_table_variants() {
  static const std::vector<std::string> names = {
      "softmax", "softmax+grf",      "linear",      "toeplitz",     "power-series",  "grf",
      "ad-hoc",  "learned-features", "grf-walks-1", "grf-walks-10", "grf-walks-100", "grf-walks-1000"};
  return names;
}

const std::vector<std::string>& video_table_variants() {
  static const std::vector<std::string> names = {
      "softmax",      "softmax+grf",      "softmax+grf-bias", "linear",
      "grf",          "softmax+grf+time", "grf+time",         "joint-softmax",
      "joint-linear", "joint-grf",        "shuffled-frames",  "single-frame"};
  return names;
}

void check_image_table_variant(const std::string& variant, bool video) {
  const ChangedVariant changed = split_changes(variant, kFixedSettings);
  VitSettings scratch = video ? VitSettings::video() : VitSettings();
  list_settings(scratch).apply(changed.changes);
  const VideoVariant parts =
      video ? parse_video_variant(changed.name) : VideoVariant{.attention = changed.name};
  const std::string& attention = parts.attention;
  if (parts.joint) check_encoder_settings(Encoder::joint, changed.changes);
  if (attention.starts_with(kWalksPrefix)) {
    number_of_walks(attention);
    return;
  }
  std::vector<std::string> known = attention_variant_names();
  if (std::find(known.begin(), known.end(), attention) != known.end()) return;
  if (video) known.insert(known.end(), video_table_variants().begin(), video_table_variants().end());
  fail("variants: unknown value '{}'{}", changed.name, did_you_mean(changed.name, known));
}

VitSettings image_table_settings(VitSettings settings, const std::string& variant, std::uint64_t seed) {
  check_image_table_variant(variant, settings.is_video());
  settings.seed = seed;
  const ChangedVariant changed = split_changes(variant, kFixedSettings);
  VideoVariant parts = {.attention = changed.name};
  if (settings.is_video()) {
    parts = parse_video_variant(changed.name);
    if (parts.joint) settings.model.encoder = Encoder::joint;
    settings.frame_order = parts.order;
  }
  if (parts.attention.starts_with(kWalksPrefix)) {
    settings.model.attention = AttentionVariant::grf;
    settings.model.mask.num_walks = number_of_walks(parts.attention);
    settings.model.mask.p_halt = kAblationHalt;
  } else {
    settings.model.attention = parse_attention_variant(parts.attention);
  }
  if (parts.over_time) settings.model.temporal_attention = settings.model.attention;
  list_settings(settings).apply(changed.changes);
  return settings;
}

TableResult run_image_table(const ImageTable& table, const TableCallbacks& callbacks) {
  const bool video = table.settings.is_video();
  const std::vector<std::string>& all = video ? video_table_variants() : image_table_variants();
  TableWork work;
  work.folder = table.folder;
  work.variants = table.variants.empty() ? all : table.variants;
  work.seeds = table.seeds;
  for (const std::string& variant : work.variants) check_image_table_variant(variant, video);
  check_distinct(work.variants, work.seeds, "image table");
  table.settings.train_options();
  check_settings(table);  // before the data are read, which may take long
  const ImageData data = table.settings.open_data();
  const DataFingerprint hashes = fingerprint(data);
  check_variants(work, table.settings, data);
  agree_on_settings(table);
  check_finished_runs(table, hashes);
  if (callbacks.started) callbacks.started();
  work.is_finished = [](const std::string& folder) { return read_result(folder).has_value(); };
  work.train = [&](RunFolder& folder, const TableRun& run, const TrainCallbacks& training) {
    const VitSettings settings = image_table_settings(table.settings, run.variant, run.seed);
    return train_vit(folder, settings, data, hashes, training).training;
  };
  work.merge = [&] { return merge_results(table); };
  return run_table(work, callbacks);
}

}  // namespace topomask
