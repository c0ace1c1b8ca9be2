// Lines, fields and numbers of text files, the same in every locale, with the pieces of error messages.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace topomask {

// `text` in single quotes for a message: shortened if long, unprintable bytes as \xNN. A view, so that it
// costs nothing as the argument of a check that holds.
struct Quoted {
  std::string_view text;
  std::string to_string() const;
};
inline Quoted quoted(std::string_view text) {
  return {text};
}

// Throws, naming the line, if the content holds a control character that no text file has.
void check_text(std::string_view content, const std::string& name);

// The content without a UTF-8 byte order mark.
std::string_view without_byte_order_mark(std::string_view content);

constexpr bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

std::string lower_case(std::string_view text);  // of ASCII letters
std::string_view trimmed(std::string_view text);

// Walks over the lines of a text; `\n` and `\r\n` both end one.
class LineReader {
 public:
  explicit LineReader(std::string_view content) : rest_(content) {}

  // The next line without blanks at either end; false at the end of the text.
  bool next(std::string_view& line);

  std::size_t line_number() const { return line_number_; }  // of the line last returned, from 1
  std::string_view rest() const { return rest_; }           // what follows the line last returned

 private:
  std::string_view rest_;
  std::size_t line_number_ = 0;
};

// Walks over blank-separated words of a text, across lines.
class WordReader {
 public:
  explicit WordReader(std::string_view content, std::size_t line_number = 1)
      : rest_(content), line_number_(line_number) {}

  bool next(std::string_view& word);  // false at the end of the text

  std::size_t line_number() const { return line_number_; }

 private:
  std::string_view rest_;
  std::size_t line_number_;
};

// True for lines that start with '#', '%' or '//'.
bool is_comment(std::string_view line);

// How the fields of a table are separated: a comma or a semicolon if the line has one, else ' ' for any
// blanks.
char separator_of(std::string_view line);

// Splits a line into fields without the blanks around them; a field in double quotes may hold the separator.
// False if a quote is not closed or something follows it.
bool split_fields(std::string_view line, char separator, std::vector<std::string_view>& fields);

// Whether the word is written as an integer: digits with an optional sign.
bool is_integer(std::string_view word);

// The value of a whole word, or nothing if it is not such a number (or does not fit). Numbers may be nan or
// inf.
std::optional<std::int64_t> parse_integer(std::string_view word);
std::optional<double> parse_number(std::string_view word);

// An edge weight: throws, naming file and line, unless the word is a number that is finite as a float.
float parse_weight(std::string_view word, const std::string& name, std::size_t line_number);

}  // namespace topomask

template <>
struct fmt::formatter<topomask::Quoted> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const topomask::Quoted& text, Context& context) const {
    return fmt::formatter<std::string>::format(text.to_string(), context);
  }
};
