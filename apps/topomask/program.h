// topomask, the command line: parses, runs one subcommand, and turns every failure into one line on stderr.
#pragma once

namespace topomask::cli {

// Exit statuses.
inline constexpr int kInternalFailure = 1, kBadInput = 2, kInterrupted = 130;

// Writes out what was printed; throws where it went nowhere, which is an internal failure.
void flush_output();

// The body of main(), separate so that a test can become the program without loading torch again. Returns the
// exit status: 0 success, 1 an internal failure, 2 a mistake in the input, 130 interrupted.
int run_program(int argc, char** argv);

}  // namespace topomask::cli
