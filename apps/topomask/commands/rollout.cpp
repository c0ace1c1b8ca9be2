// `topomask rollout`: what a trained particle model predicts of an episode, beside what happened.
#include <fmt/format.h>

#include <ATen/core/Tensor.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "core/check.h"
#include "core/suggest.h"
#include "draw/rollout_tensors.h"
#include "io/files.h"
#include "options/options.h"
#include "provenance.h"
#include "table.h"
#include "topomask/particle_runs.h"

namespace topomask::cli {
namespace {

struct RolloutCommand {
  RunOptions run;
  std::string checkpoint, episode, data, device, out;
  std::int64_t first = 0, steps = 0, camera = 0;
  double tile = 128;
};

// By its name or its place.
std::int64_t find_episode(const ParticleData& data, const std::string& episode) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < data.episodes(); ++i) {
    names.push_back(data.frames().name(i));
    if (names.back() == episode || std::to_string(i) == episode) return i;
  }
  fail("rollout: no episode is called '{}', expected 0 to {} or a name such as {}{}", episode,
       names.size() - 1, names.front(), did_you_mean(episode, names));
}

void run_rollout(const RolloutCommand& command) {
  command.run.apply();
  check(command.tile >= 96 && command.tile <= 1024, "--tile: expected 96 to 1024, got {}", command.tile);
  TrainedParticles model(command.checkpoint, {command.data, command.device, 0, 0});
  const std::int64_t episode = find_episode(model.data(), command.episode);
  const std::int64_t frames = model.data().frames().frames(episode);
  check(command.first >= 0 && command.first + kObservedFrames < frames,
        "--first: expected 0 to {}, so that a frame is left to predict, got {}", frames - kObservedFrames - 1,
        command.first);
  check(command.steps >= 0, "--steps: expected 0 or more, got {}", command.steps);
  const std::int64_t longest = frames - kObservedFrames - command.first;
  const std::int64_t steps = command.steps > 0 ? command.steps : longest;
  check(steps <= longest, "--steps: {} frames are left to predict after frame {} of {}, got {}", longest,
        command.first + 1, frames, steps);
  const std::int64_t cameras = model.data().frames().cameras();
  check(command.camera >= 0 && command.camera < cameras, "--camera: expected 0 to {}, got {}", cameras - 1,
        command.camera);
  const RolloutPictures pictures = model.pictures({episode, command.first}, steps);

  const std::string name = model.data().frames().name(episode);
  const std::string stem = command.out.empty() ? "rollout-" + name : command.out;
  const RolloutFrames shown = rollout_frames(pictures.truth, pictures.predicted);
  RolloutSheetOptions sheet;
  sheet.title = fmt::format("{}: predicted from frames {} and {}", name, command.first, command.first + 1);
  sheet.cameras = {static_cast<int>(command.camera)};
  sheet.step_seconds = kRobotFrameSeconds;
  sheet.tile = command.tile;
  write_contact_sheet(rollout_sheet(shown, sheet), provenance(), stem + "-sheet.png");
  write_file(stem + ".png", rollout_animation(shown));
  if (command.run.json) {
    const nlohmann::ordered_json json = {{"episode", name},
                                         {"first", command.first},
                                         {"steps", steps},
                                         {"sheet", stem + "-sheet.png"},
                                         {"animation", stem + ".png"}};
    fmt::print("{}\n", json.dump());
  } else if (command.run.prints_text()) {
    Listing listing;
    listing.add("episode", fmt::format("{}, {} steps after frame {}", name, steps, command.first + 1));
    listing.add("sheet", stem + "-sheet.png");
    listing.add("animation", stem + ".png");
    listing.print();
  }
}

}  // namespace

void add_rollout_command(CLI::App& app) {
  CLI::App* sub =
      app.add_subcommand("rollout", "Draw what a particle model predicts of an episode, beside the truth");
  const auto command = std::make_shared<RolloutCommand>();
  sub->add_option("checkpoint", command->checkpoint,
                  "last.safetensors or best.safetensors of 'train particles'")
      ->type_name("CHECKPOINT")
      ->required();
  sub->add_option("episode", command->episode, "Number in the data set, or a name such as sweep-000003")
      ->type_name("EPISODE")
      ->required();
  sub->add_option("--data", command->data, "Folder of episodes (default: the run's)")->type_name("DIR");
  sub->add_option("--first", command->first, "First of the two frames that the model sees")
      ->capture_default_str();
  sub->add_option("--steps", command->steps, "Frames to predict; 0: to the end of the episode")
      ->capture_default_str();
  sub->add_option("--camera", command->camera, "Number of the camera shown on the sheet")
      ->capture_default_str();
  sub->add_option("--tile", command->tile, "Width of a picture on the sheet, in units of two pixels")
      ->capture_default_str();
  sub->add_option("--device", command->device, "Device: cpu, cuda or cuda:N (default: as in training)");
  sub->add_option("--out", command->out,
                  "Writes STEM-sheet.png and STEM.png, an animation (default: rollout-EPISODE)")
      ->type_name("STEM");
  add_output_options(*sub, command->run);
  sub->footer(
      "The animation is an APNG, which browsers play: the truth, the prediction and their difference, all "
      "cameras.\n"
      "Example:\n"
      "  topomask rollout runs/grf/best.safetensors sweep-000003 --first 4 --out sweep");
  sub->callback([command] { run_rollout(*command); });
}

}  // namespace topomask::cli
