// The only source that sees version and commit, so that a new commit recompiles nothing else.
#include "program_version.h"

namespace topomask::cli {

std::string program_version() {
  const std::string version = TOPOMASK_VERSION, commit = TOPOMASK_COMMIT;
  return commit.empty() ? version : version + " (" + commit + ")";
}

}  // namespace topomask::cli
