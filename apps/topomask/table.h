// Readable output: aligned tables and lists of "name  value".
#pragma once

#include <string>
#include <vector>

#include "core/units.h"

namespace topomask::cli {

// Columns are as wide as their widest cell; the first is aligned to the left, the others to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}
  void add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string to_string() const;
  void print() const;  // to stdout

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

// "name   value" lines with the values in one column.
class Listing {
 public:
  void add(std::string name, std::string value) { lines_.emplace_back(std::move(name), std::move(value)); }
  void print() const;

 private:
  std::vector<std::pair<std::string, std::string>> lines_;
};

std::string format_count(double value);  // 1234567 -> "1,234,567"

}  // namespace topomask::cli
