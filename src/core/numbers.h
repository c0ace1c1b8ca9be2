// Numbers as users write them. Each function throws one sentence that begins with `what`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace topomask {

std::int64_t parse_integer(std::string_view text, std::string_view what);
std::uint64_t parse_seed(std::string_view text, std::string_view what);  // 0 to 2^64 - 1
double parse_number(std::string_view text, std::string_view what);       // finite, as those of lists
// "2,4,8"; at least one.
std::vector<std::int64_t> parse_integers(std::string_view list, std::string_view what);
std::vector<double> parse_numbers(std::string_view list, std::string_view what);
// "16x16", "5" or "4,4,3": 1 to 3 sizes of at least 1. Empty where the text is anything else.
std::vector<std::int64_t> parse_extent(std::string_view text);

}  // namespace topomask
