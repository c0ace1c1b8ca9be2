// Which topomask this is.
#pragma once

#include <string>

namespace topomask::cli {

// "0.1.0 (96e3370)": with the commit where CMake found one, see cmake/Commit.cmake.
std::string program_version();

}  // namespace topomask::cli
