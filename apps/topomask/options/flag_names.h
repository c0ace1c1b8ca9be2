// Messages of the library name its arguments; here they name the flags that set them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace topomask::cli {

std::string flag_of(std::string_view argument);  // num_walks -> --num-walks

// "walks: p_halt must be ..." -> "--p-halt must be ...", where the command was given that flag; else the
// message as it is.
std::string with_flag_name(const CLI::App& command, const std::string& message);

}  // namespace topomask::cli
