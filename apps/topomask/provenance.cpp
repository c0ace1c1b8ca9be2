#include "provenance.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/machine.h"
#include "core/parallel.h"
#include "program_version.h"
#include "topomask/device.h"

namespace topomask::cli {
namespace {

std::string& remembered_command() {
  static std::string command = "topomask";
  return command;
}

std::string shell_word(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace

void remember_command(int argc, const char* const* argv) {
  std::string& command = remembered_command();
  command = "topomask";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    // Neither the folder of a picture nor what is printed changes what it shows.
    if (word == "--out") ++i;
    if (word == "--out" || word.starts_with("--out=") || word == "--json" || word == "--quiet") continue;
    command.append(" ").append(shell_word(word));
  }
}

Provenance provenance(c10::Device measured) {
  const std::string cpu = cpu_model(), gpu = device_name(measured);
  return {remembered_command(), fmt::format("{}{}{}, {} thread{}, topomask {}", gpu, gpu.empty() ? "" : ", ",
                                            cpu.empty() ? "unknown processor" : cpu, num_threads(),
                                            num_threads() == 1 ? "" : "s", program_version())};
}

}  // namespace topomask::cli
