// Where the numbers of a picture come from.
#pragma once

#include <c10/core/Device.h>

#include "draw/picture.h"

namespace topomask::cli {

// The arguments of the program but --out, --json and --quiet, for the captions of its pictures.
void remember_command(int argc, const char* const* argv);

// The command as one would type it; the GPU where one was measured, processor, threads and version.
Provenance provenance(c10::Device measured = c10::kCPU);

}  // namespace topomask::cli
