// How long idle threads spin before they sleep.
//
// libgomp lets a thread that waits for others spin for milliseconds. On idle cores that saves the price of
// waking it; on busy ones it burns the time slices that the others need. A short spin keeps the first and
// avoids the second. libgomp reads its environment when it is loaded, so the program starts itself once more
// with the variable set. This happens before any library is initialised (initialising torch takes most of the
// start), and not at all where the user has chosen.
#include <sys/auxv.h>
#include <unistd.h>

#include <string_view>
#include <vector>

namespace {

constexpr const char* kSpinCount = "GOMP_SPINCOUNT=10000";

void choose_waiting_policy(int, char** argv, char** environment) {
  std::vector<char*> extended;
  for (char** entry = environment; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with("OMP_WAIT_POLICY=") || text.starts_with("GOMP_SPINCOUNT=")) return;
    extended.push_back(*entry);
  }
  if (getauxval(AT_BASE) == 0) return;  // started by naming the dynamic linker: /proc/self/exe is not us
  extended.push_back(const_cast<char*>(kSpinCount));
  extended.push_back(nullptr);
  execve("/proc/self/exe", argv, extended.data());
  // Where that cannot be done, libgomp's own policy stays.
}

[[gnu::section(".preinit_array"),
  gnu::used]] void (*const run_before_all_libraries)(int, char**, char**) = choose_waiting_policy;

}  // namespace
