// Stopping long work from outside, as Ctrl-C in Python does.
//
// Long loops call poll_interruption() every few milliseconds, on any thread. To stop them, set a hook that
// throws. The hook runs on the thread that set it, at most 20 times per second; the other threads of a loop
// stop as soon as it has thrown. Without a hook nothing happens.
#pragma once

namespace topomask {

using InterruptionHook = void (*)();
void set_interruption_hook(InterruptionHook hook);

void poll_interruption();

// Inside a catch: throws what the hook threw, if it is the reason that a loop ended, else the exception at
// hand.
[[noreturn]] void rethrow_reason();

}  // namespace topomask
