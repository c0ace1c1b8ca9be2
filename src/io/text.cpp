#include "io/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/check.h"

namespace topomask {

std::string Quoted::to_string() const {
  constexpr std::size_t kLongest = 40;
  std::string result = "'";
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  if (text.size() > kLongest) result += "...";
  return result + "'";
}

void check_text(std::string_view content, const std::string& name) {
  const auto is_control = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 && c != '\n' && !is_blank(c);
  };
  const auto found = std::find_if(content.begin(), content.end(), is_control);
  if (found == content.end()) return;
  fail("{}, line {}: expected text, got the byte 0x{:02x} of a binary file", name,
       1 + std::count(content.begin(), found, '\n'), static_cast<unsigned char>(*found));
}

std::string_view without_byte_order_mark(std::string_view content) {
  if (content.starts_with("\xEF\xBB\xBF")) content.remove_prefix(3);
  return content;
}

std::string lower_case(std::string_view word) {
  std::string result(word);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  return result;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

bool LineReader::next(std::string_view& line) {
  if (rest_.empty()) return false;
  const std::size_t end = rest_.find('\n');
  line = trimmed(rest_.substr(0, end));
  rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
  ++line_number_;
  return true;
}

bool WordReader::next(std::string_view& word) {
  while (!rest_.empty() && (is_blank(rest_.front()) || rest_.front() == '\n')) {
    line_number_ += rest_.front() == '\n';
    rest_.remove_prefix(1);
  }
  std::size_t length = 0;
  while (length < rest_.size() && !is_blank(rest_[length]) && rest_[length] != '\n') ++length;
  word = rest_.substr(0, length);
  rest_.remove_prefix(length);
  return length > 0;
}

bool is_comment(std::string_view line) {
  return line.starts_with('#') || line.starts_with('%') || line.starts_with("//");
}

char separator_of(std::string_view line) {
  if (line.find(',') != std::string_view::npos) return ',';
  if (line.find(';') != std::string_view::npos) return ';';
  return ' ';
}

bool split_fields(std::string_view line, char separator, std::vector<std::string_view>& fields) {
  fields.clear();
  const auto ends_field = [separator](char c) { return separator == ' ' ? is_blank(c) : c == separator; };
  line = trimmed(line);
  while (true) {
    if (line.starts_with('"')) {
      const std::size_t quote = line.find('"', 1);
      if (quote == std::string_view::npos) return false;
      fields.push_back(line.substr(1, quote - 1));
      const bool blank_follows = quote + 1 < line.size() && is_blank(line[quote + 1]);
      line = trimmed(line.substr(quote + 1));
      if (line.empty()) return true;
      if (separator == ' ') {
        if (!blank_follows) return false;
      } else {
        if (line.front() != separator) return false;
        line.remove_prefix(1);
      }
    } else {
      std::size_t length = 0;
      while (length < line.size() && !ends_field(line[length])) ++length;
      fields.push_back(trimmed(line.substr(0, length)));
      if (length == line.size()) return true;
      line.remove_prefix(length + 1);
    }
    // Blanks were cut off the end of the line, so a field follows here; after a comma it may be empty.
    while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
  }
}

bool is_integer(std::string_view word) {
  if (word.starts_with('-') || word.starts_with('+')) word.remove_prefix(1);
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

namespace {

template <class T>
std::optional<T> parse_whole(std::string_view word) {
  if (word.starts_with('+') && !word.starts_with("+-"))
    word.remove_prefix(1);  // from_chars knows no plus sign
  T value{};
  const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (status != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view word) {
  return parse_whole<std::int64_t>(word);
}

std::optional<double> parse_number(std::string_view word) {
  return parse_whole<double>(word);
}

float parse_weight(std::string_view word, const std::string& name, std::size_t line_number) {
  const std::optional<double> value = parse_number(word);
  // A double too large for a float would be undefined to convert.
  const bool fits = value && std::abs(*value) <= double{std::numeric_limits<float>::max()};
  check(fits, "{}, line {}: expected a finite number as weight, got {}", name, line_number, quoted(word));
  return static_cast<float>(*value);
}

}  // namespace topomask
