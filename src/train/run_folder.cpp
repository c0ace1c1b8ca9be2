#include <filesystem>

#include "core/check.h"
#include "io/files.h"
#include "io/folder_lock.h"
#include "topomask/runs.h"
#include "train/checkpoint_file.h"

namespace topomask {

namespace fs = std::filesystem;

namespace {

bool is_there(const std::string& folder, const char* name) {
  std::error_code ignored;
  return fs::exists(fs::path(folder) / name, ignored);
}

bool holds_run(const std::string& folder) {
  return is_there(folder, kConfigFile) || is_there(folder, kLastCheckpoint) || is_there(folder, kResultFile);
}

std::optional<VitSettings> find_run_settings(const std::string& folder) {
  if (is_there(folder, kLastCheckpoint)) {
    const std::string path = path_inside(folder, kLastCheckpoint);
    const auto metadata = read_checkpoint_metadata(path);
    const auto found = metadata.find(kSettingsKey);
    check(found != metadata.end(), "{}: not a checkpoint of 'topomask train' (its metadata has no '{}')",
          path, kSettingsKey);
    return VitSettings::from_toml_text(found->second, path);
  }
  if (is_there(folder, kConfigFile)) return VitSettings::from({}, path_inside(folder, kConfigFile));
  return std::nullopt;
}

}  // namespace

struct RunFolder::Implementation {
  Implementation(const std::string& given, RunStart given_start)
      : path(given), start(given_start), lock(given, FolderLock::Wait::no) {}
  std::string path;
  RunStart start;
  FolderLock lock;
};

RunFolder::RunFolder(const std::string& path, RunStart start) {
  check(!path.empty(), "RunFolder: expected the path of a folder, got nothing");
  std::error_code ignored;
  check(start != RunStart::resume || fs::is_directory(path, ignored), "{}: holds no run to resume", path);
  implementation_ = std::make_unique<Implementation>(path, start);
  if (!implementation_->lock.held())
    throw FolderInUse(fmt::format("{}: another process is training there", path));
  check(start != RunStart::resume || holds_run(path), "{}: holds no run to resume", path);
  // A folder with settings but neither checkpoint nor result was stopped before there was anything to keep.
  check(start != RunStart::fresh || (!is_there(path, kLastCheckpoint) && !is_there(path, kResultFile)),
        "{}: holds a run already; resume it (--resume) or choose another folder (--out)", path);
  remove_leftovers(path, {kConfigFile, kResultFile, kMasksFile, kExamplesFile, kMetricsFile, kLastCheckpoint,
                          kBestCheckpoint});
}

RunFolder::~RunFolder() = default;

const std::string& RunFolder::path() const {
  return implementation_->path;
}

std::string RunFolder::file(const std::string& name) const {
  return path_inside(path(), name);
}

std::optional<VitSettings> RunFolder::settings() const {
  if (implementation_->start == RunStart::fresh) return std::nullopt;
  return find_run_settings(path());
}

std::optional<std::string> RunFolder::result() const {
  if (!is_there(path(), kResultFile)) return std::nullopt;
  return read_file(file(kResultFile));
}

VitSettings read_run_settings(const std::string& folder) {
  const std::optional<VitSettings> settings = find_run_settings(folder);
  check(settings.has_value(), "{}: holds no run to resume", folder);
  return *settings;
}

}  // namespace topomask
