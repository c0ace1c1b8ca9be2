// Numbers with units, as messages, tables and plans show them: three digits and the largest unit not above
// the number, or the smallest unit.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>
#include <string>

namespace topomask {

struct Unit {
  double size;
  const char* name;
};

// The largest unit comes first.
inline std::string with_unit(double value, std::initializer_list<Unit> units) {
  constexpr double kRoundsUp = 0.9995;  // 999.6 MB are 1 GB
  const Unit* last = units.end() - 1;
  const Unit* unit = units.begin();
  while (unit != last && std::abs(value) < kRoundsUp * unit->size) ++unit;
  return fmt::format("{:.3g} {}", value / unit->size, unit->name);
}

inline std::string format_bytes(double bytes) {  // "1.5 GB"
  return with_unit(bytes, {{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}, {1, "B"}});
}

inline std::string format_seconds(double seconds) {  // "1.23 s", "4.5 ms", "6.7 us"
  return with_unit(seconds, {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}});
}

inline std::string format_rate(double per_second) {  // "12.3 M/s"
  return with_unit(per_second, {{1e9, "G/s"}, {1e6, "M/s"}, {1e3, "k/s"}, {1, "/s"}});
}

}  // namespace topomask
