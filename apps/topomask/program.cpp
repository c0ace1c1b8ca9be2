#include "program.h"

#include <malloc.h>

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "commands/commands.h"
#include "core/suggest.h"
#include "interrupt.h"
#include "options/flag_names.h"
#include "program_version.h"
#include "progress.h"
#include "provenance.h"
#include "topomask/error.h"

namespace topomask::cli {
namespace {

extern "C" void on_interrupt(int) {
  erase_progress_line();
  _exit(kInterrupted);
}

// A standard stream that was closed would be the next file that is opened: a checkpoint, or where ranks meet.
void open_closed_streams() {
  int file = open("/dev/null", O_RDWR);
  while (file >= 0 && file <= STDERR_FILENO) file = open("/dev/null", O_RDWR);
  if (file >= 0) close(file);
}

int report(int status, std::string_view message) {
  erase_progress_line();
  // Messages of other libraries may run over several lines (a backtrace, say); the first says what happened.
  fmt::print(stderr, "topomask: {}\n", message.substr(0, message.find('\n')));
  return status;
}

// What the library and torch warn of, as one line.
class Warnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    erase_progress_line();
    const std::string& text = warning.msg();
    fmt::print(stderr, "topomask: warning: {}\n", std::string_view(text).substr(0, text.find('\n')));
  }
};

// The innermost subcommand that the arguments reached.
const CLI::App& selected_command(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  return *command;
}

std::string unknown_argument_message(const CLI::App& command, const std::string& argument) {
  std::vector<std::string> known;
  if (argument.starts_with("-")) {
    const std::string name = argument.substr(0, argument.find('='));
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& long_name : option->get_lnames())
        known.push_back(fmt::format("--{}", long_name));
    }
    return fmt::format("{} has no option '{}'{}", command.get_name(), name, did_you_mean(name, known));
  }
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
    known.push_back(sub->get_name());
  }
  if (known.empty()) return fmt::format("{} takes no argument '{}'", command.get_name(), argument);
  return fmt::format("{} has no command '{}'{}", command.get_name(), argument,
                     nearest_or_all(argument, known));
}

// A value that is not of the option's type, which CLI11 calls "Could not convert: --option = value".
std::string conversion_message(const CLI::App& command, std::string_view text) {
  const std::size_t colon = text.find(": "), equals = text.find(" = ");
  if (colon == std::string_view::npos || equals == std::string_view::npos || equals < colon)
    return std::string(text);
  const std::string name(text.substr(colon + 2, equals - colon - 2));
  const std::string_view value = text.substr(equals + 3);
  const CLI::Option* option = command.get_option_no_throw(name);
  const std::string type = option == nullptr ? "" : option->get_type_name();
  const bool whole = type == "INT" || type == "BYTES";
  if (whole && value.find_first_not_of("0123456789") == std::string_view::npos && !value.empty())
    return fmt::format("{}: {} is too large", name, value);
  const char* const kind = type == "BYTES"   ? "a whole number of bytes"
                           : whole           ? "a whole number"
                           : type == "FLOAT" ? "a number"
                                             : "another kind of value";
  return fmt::format("{}: expected {}, got '{}'", name, kind, value);
}

std::string parse_error_message(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = selected_command(app);
  // An unknown argument comes first: it is often the reason why a required one is missing.
  if (const std::vector<std::string> unknown = app.remaining(true); !unknown.empty()) {
    return unknown_argument_message(command, unknown.front());
  }
  std::string name;  // with the commands above it
  for (const CLI::App* part = &command; part->get_parent() != nullptr; part = part->get_parent())
    name = fmt::format(" {}{}", part->get_name(), name);
  const bool unreadable = dynamic_cast<const CLI::ConversionError*>(&error) != nullptr;
  return fmt::format("{} (see 'topomask{} --help')",
                     unreadable ? conversion_message(command, error.what()) : error.what(), name);
}

int run(int argc, char** argv) {
  CLI::App app("Topological masking of linear attention with graph random features", "topomask");
  app.set_version_flag("--version", program_version());
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.footer(
      "Examples:\n"
      "  topomask graph --graph karate\n"
      "  topomask kernel-error --graph grid:16x16 --walks 4,16,64 --coupling both\n"
      "  topomask features --graph roads.mtx --kernel diffusion:sigma2=1 --out phi.npz\n"
      "  topomask attend --graph grid:64x64 --q q.npy --k k.npy --v v.npy --out o.npy\n"
      "  topomask train vit --attention grf --epochs 10 --out runs/grf\n"
      "  topomask simulate robot --episodes 10 --out robot\n"
      "  topomask COMMAND --help");
  add_graph_command(app);
  add_features_command(app);
  add_kernel_error_command(app);
  add_plan_command(app);
  add_calibrate_command(app);
  add_partition_command(app);
  add_attend_command(app);
  add_flops_command(app);
  add_bench_command(app);
  add_demo_command(app);
  add_train_command(app);
  add_eval_command(app);
  add_experiment_command(app);
  add_report_command(app);
  add_simulate_command(app);
  add_render_command(app);
  add_show_command(app);
  add_rollout_command(app);
  try {
    app.parse(argc, argv);  // runs the subcommand
    return 0;
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    return report(kBadInput, parse_error_message(app, error));
  } catch (const topomask::Error& error) {
    return report(kBadInput, with_flag_name(selected_command(app), error.what()));
  }
}

}  // namespace

// What was printed may lie in a buffer until now.
void flush_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw std::runtime_error("could not write to standard output; is the disk full?");
}

int run_program(int argc, char** argv) {
#ifdef __GLIBC__
  // Arrays of many megabytes come and go with every pass. Left to itself, malloc gives them back to the
  // system each time and pays for every page again.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);  // never
#endif
  open_closed_streams();
  std::signal(SIGINT, on_interrupt);
  remember_command(argc, argv);
  Warnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  try {
    const int status = run(argc, argv);
    flush_output();
    return status;
  } catch (const Interrupted& request) {
    return report(kInterrupted, request.what());
  } catch (const std::bad_alloc&) {
    return report(kInternalFailure, "out of memory");
  } catch (const std::exception& error) {
    return report(kInternalFailure, error.what());
  }
}

}  // namespace topomask::cli
