// `topomask render robot`: the frames of simulated episodes as files that RGB-D tools read.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "core/check.h"
#include "core/parallel.h"
#include "io/files.h"
#include "options/options.h"
#include "options/robot_episode.h"
#include "progress.h"

namespace topomask::cli {
namespace {

namespace fs = std::filesystem;

struct RenderCommand {
  RunOptions run;
  std::string data, out, episode;
  int size = 0, samples = RenderOptions().samples;
};

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  check(!error, "cannot make the folder '{}': {}", path, error.message());
}

void run_render(const RenderCommand& command) {
  command.run.apply();
  const RobotIndex index = read_robot_index(command.data);
  std::vector<RobotEntry> entries = index.entries;
  if (!command.episode.empty()) entries = {find_robot_entry(index, command.episode)};
  RenderOptions options;
  if (command.size != 0) check_frame_size(command.size);
  options.width = options.height = command.size == 0 ? index.options.size : command.size;
  options.samples = command.samples;
  check(options.samples >= 1 && options.samples <= 8, "--samples: expected 1 to 8, got {}", options.samples);
  std::error_code ignored;
  check(!fs::exists(command.out, ignored) ||
            (fs::is_directory(command.out, ignored) && fs::is_empty(command.out, ignored)),
        "--out: '{}' is there already; choose another folder, or remove that one first", command.out);

  const std::int64_t cameras = index.options.cameras, frames = index.options.frames;
  Progress bar("rendering", command.run.quiet);
  std::int64_t done = 0;
  for (const RobotEntry& entry : entries) {
    // Renamed once all frames are there, so that a killed command leaves no episode that looks whole.
    const std::string whole = inside(command.out, robot_entry_name(entry)), part = whole + ".part";
    const RobotEpisode episode = read_robot_entry(command.data, entry);
    check(episode.frames == frames && static_cast<std::int64_t>(episode.cameras.size()) == cameras,
          "'{}' has {} frames of {} cameras, but its data set has {} of {}", entry.file, episode.frames,
          episode.cameras.size(), frames, cameras);
    std::vector<std::string> folders;
    for (std::int64_t camera = 0; camera < cameras; ++camera) {
      folders.push_back(inside(part, fmt::format("camera-{}", camera)));
      make_folder(folders.back());
    }
    for_runs(frames * cameras, 1, [&](std::int64_t i, std::int64_t) {
      const std::int64_t frame = i / cameras, camera = i % cameras;
      const RgbdImage image =
          render_robot(episode, static_cast<int>(frame), static_cast<int>(camera), options);
      const std::string& folder = folders[static_cast<std::size_t>(camera)];
      if (frame == 0) write_rgbd_intrinsics(folder, image.intrinsics);
      write_rgbd_frame(folder, frame, image);
    });
    std::error_code error;
    fs::rename(part, whole, error);
    check(!error, "cannot rename the folder '{}': {}", part, error.message());
    bar.update(++done, static_cast<std::int64_t>(entries.size()));
  }
  erase_progress_line();
  if (command.run.json) {
    const nlohmann::ordered_json json = {{"episodes", entries.size()},
                                         {"cameras", cameras},
                                         {"frames", frames},
                                         {"size", options.width},
                                         {"out", command.out}};
    fmt::print("{}\n", json.dump());
  } else if (command.run.prints_text()) {
    fmt::print("{} episodes, {} frames of {} cameras each, in {}\n", entries.size(), frames, cameras,
               command.out);
  }
}

}  // namespace

void add_render_command(CLI::App& app) {
  CLI::App* render = app.add_subcommand("render", "Frames of simulated episodes as files");
  render->require_subcommand(1);
  CLI::App* sub = render->add_subcommand("robot", "Colour and depth that the robot's cameras see, as PNG");
  const auto command = std::make_shared<RenderCommand>();
  sub->add_option("data", command->data, "Folder written by 'topomask simulate robot'")
      ->type_name("DIR")
      ->required();
  sub->add_option("--out", command->out, "New folder for the pictures")->type_name("PNGS")->required();
  sub->add_option("--episode", command->episode, "Only this episode, by number or name (default: all)")
      ->type_name("E");
  sub->add_option("--size", command->size,
                  "Width and height of a frame in pixels (default: as in the data set)");
  sub->add_option("--samples", command->samples,
                  "Rays along each side of a pixel, for colour: N x N per pixel")
      ->capture_default_str();
  add_output_options(*sub, command->run);
  sub->get_option("--threads")
      ->description("Number of threads (default: all cores); does not change the results");
  sub->footer(
      "PNGS/EPISODE/camera-C gets the layout of 7-Scenes: frame-000000.color.png, .depth.png (16 bits, "
      "millimetres),\n"
      ".pose.txt (camera to world; x right, y down, z forward) and camera-intrinsics.txt. The folder is "
      "called\n"
      "EPISODE.part until all its frames are written.\n"
      "Example:\n"
      "  topomask render robot robot --out frames --episode sweep-000003");
  sub->callback([command] { run_render(*command); });
}

}  // namespace topomask::cli
