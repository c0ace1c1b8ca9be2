#include "table.h"

#include <fmt/format.h>

#include <algorithm>

namespace topomask::cli {
namespace {

// Terminal columns of UTF-8 text, for the few non-ASCII letters that tables use (continuation bytes have
// none).
std::size_t display_width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string aligned_row(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths) {
  std::string line;
  for (std::size_t column = 0; column < cells.size(); ++column) {
    const std::string padding(widths[column] - display_width(cells[column]), ' ');
    if (column > 0) line += "  ";
    line += column == 0 ? cells[column] + padding : padding + cells[column];
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::string Table::to_string() const {
  std::vector<std::size_t> widths;
  for (const std::string& name : header_) widths.push_back(display_width(name));
  for (const std::vector<std::string>& row : rows_) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], display_width(row[column]));
    }
  }
  std::string text = aligned_row(header_, widths);
  std::vector<std::string> rule;
  for (const std::size_t width : widths) rule.emplace_back(width, '-');
  text += aligned_row(rule, widths);
  for (const std::vector<std::string>& row : rows_) text += aligned_row(row, widths);
  return text;
}

void Table::print() const {
  fmt::print("{}", to_string());
}

void Listing::print() const {
  std::size_t width = 0;
  for (const auto& line : lines_) width = std::max(width, display_width(line.first));
  for (const auto& [name, value] : lines_) {
    fmt::print("{}{}  {}\n", name, std::string(width - display_width(name), ' '), value);
  }
}

std::string format_count(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  const std::ptrdiff_t first = digits.starts_with('-') ? 1 : 0;
  for (auto place = static_cast<std::ptrdiff_t>(digits.size()) - 3; place > first; place -= 3) {
    digits.insert(static_cast<std::size_t>(place), 1, ',');
  }
  return digits;
}

}  // namespace topomask::cli
