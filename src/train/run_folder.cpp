#include <filesystem>

#include "core/check.h"
#include "io/files.h"
#include "io/folder_lock.h"
#include "topomask/particle_runs.h"
#include "train/checkpoint_file.h"
#include "train/settings.h"

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

std::optional<RunConfig> find_run_config(const std::string& folder) {
  if (is_there(folder, kLastCheckpoint)) return read_checkpoint_config(path_inside(folder, kLastCheckpoint));
  if (!is_there(folder, kConfigFile)) return std::nullopt;
  const std::string path = path_inside(folder, kConfigFile);
  // Each kind has a key that the others have not.
  const bool particles = !Settings::peek_toml(path, "particles").empty();
  const bool video = !Settings::peek_toml(path, "encoder").empty();
  return RunConfig{particles ? kParticlesKind : video ? "vivit" : "vit", read_file(path), path};
}

VitSettings vit_settings_of(const RunConfig& config) {
  check_run_kind(config, config.kind == "vivit" ? "vivit" : "vit");
  if (config.path.ends_with(kConfigFile)) return VitSettings::from({}, config.path);
  return VitSettings::from_toml_text(config.toml, config.path);
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
                          kBestCheckpoint, kRolloutFile});
}

RunFolder::~RunFolder() = default;

const std::string& RunFolder::path() const {
  return implementation_->path;
}

std::string RunFolder::file(const std::string& name) const {
  return path_inside(path(), name);
}

std::optional<RunConfig> RunFolder::config() const {
  if (implementation_->start == RunStart::fresh) return std::nullopt;
  return find_run_config(path());
}

std::optional<VitSettings> RunFolder::settings() const {
  const std::optional<RunConfig> found = config();
  if (!found) return std::nullopt;
  return vit_settings_of(*found);
}

std::optional<std::string> RunFolder::result() const {
  if (!is_there(path(), kResultFile)) return std::nullopt;
  return read_file(file(kResultFile));
}

RunConfig read_run_config(const std::string& folder) {
  const std::optional<RunConfig> config = find_run_config(folder);
  check(config.has_value(), "{}: holds no run to resume", folder);
  return *config;
}

RunConfig read_checkpoint_config(const std::string& path) {
  const auto metadata = read_checkpoint_metadata(path);
  const auto settings = metadata.find(kSettingsKey), model = metadata.find(kModelKey);
  check(settings != metadata.end(), "{}: not a checkpoint of 'topomask train' (its metadata has no '{}')",
        path, kSettingsKey);
  return {model == metadata.end() ? "vit" : model->second, settings->second, path};
}

void check_run_kind(const RunConfig& config, const std::string& expected) {
  check(config.kind == expected, "{}: is of 'topomask train {}', not of 'topomask train {}'", config.path,
        config.kind, expected);
}

VitSettings read_run_settings(const std::string& folder) {
  return vit_settings_of(read_run_config(folder));
}

}  // namespace topomask
