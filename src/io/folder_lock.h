// Folders of runs and experiments, in which only one process works at a time.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace topomask {

inline std::string path_inside(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

// An advisory lock on FOLDER/.lock, which the system releases when its holder ends, however that happens.
class FolderLock {
 public:
  enum class Wait { yes, no };
  // Makes the folder where it is missing. Without waiting, held() tells whether the lock was free.
  FolderLock(const std::string& folder, Wait wait);
  // Removes the folder again if it was made here and holds nothing else.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  bool held() const { return descriptor_ >= 0; }

 private:
  bool try_once(Wait wait);

  std::string name_;  // as given
  std::filesystem::path folder_, path_;
  std::filesystem::path made_;  // the outermost folder that was made here, or empty
  int descriptor_ = -1;
};

// Files that a killed process left half written beside the names. The caller holds the folder's lock.
void remove_leftovers(const std::string& folder, const std::vector<std::string>& names);

}  // namespace topomask
