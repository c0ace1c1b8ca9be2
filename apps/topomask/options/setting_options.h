// The settings of a run as options of the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <set>
#include <string>

#include "train/settings.h"

namespace topomask::cli {

// --key for each setting except `but`. Values are collected, not applied: a file has to come first.
void add_setting_options(CLI::App& command, const Settings& settings,
                         const std::shared_ptr<SettingValues>& given, const std::set<std::string>& but = {});

// The defaults of a command for images, or for clips.
VitSettings default_settings(bool video);

// The keys that a model of images has no use for: for `but`, unless the command is for clips.
std::set<std::string> keys_of_clips(const Settings& settings);

// --time-limit, of training commands.
void add_time_limit(CLI::App& command, double& seconds);

// For CLI::Option::check: what is wrong with the name of a folder, or "".
std::string not_empty(const std::string& folder);

}  // namespace topomask::cli
