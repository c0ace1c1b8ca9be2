#include "io/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/check.h"

namespace topomask {

namespace fs = std::filesystem;

namespace {

// Whether the open file is still the one that has this path.
bool is_at(int descriptor, const fs::path& path) {
  struct stat own {
  }, there{};
  return fstat(descriptor, &own) == 0 && stat(path.c_str(), &there) == 0 && own.st_dev == there.st_dev &&
         own.st_ino == there.st_ino;
}

// The outermost folder that has to be made for `folder` to be there; empty where none has.
fs::path outermost_missing(const fs::path& folder) {
  fs::path missing;
  std::error_code ignored;
  for (fs::path path = folder; !path.empty() && !fs::exists(path, ignored); path = path.parent_path()) {
    missing = path;
    if (path == path.parent_path()) break;
  }
  return missing;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, Wait wait)
    : name_(folder), folder_(fs::absolute(folder).lexically_normal()) {
  if (!folder_.has_filename()) folder_ = folder_.parent_path();  // "runs/a/" is "runs/a"
  path_ = folder_ / ".lock";
  const fs::path missing = outermost_missing(folder_);
  // Another process may remove folder and file between two lines of this one.
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (try_once(wait)) {
      if (held()) made_ = missing;
      return;
    }
  }
  fail("{}: cannot be locked, other processes make and remove it", name_);
}

// False where the file was removed on the way.
bool FolderLock::try_once(Wait wait) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error == std::errc::no_such_file_or_directory) return false;
  check(!error, "{}: cannot be made a folder ({})", name_, error.message());
  const int descriptor = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0 && errno == ENOENT) return false;
  check(descriptor >= 0, "{}: cannot be written to ({})", name_, std::strerror(errno));
  int status = 0;
  do {
    status = flock(descriptor, LOCK_EX | (wait == Wait::yes ? 0 : LOCK_NB));
  } while (status != 0 && errno == EINTR);
  const int reason = errno;
  if (status == 0 && is_at(descriptor, path_)) {
    descriptor_ = descriptor;
    return true;
  }
  close(descriptor);
  if (status == 0) return false;
  check(reason == EWOULDBLOCK, "{}: cannot be locked ({})", name_, std::strerror(reason));
  return true;
}

FolderLock::~FolderLock() {
  if (!held()) return;
  // The lock is still held, so no other process writes; one that waits for this file sees that it is gone.
  if (!made_.empty()) {
    std::error_code ignored;
    const auto begin = fs::directory_iterator(folder_, ignored);
    if (!ignored && std::distance(begin, fs::directory_iterator()) == 1 && fs::remove(path_, ignored)) {
      for (fs::path path = folder_; fs::remove(path, ignored) && path != made_; path = path.parent_path()) {
      }
    }
  }
  close(descriptor_);
}

void remove_leftovers(const std::string& folder, const std::vector<std::string>& names) {
  std::error_code ignored;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string file = entry.path().filename().string();
    for (const std::string& name : names) {  // NAME.PID.tmp, as write_file calls them
      if (!file.starts_with(name + ".") || !file.ends_with(".tmp") || file.size() <= name.size() + 5)
        continue;
      const std::string pid = file.substr(name.size() + 1, file.size() - name.size() - 5);
      if (std::all_of(pid.begin(), pid.end(), [](char c) { return c >= '0' && c <= '9'; }))
        leftovers.push_back(entry.path());
    }
  }
  for (const fs::path& path : leftovers) fs::remove(path, ignored);
}

}  // namespace topomask
