// Where the numbers of a picture come from.
#pragma once

#include "draw/picture.h"

namespace topomask::cli {

// The arguments of the program, for the captions of its pictures.
void remember_command(int argc, const char* const* argv);

// The command as one would type it; processor, threads and version.
Provenance provenance();

}  // namespace topomask::cli
