#include "options/mask_options.h"

#include <ATen/ops/tensor.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "options/flag_names.h"
#include "options/mask_parameters.h"
#include "topomask/graph_family.h"
#include "topomask/kernels.h"
#include "topomask/mask_catalogue.h"
#include "topomask/masks.h"

namespace topomask::cli {
namespace {

constexpr const char* kMaskGroup = "Mask";

// Settings that come from other options: --seed, --normalise, and the kernel or f.
bool is_said_elsewhere(std::string_view setting) {
  return setting == "seed" || setting == "normalise" || setting == "init";
}

// Numbers for every head fit on a command line; whole matrices come from a file.
bool fits_a_flag(const MaskParameter& parameter) {
  return std::count(parameter.shape.begin(), parameter.shape.end(), ',') <= 1 && parameter.name != "f" &&
         parameter.name != "alpha";
}

template <class Names>
std::vector<std::string_view> masks_with(std::string_view name, Names&& names_of) {
  std::vector<std::string_view> masks;
  for (const MaskInfo& info : mask_catalogue()) {
    if (!info.by_name) continue;
    for (const auto& known : names_of(info)) {
      if (known.name == name) masks.push_back(info.name);
    }
  }
  return masks;
}

// The masks that have a setting, grouped by what the catalogue says of it: its description, or its default.
using MaskGroups = std::vector<std::pair<std::string_view, std::vector<std::string_view>>>;

MaskGroups masks_by(std::string_view MaskSetting::*property, std::string_view name) {
  MaskGroups groups;
  for (const MaskInfo& info : mask_catalogue()) {
    if (!info.by_name) continue;
    for (const MaskSetting& setting : info.settings) {
      if (setting.name != name) continue;
      const auto same = std::find_if(groups.begin(), groups.end(),
                                     [&](const auto& group) { return group.first == setting.*property; });
      if (same == groups.end()) {
        groups.push_back({setting.*property, {info.name}});
      } else {
        same->second.push_back(info.name);
      }
    }
  }
  return groups;
}

// "toeplitz: ...; shortest-path: ...", and the default where the masks do not share one.
std::string describe_setting(std::string_view name) {
  std::string text, defaults;
  for (const auto& [description, masks] : masks_by(&MaskSetting::description, name))
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", fmt::join(masks, ", "), description);
  const MaskGroups by_default = masks_by(&MaskSetting::fallback, name);
  if (by_default.size() == 1) return text;
  for (const auto& [value, masks] : by_default)
    defaults += fmt::format("{}{} for {}", defaults.empty() ? "" : "; ", value, fmt::join(masks, ", "));
  return fmt::format("{} (default: {})", text, defaults);
}

const std::vector<MaskSetting>& settings_of(const MaskInfo& info) {
  return info.settings;
}
const std::vector<MaskParameter>& parameters_of(const MaskInfo& info) {
  return info.parameters;
}

// Throws where a flag was given that the mask does not have.
template <class Names>
void check_taken(const MaskInfo& info, std::string_view name, const std::string& flag, Names&& names_of) {
  for (const auto& known : names_of(info)) {
    if (known.name == name) return;
  }
  fail("{}: not an option of mask '{}', only of: {}", flag, info.name,
       fmt::join(masks_with(name, std::forward<Names>(names_of)), ", "));
}

// What follows path: or grid: in the graph's description.
std::string extent_of(const std::string& graph) {
  const std::optional<GraphFamily> family = graph_family(graph);
  check(family && (family->name == "grid" || family->name == "path"),
        "mask toeplitz needs a grid: expected --graph path:N or grid:HxW[xD], or --extent, got '{}'", graph);
  return fmt::format("{}", fmt::join(family->extent, "x"));
}

void check_flags(const MaskFlags& flags) {
  check(flags.global_tokens >= 0, "--global-tokens: expected 0 or more, got {}", flags.global_tokens);
  const MaskInfo& info = mask_info(flags.name);
  for (const auto& [setting, value] : flags.settings)
    check_taken(info, setting, setting == "init" ? flags.init_flag : flag_of(setting), settings_of);
  for (const auto& [parameter, value] : flags.parameters)
    check_taken(info, parameter, flag_of(parameter), parameters_of);
}

}  // namespace

MaskRequest MaskFlags::request(std::uint64_t seed, const std::optional<Graph>& loaded,
                               c10::Device device) const {
  const MaskInfo& info = mask_info(name);

  MaskRequest made;
  made.mask = name;
  made.dtype = at::kDouble;
  made.num_nodes = loaded ? loaded->num_nodes() : 0;
  made.device = device;
  made.settings = settings;
  const auto has_setting = [&](std::string_view wanted) {
    return std::any_of(info.settings.begin(), info.settings.end(),
                       [&](const MaskSetting& known) { return known.name == wanted; });
  };
  if (has_setting("seed")) made.settings["seed"] = std::to_string(seed);
  if (has_setting("normalise")) made.settings["normalise"] = word_of(graph.normalisation);
  if (has_setting("extent") && !settings.contains("extent")) made.settings["extent"] = extent_of(graph.spec);
  if (info.on_graph && loaded) made.graph = loaded;
  for (const auto& [parameter, list] : parameters) {
    const std::vector<double> numbers = parse_numbers(list, flag_of(parameter));
    const at::Tensor given = at::tensor(numbers, at::kDouble).to(device);
    made.parameters[parameter] = numbers.size() == 1 ? given.squeeze(0) : given;
  }
  MaskFile stored(in_parameters, device);
  for (const MaskParameter& parameter : info.parameters) {
    if (!in_parameters.empty())
      made.parameters[std::string(parameter.name)] = stored.take(std::string(parameter.name));
  }
  stored.check_all_taken();
  if (!in_parameters.empty() && !info.parameters.empty())
    made.heads = made.parameters.begin()->second.size(0);
  return made;
}

MaskPtr MaskFlags::make(std::uint64_t seed, c10::Device device) const {
  check_flags(*this);
  const MaskInfo& info = mask_info(name);
  const Graph loaded = graph.load_raw().to(device);
  const MaskRequest wanted = request(seed, loaded, device);
  check(name != "learned-features" || !in_parameters.empty(),
        "mask learned-features has no features but learned ones: expected --parameters FILE");

  if (const std::string advice = mask_advice(wanted); !advice.empty())
    fmt::print(stderr, "topomask: warning: {}\n", advice);
  MaskPtr mask = make_mask(wanted);
  if (const auto* toeplitz = dynamic_cast<const ToeplitzMask*>(mask.get()))
    check_grid(loaded, toeplitz->extent());
  if (!out_parameters.empty()) write_mask_parameters(out_parameters, info, *mask);
  return global_tokens == 0 ? mask : std::make_shared<GlobalTokensMask>(mask, global_tokens);
}

std::shared_ptr<const DistributedGrfMask> MaskFlags::make(std::uint64_t seed, const DistributedGraph& of,
                                                          WalkRoute route, c10::Device device) const {
  check_flags(*this);
  check(global_tokens == 0 && out_parameters.empty(), "--global-tokens and --out-parameters: not over ranks");
  const WalkMaskPlan plan = plan_walk_mask(request(seed, std::nullopt, c10::kCPU));
  DistributedGraph w = of.normalised(plan.normalisation);
  const at::Tensor f = plan.f.to(device);
  if (plan.per_head) return DistributedGrfMask::per_head(std::move(w), plan.features, f, route);
  return std::make_shared<const DistributedGrfMask>(std::move(w), plan.features, f, route);
}

void add_mask_options(CLI::App& command, MaskFlags& flags) {
  add_graph_options(command, flags.graph);
  std::vector<std::string_view> names;
  for (const MaskInfo& info : mask_catalogue()) {
    if (info.by_name) names.push_back(info.name);
  }
  command
      .add_option_function<std::string>(
          "--mask",
          [&flags, names](const std::string& word) {
            if (std::find(names.begin(), names.end(), word) == names.end())
              fail_unknown_word("--mask", word, names);
            flags.name = word;
          },
          "Name of the mask")
      ->type_name(fmt::format("{}", fmt::join(names, "|")))
      ->default_str(flags.name)
      ->group(kMaskGroup);

  // f or alpha at the start, in one of four ways.
  const auto add_init = [&](const std::string& flag, const std::string& prefix,
                            const std::string& description, const char* type) {
    command
        .add_option_function<std::string>(
            flag,
            [&flags, flag, prefix](const std::string& value) {
              check(flags.init_flag.empty(), "{} and {} both set f; give one", flag, flags.init_flag);
              flags.init_flag = flag;
              flags.settings["init"] = prefix + value;
            },
            description)
        ->type_name(type)
        ->group(kMaskGroup);
  };
  const std::string series = fmt::format("{}: ", fmt::join(masks_with("init", settings_of), ", "));
  add_init("--kernel", "",
           series + "node kernel that M starts as (default: " + NodeKernel().to_string() + ")", "SPEC");
  add_init("--modulation", "modulation:", series + "the same as --kernel modulation:f0,f1,...", "NUMBERS");
  add_init("--coefficients", "coefficients:", series + "the same as --kernel coefficients:alpha0,alpha1,...",
           "NUMBERS");
  add_init("--f", "", series + "the parameter itself: f0,f1,... for walks, alpha0,alpha1,... for the series",
           "NUMBERS");

  std::vector<std::string_view> seen;
  const auto is_new = [&](std::string_view name) {
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) return false;
    seen.push_back(name);
    return true;
  };
  for (const MaskInfo& info : mask_catalogue()) {
    if (!info.by_name) continue;
    for (const MaskSetting& setting : info.settings) {
      if (is_said_elsewhere(setting.name) || !is_new(setting.name)) continue;
      const std::string name(setting.name);
      const std::string flags_of =
          setting.name == "num_walks" ? "--walks,--num-walks" : flag_of(setting.name);
      CLI::Option* option =
          command
              .add_option_function<std::string>(
                  flags_of, [&flags, name](const std::string& value) { flags.settings[name] = value; },
                  describe_setting(setting.name))
              ->group(kMaskGroup);
      const bool one_default = masks_by(&MaskSetting::fallback, setting.name).size() == 1;
      if (one_default && !setting.fallback.empty()) option->default_str(std::string(setting.fallback));
    }
    for (const MaskParameter& parameter : info.parameters) {
      if (!fits_a_flag(parameter) || !is_new(parameter.name)) continue;
      const std::string name(parameter.name);
      command
          .add_option_function<std::string>(
              flag_of(parameter.name),
              [&flags, name](const std::string& value) { flags.parameters[name] = value; },
              fmt::format("{}: numbers {} (default: {})", info.name, parameter.shape, parameter.start))
          ->type_name("NUMBERS")
          ->group(kMaskGroup);
    }
  }
  const auto add = [&](const char* flag, auto& value, const char* description) {
    return command.add_option(flag, value, description)->group(kMaskGroup);
  };
  add("--parameters", flags.in_parameters,
      "Learned parameters of the mask (.safetensors): its state dict in the Python package, [heads, ...]. "
      "Walks "
      "are not in it: give the options that it was learned with")
      ->type_name("FILE");
  add("--out-parameters", flags.out_parameters,
      "Write the parameters (.safetensors), for mask.load_state_dict in Python")
      ->type_name("FILE");
  add("--global-tokens", flags.global_tokens,
      "Number of leading rows of q, k and v that are global tokens (CLS): they attend to all, and all attend "
      "to them")
      ->capture_default_str();
}

}  // namespace topomask::cli
