#include "core/numbers.h"

#include <charconv>
#include <cmath>
#include <type_traits>

#include "core/check.h"

namespace topomask {

namespace {

template <class Value>
Value parse_one(std::string_view text, std::string_view what, const char* kind) {
  std::string_view digits = text;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  Value value{};
  const auto [stop, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  bool good = status == std::errc() && stop == digits.data() + digits.size();
  if constexpr (std::is_floating_point_v<Value>) good = good && std::isfinite(value);
  check(good, "{}: expected a {}, got '{}'", what, kind, text);
  return value;
}

template <class Value>
std::vector<Value> parse_list(std::string_view list, std::string_view what, const char* kind) {
  std::vector<Value> values;
  while (true) {
    const std::size_t comma = list.find(',');
    values.push_back(parse_one<Value>(list.substr(0, comma), what, kind));
    if (comma == std::string_view::npos) return values;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

std::int64_t parse_integer(std::string_view text, std::string_view what) {
  return parse_one<std::int64_t>(text, what, "whole number");
}

std::uint64_t parse_seed(std::string_view text, std::string_view what) {
  return parse_one<std::uint64_t>(text, what, "whole number between 0 and 2^64 - 1");
}

double parse_number(std::string_view text, std::string_view what) {
  return parse_one<double>(text, what, "number");
}

std::vector<std::int64_t> parse_integers(std::string_view list, std::string_view what) {
  return parse_list<std::int64_t>(list, what, "whole number");
}

std::vector<std::int64_t> parse_extent(std::string_view text) {
  constexpr std::size_t kMostSizes = 3;
  std::vector<std::int64_t> extent;
  for (const char *next = text.data(), *end = next + text.size();; ++next) {
    std::int64_t size = 0;
    const auto [stop, status] = std::from_chars(next, end, size);
    if (status != std::errc() || size < 1 || extent.size() == kMostSizes) return {};
    extent.push_back(size);
    if (stop == end) return extent;
    if (*stop != 'x' && *stop != ',') return {};
    next = stop;
  }
}

std::vector<double> parse_numbers(std::string_view list, std::string_view what) {
  return parse_list<double>(list, what, "number");
}

}  // namespace topomask
