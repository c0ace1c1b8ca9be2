#include "options/setting_options.h"

#include <fmt/format.h>

#include <cctype>
#include <cstdlib>

namespace topomask::cli {

void add_setting_options(CLI::App& command, const Settings& settings,
                         const std::shared_ptr<SettingValues>& given, const std::set<std::string>& but) {
  for (const Setting& setting : settings.all()) {
    if (but.contains(setting.key)) continue;
    const std::string key = setting.key;
    std::string group = setting.section;
    group[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(group[0])));
    if (setting.type == Setting::Type::boolean) {
      const bool on = setting.get() == "true";
      command
          .add_flag_callback(
              "--" + key, [given, key] { given->emplace_back(key, "true"); }, setting.help)
          ->group(on ? "" : group);  // help lists only the flag that changes the default
      command
          .add_flag_callback(
              "--no-" + key, [given, key] { given->emplace_back(key, "false"); }, setting.help_off)
          ->group(on ? group : "");
      continue;
    }
    command
        .add_option_function<std::string>(
            "--" + key, [given, key](const std::string& text) { given->emplace_back(key, text); },
            setting.help)
        ->type_name(setting.type_name)
        ->default_str(setting.get())
        ->group(group);
  }
}

VitSettings default_settings(bool video) {
  return video ? VitSettings::video() : VitSettings();
}

std::set<std::string> keys_of_clips(const Settings& settings) {
  std::set<std::string> keys;
  for (const Setting& setting : settings.all()) {
    if (setting.section == kVideoSection) keys.insert(setting.key);
  }
  return keys;
}

void add_time_limit(CLI::App& command, double& seconds) {
  const auto is_duration = [](const std::string& text) {
    // A NaN is not 0 or more.
    return std::strtod(text.c_str(), nullptr) >= 0 ? ""
                                                   : fmt::format("expected 0 seconds or more, got {}", text);
  };
  command.add_option("--time-limit", seconds, "Save and stop after this many seconds; 0: never")
      ->check(is_duration)
      ->capture_default_str();
}

std::string not_empty(const std::string& folder) {
  return folder.empty() ? "expected a folder, got nothing" : "";
}

}  // namespace topomask::cli
