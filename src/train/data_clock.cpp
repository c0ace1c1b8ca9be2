#include "train/data_clock.h"

namespace topomask {

namespace {

constexpr std::size_t kMostIntervals = 256;  // then the host waits for the last of them

void record(c10::Event& event, c10::Device device) {
  event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

}  // namespace

void DataClock::start() {
  if (device_.is_cpu()) {
    started_ = std::chrono::steady_clock::now();
    return;
  }
  if (used_ == kMostIntervals) add_intervals();
  if (used_ == intervals_.size()) {
    constexpr auto kTimed = c10::EventFlag::BACKEND_DEFAULT;
    intervals_.push_back({c10::Event(device_.type(), kTimed), c10::Event(device_.type(), kTimed)});
  }
  record(intervals_[used_].start, device_);
}

void DataClock::stop() {
  if (device_.is_cpu()) {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
    return;
  }
  record(intervals_[used_++].stop, device_);
}

void DataClock::add_intervals() {
  for (std::size_t i = 0; i < used_; ++i) {
    intervals_[i].stop.synchronize();
    seconds_ += intervals_[i].start.elapsedTime(intervals_[i].stop) / 1000;
  }
  used_ = 0;
}

double DataClock::take_seconds() {
  add_intervals();
  const double taken = seconds_;
  seconds_ = 0;
  return taken;
}

}  // namespace topomask
