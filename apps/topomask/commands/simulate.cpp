// `topomask simulate robot`: episodes of a robot with two arms, as states.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "core/check.h"
#include "core/interruption.h"
#include "interrupt.h"
#include "options/options.h"
#include "options/robot_episode.h"
#include "progress.h"
#include "table.h"
#include "topomask/robot.h"

namespace topomask::cli {
namespace {

struct SimulateCommand {
  RunOptions run;
  RobotOptions robot;
  std::string task = "all", out;
  std::int64_t episodes = 100;
};

std::vector<RobotTask> chosen_tasks(const std::string& name) {
  std::vector<RobotTask> tasks;
  std::vector<std::string_view> known;
  for (const Word<RobotTask>& word : words<RobotTask>()) {
    if (name == "all" || name == word.word) tasks.push_back(word.value);
    known.push_back(word.word);
  }
  known.emplace_back("all");
  if (tasks.empty()) fail_unknown_word("--task", name, known);
  return tasks;
}

void print_simulation(const SimulateCommand& command, const std::vector<RobotTaskSummary>& summaries) {
  if (command.run.json) {
    for (const RobotTaskSummary& summary : summaries) {
      fmt::print("{}\n", nlohmann::ordered_json{{"task", word_of(summary.task)},
                                                {"episodes", summary.episodes},
                                                {"succeeded", summary.succeeded},
                                                {"seconds", summary.seconds},
                                                {"simulated", summary.simulated},
                                                {"measure", summary.measure_mean}}
                             .dump());
    }
    return;
  }
  if (!command.run.prints_text()) return;
  Table table({"task", "episodes", "succeeded", "on average", "new", "per new episode"});
  for (const RobotTaskSummary& summary : summaries) {
    const auto count = [](std::int64_t number) { return format_count(static_cast<double>(number)); };
    table.add_row(
        {std::string(word_of(summary.task)), count(summary.episodes),
         fmt::format("{} ({:.0f} %)", count(summary.succeeded),
                     100. * static_cast<double>(summary.succeeded) / static_cast<double>(summary.episodes)),
         describe_robot_measure(summary.task, summary.measure_mean), count(summary.simulated),
         summary.simulated > 0 ? format_seconds(summary.seconds / static_cast<double>(summary.simulated))
                               : "-"});
  }
  table.print();
  fmt::print("\nepisodes in {}\n", command.out);
}

// After Ctrl-C, threads finish their episodes; the next call resumes.
class StopBetweenEpisodes {
 public:
  StopBetweenEpisodes() {
    set_interruption_hook([] {
      if (InterruptScope::requested()) throw Interrupted("interrupted; run the same command again to resume");
    });
  }
  ~StopBetweenEpisodes() { set_interruption_hook(nullptr); }
  StopBetweenEpisodes(const StopBetweenEpisodes&) = delete;
  StopBetweenEpisodes& operator=(const StopBetweenEpisodes&) = delete;

 private:
  InterruptScope scope_;
};

void run_simulate(SimulateCommand& command) {
  command.run.apply();
  command.robot.seed = command.run.seed;
  const std::vector<RobotTask> tasks = chosen_tasks(command.task);
  Progress bar("simulating", command.run.quiet);
  const StopBetweenEpisodes stop;
  const std::vector<RobotTaskSummary> summaries =
      simulate_robot_folder(command.out, tasks, command.episodes, command.robot,
                            [&](std::int64_t done, std::int64_t total) { bar.update(done, total); });
  erase_progress_line();
  print_simulation(command, summaries);
}

}  // namespace

void add_simulate_command(CLI::App& app) {
  CLI::App* simulate = app.add_subcommand("simulate", "Simulate data for models of the physical world");
  simulate->require_subcommand(1);
  CLI::App* sub =
      simulate->add_subcommand("robot", "Episodes of a robot with two arms, as states (needs MuJoCo)");
  const auto command = std::make_shared<SimulateCommand>();
  std::string tasks;
  for (const Word<RobotTask>& word : words<RobotTask>()) tasks.append(word.word).append("|");
  sub->add_option("--task", command->task, "What the robot does. " + describe_words(words<RobotTask>()))
      ->type_name(tasks + "all")
      ->capture_default_str();
  sub->add_option("--episodes", command->episodes, "Episodes of each task")->capture_default_str();
  sub->add_option("--frames", command->robot.frames, "Frames per episode, two per second; a task takes 26")
      ->capture_default_str();
  sub->add_option("--size", command->robot.size, "Default width and height of a rendered frame, in pixels")
      ->capture_default_str();
  sub->add_option("--cameras", command->robot.cameras, "Number of cameras, on an arc in front of the table")
      ->capture_default_str();
  sub->add_option("--out", command->out, "Folder for the episodes; episodes already in it are kept")
      ->type_name("DIR")
      ->required();
  add_run_options(*sub, command->run);
  sub->get_option("--json")->description("Print one JSON object per task instead of a table");
  sub->footer(
      "DIR gets index.json and one file of states per episode: shapes, poses, commands, cameras, success. "
      "Frames are\n"
      "rendered from states where they are needed, without MuJoCo. The same command resumes after a kill.\n"
      "Examples:\n"
      "  topomask simulate robot --episodes 100 --out robot\n"
      "  topomask simulate robot --task sweep --episodes 10 --seed 1 --out grains --json\n"
      "  topomask show robot robot --episode sweep-000003");
  sub->callback([command] { run_simulate(*command); });
}

}  // namespace topomask::cli
