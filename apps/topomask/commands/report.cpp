// `topomask report`: the page of an experiment or of a run, made again from its folder.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "options/options.h"
#include "report/page.h"

namespace topomask::cli {
namespace {

struct ReportCommand {
  RunOptions run;
  std::string folder, out;
};

void write(const ReportCommand& command) {
  const std::string path = write_report(command.folder, command.out);
  if (command.run.json) {
    const nlohmann::ordered_json json = {{"report", path}, {"bytes", std::filesystem::file_size(path)}};
    fmt::print("{}\n", json.dump());
  } else if (!command.run.quiet) {
    fmt::print("{}\n", path);
  }
}

}  // namespace

void add_report_command(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("report", "Write an experiment's runs to one HTML page");
  const auto command = std::make_shared<ReportCommand>();
  sub->add_option("folder", command->folder, "Folder of an experiment, or of one run of 'train'")
      ->type_name("FOLDER")
      ->required();
  sub->add_option("--out", command->out, "The page (default: FOLDER/report.html)")->type_name("FILE");
  add_output_options(*sub, command->run);
  sub->footer(
      "The page needs no network and no other file: accuracy curves, the table, learned f, masks around a\n"
      "patch, example predictions. An experiment writes it by itself.\n"
      "Example:\n"
      "  topomask report runs/image-table");
  sub->callback([command] { write(*command); });
}

}  // namespace topomask::cli
