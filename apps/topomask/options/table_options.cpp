#include "options/table_options.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/check.h"
#include "core/numbers.h"
#include "options/setting_options.h"

namespace topomask::cli {
namespace {

std::vector<std::string> split_list(const std::string& list) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) words.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

}  // namespace

std::vector<std::string> TableOptions::chosen_variants() const {
  const std::vector<std::string> words = split_list(variants);
  check(!words.empty() || variants.empty(), "--variants: expected names with commas between them");
  return words;
}

std::vector<std::uint64_t> TableOptions::chosen_seeds() const {
  std::vector<std::uint64_t> chosen;
  for (const std::string& word : split_list(seeds)) {
    const std::size_t dash = word.find('-', 1);
    const std::int64_t first = parse_integers(word.substr(0, dash), "--seeds").front();
    const std::int64_t last =
        dash == std::string::npos ? first : parse_integers(word.substr(dash + 1), "--seeds").front();
    check(first >= 0 && last >= first && last - first < 1000,
          "--seeds: expected numbers like 0,1,2 or 0-2, got '{}'", word);
    for (std::int64_t seed = first; seed <= last; ++seed) chosen.push_back(static_cast<std::uint64_t>(seed));
  }
  check(!chosen.empty(), "--seeds: expected numbers like 0,1,2 or 0-2");
  return chosen;
}

void add_table_options(CLI::App& command, TableOptions& options, const std::string& about_variants) {
  command.add_option("--variants", options.variants, about_variants)->type_name("LIST");
  command.add_option("--seeds", options.seeds, "Seeds to train with: 0,1,2 or 0-2")
      ->type_name("LIST")
      ->capture_default_str();
  command.add_option("--config", options.config, "TOML file of settings; the command line overrides it")
      ->type_name("FILE");
  command.add_option("--out", options.out, "Folder of the experiment")
      ->type_name("DIR")
      ->capture_default_str()
      ->check(not_empty);
  add_time_limit(command, options.time_limit);
}

TableSession::TableSession(const TableOptions& options, std::function<std::string(const TrainResult&)> score)
    : options_(options), score_(std::move(score)) {}

TableCallbacks TableSession::callbacks() {
  TableCallbacks callbacks;
  callbacks.started = [this] { interrupts_.emplace(); };
  callbacks.should_stop = [this] {
    const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    return InterruptScope::requested() || (options_.time_limit > 0 && passed > options_.time_limit);
  };
  callbacks.training = [this](const TableRun& run) {
    progress_.emplace(fmt::format("{}/{} {} seed {}", run.number, run.total, run.variant, run.seed),
                      options_.run.quiet);
    TrainCallbacks training;
    training.progress = [this](std::int64_t step, std::int64_t steps, const std::string& status) {
      progress_->update(step, steps, status);
    };
    return training;
  };
  if (!options_.run.prints_text()) return callbacks;
  callbacks.finished = [this](const TableRun& run, const TrainResult& result) {
    progress_.reset();
    fmt::print("{:<18} seed {}  {}  {:.1f} s\n", run.variant, run.seed, score_(result), result.seconds);
    std::fflush(stdout);
  };
  callbacks.diverged = [this](const TableRun& run, const std::string& why) {
    progress_.reset();
    fmt::print("{:<18} seed {}  {}\n", run.variant, run.seed, why);
    std::fflush(stdout);
  };
  callbacks.in_use = [](const TableRun& run) {
    fmt::print("{:<18} seed {}  left out: another process is training it\n", run.variant, run.seed);
  };
  return callbacks;
}

void TableSession::print_ending(const TableResult& result, const std::string& summary,
                                const std::string& report) {
  progress_.reset();
  if (options_.run.json) {
    fmt::print("{}\n", result.json);
    if (result.in_use > 0)
      fmt::print(stderr, "topomask: left out {} of {} runs: another process is training them\n",
                 result.in_use, result.total);
  } else if (options_.run.prints_text()) {
    fmt::print("\n{}\n{} of {} runs are finished{}; {} has them all\n", summary, result.finished,
               result.total,
               result.in_use > 0 ? fmt::format(", {} left to other processes", result.in_use) : std::string(),
               (std::filesystem::path(options_.out) / "results.json").string());
    if (!report.empty()) fmt::print("{} shows them in a browser\n", report);
  }
  check(result.diverged.empty(), "{} of {} runs diverged, the others are kept: {}", result.diverged.size(),
        result.total, fmt::join(result.diverged, "; "));
  if (InterruptScope::requested())
    throw Interrupted("stopped, all is saved; the same command resumes where this one left off");
}

}  // namespace topomask::cli
