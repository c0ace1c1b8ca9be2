// `topomask show robot`: one episode as a contact sheet and as an animation.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "core/check.h"
#include "core/parallel.h"
#include "data/io/png_writer.h"
#include "draw/contact_sheet.h"
#include "draw/heat_map.h"
#include "io/files.h"
#include "options/options.h"
#include "options/robot_episode.h"
#include "provenance.h"
#include "table.h"

namespace topomask::cli {
namespace {

struct ShowCommand {
  RunOptions run;
  std::string data, episode = "0", out;
  int camera = 0, size = 256, columns = 7, every = 1;
  double tile = 128;
};

SheetPicture colour_picture(const RgbdImage& image, std::string label) {
  SheetPicture picture{std::move(label), image.height, image.width, {}};
  for (std::size_t i = 0; i < image.colour.size(); i += 3)
    picture.pixels.push_back({image.colour[i], image.colour[i + 1], image.colour[i + 2]});
  return picture;
}

// Near is bright; pixels without depth are white.
SheetPicture depth_picture(const RgbdImage& image, std::string label) {
  SheetPicture picture{std::move(label), image.height, image.width, {}};
  float nearest = 1e9f, farthest = 0;
  for (const float depth : image.depth) {
    if (depth == 0) continue;
    nearest = std::min(nearest, depth);
    farthest = std::max(farthest, depth);
  }
  for (const float depth : image.depth) {
    const double t = (farthest - depth) / std::max(1e-6f, farthest - nearest);
    picture.pixels.push_back(depth == 0 ? kWhite : heat_colour(t));
  }
  return picture;
}

SheetPicture segment_picture(const RobotEpisode& episode, const RgbdImage& image, std::string label) {
  // In the order of ScenePart.
  static constexpr Colour kParts[] = {{200, 200, 200}, {0, 114, 178}, {86, 180, 233},
                                      {230, 159, 0},   {213, 94, 0},  {204, 121, 167},
                                      {0, 158, 115},   {120, 94, 60}, {240, 228, 66}};
  SheetPicture picture{std::move(label), image.height, image.width, {}};
  for (const std::int16_t shape : image.segment) {
    if (shape < 0) {
      picture.pixels.push_back(kWhite);
    } else {
      picture.pixels.push_back(
          kParts[static_cast<std::size_t>(episode.shapes[static_cast<std::size_t>(shape)].part)]);
    }
  }
  return picture;
}

std::string title_of(const RobotEpisode& episode, const std::string& name) {
  return fmt::format("{}: {}{}", name, describe_robot_measure(episode.task, episode.measure),
                     episode.success ? "" : " (no success)");
}

void run_show(const ShowCommand& command) {
  command.run.apply();
  check(command.columns >= 1 && command.columns <= 100, "--columns: expected 1 to 100, got {}",
        command.columns);
  check(command.every >= 1, "--every: expected a number from 1, got {}", command.every);
  check_frame_size(command.size);
  check(command.tile >= 96 && command.tile <= 1024, "--tile: expected 96 to 1024, got {}", command.tile);
  const RobotIndex index = read_robot_index(command.data);
  const RobotEntry& entry = find_robot_entry(index, command.episode);
  const RobotEpisode episode = read_robot_entry(command.data, entry);
  const std::string name = robot_entry_name(entry), stem = command.out.empty() ? name : command.out;
  RenderOptions options;
  options.width = options.height = command.size;
  std::vector<RgbdImage> images(static_cast<std::size_t>(episode.frames));
  for_runs(episode.frames, 1, [&](std::int64_t frame, std::int64_t) {
    images[static_cast<std::size_t>(frame)] =
        render_robot(episode, static_cast<int>(frame), command.camera, options);
  });

  ContactSheet sheet{.title = title_of(episode, name), .pictures = {}, .caption = {}, .tile = command.tile};
  const auto time = [](int frame) { return fmt::format("{:.1f} s", frame * kRobotFrameSeconds); };
  for (int frame = 0; frame < episode.frames; frame += command.every) {
    if (sheet.pictures.empty() || static_cast<int>(sheet.pictures.back().size()) == command.columns)
      sheet.pictures.emplace_back();
    sheet.pictures.back().push_back(colour_picture(images[static_cast<std::size_t>(frame)], time(frame)));
  }
  // One time step with everything that is known about it.
  const int middle = episode.frames / 2;
  const RgbdImage& seen = images[static_cast<std::size_t>(middle)];
  std::vector<SheetPicture> moment;
  for (int camera = 0; camera < static_cast<int>(episode.cameras.size()); ++camera) {
    if (static_cast<int>(moment.size()) + 2 >= std::max(command.columns, 3)) break;
    moment.push_back(
        colour_picture(render_robot(episode, middle, camera, options), fmt::format("camera {}", camera)));
  }
  moment.push_back(depth_picture(seen, "depth"));
  moment.push_back(segment_picture(episode, seen, "parts"));
  sheet.pictures.push_back(std::move(moment));
  sheet.caption =
      fmt::format("Above: camera {}. Below: what is known at {}; depth is bright where it is near.",
                  command.camera, time(middle));
  write_contact_sheet(sheet, provenance(), stem + "-sheet.png");

  constexpr double kSecondsShown = .25;  // twice as fast as it happened
  std::vector<std::vector<std::uint8_t>> frames;
  for (RgbdImage& image : images) frames.push_back(std::move(image.colour));
  write_file(stem + ".png", encode_png_animation(frames, command.size, command.size, kSecondsShown));

  if (command.run.json) {
    const nlohmann::ordered_json json = {{"episode", name},
                                         {"task", word_of(episode.task)},
                                         {"success", episode.success},
                                         {"measure", episode.measure},
                                         {"sheet", stem + "-sheet.png"},
                                         {"animation", stem + ".png"}};
    fmt::print("{}\n", json.dump());
  } else if (command.run.prints_text()) {
    Listing listing;
    listing.add("episode", title_of(episode, name));
    listing.add("sheet", stem + "-sheet.png");
    listing.add("animation", stem + ".png");
    listing.print();
  }
}

}  // namespace

void add_show_command(CLI::App& app) {
  CLI::App* show = app.add_subcommand("show", "Pictures of data");
  show->require_subcommand(1);
  CLI::App* sub =
      show->add_subcommand("robot", "An episode of the robot as a contact sheet and an animation");
  const auto command = std::make_shared<ShowCommand>();
  sub->add_option("data", command->data, "Folder written by 'topomask simulate robot'")
      ->type_name("DIR")
      ->required();
  sub->add_option("--episode", command->episode, "Number in the index, or a name such as sweep-000003")
      ->type_name("E")
      ->capture_default_str();
  sub->add_option("--camera", command->camera, "Number of the camera to show")->capture_default_str();
  sub->add_option("--size", command->size, "Width and height of a rendered frame in pixels")
      ->capture_default_str();
  sub->add_option("--every", command->every, "Put every N-th frame on the sheet")->capture_default_str();
  sub->add_option("--columns", command->columns, "Pictures in a row of the sheet")->capture_default_str();
  sub->add_option("--tile", command->tile, "Width of a picture on the sheet, in units of two pixels")
      ->capture_default_str();
  sub->add_option("--out", command->out,
                  "Writes STEM-sheet.png and STEM.png, an animation (default: the episode's name)")
      ->type_name("STEM");
  add_output_options(*sub, command->run);
  sub->footer(
      "The animation is an APNG, which browsers play.\n"
      "Example:\n"
      "  topomask show robot robot --episode sweep-000003 --out sweep");
  sub->callback([command] { run_show(*command); });
}

}  // namespace topomask::cli
