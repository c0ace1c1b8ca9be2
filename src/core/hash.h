// A 64-bit hash that detects data that was mixed up or damaged. It does not protect against forgery.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace topomask {

class Hash64 {
 public:
  void add(std::uint64_t word) {
    state_ = (state_ ^ word) * 0x9E3779B97F4A7C15ull;
    state_ ^= state_ >> 29;
  }
  void add(std::string_view text) {
    add(text.size());
    for (; text.size() >= sizeof(std::uint64_t); text.remove_prefix(sizeof(std::uint64_t)))
      add(word_of(text));
    if (!text.empty()) add(word_of(text));
  }

  // Mixed once more, so that the last words reach all bits.
  std::uint64_t value() const {
    std::uint64_t mixed = state_ * 0xBF58476D1CE4E5B9ull;
    mixed = (mixed ^ (mixed >> 32)) * 0x94D049BB133111EBull;
    return mixed ^ (mixed >> 31);
  }
  std::string hex() const { return fmt::format("{:016x}", value()); }

 private:
  static std::uint64_t word_of(std::string_view text) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data(), text.size() < sizeof(word) ? text.size() : sizeof(word));
    return word;
  }

  std::uint64_t state_ = 0x243F6A8885A308D3ull;  // digits of pi
};

}  // namespace topomask
