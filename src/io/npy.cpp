#include "topomask/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/check.h"
#include "io/npy_values.h"
#include "io/text.h"

namespace topomask {

namespace {

static_assert(std::endian::native == std::endian::little, "array elements are copied as they lie in memory");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kHeaderAlignment = 64;

// Bytes per element; 0 for a dtype that is not supported.
std::size_t item_size(std::string_view dtype) {
  if (dtype.size() < 3 || std::string_view("<|").find(dtype[0]) == std::string_view::npos) return 0;
  std::uint32_t width = 0;
  const auto [end, status] = std::from_chars(dtype.data() + 2, dtype.data() + dtype.size(), width);
  if (status != std::errc() || end != dtype.data() + dtype.size()) return 0;
  constexpr std::uint32_t kWidestString = 1u << 20;
  const bool power_of_two = width == 1 || width == 2 || width == 4 || width == 8;
  switch (dtype[1]) {
    case 'b':
      return width == 1 ? 1 : 0;
    case 'i':
    case 'u':
      return power_of_two ? width : 0;
    case 'f':
      return power_of_two && width > 1 ? width : 0;
    case 'S':
      return width <= kWidestString ? width : 0;
    case 'U':
      return width <= kWidestString ? std::size_t{4} * width : 0;
    default:
      return 0;
  }
}

// Parses the Python dictionary that a .npy header is, as far as NumPy writes it.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& name) : rest_(text), name_(name) {}

  NpyHeader parse() {
    NpyHeader header;
    bool has_dtype = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = parse_string();
      expect(':');
      if (key == "descr") {
        header.dtype = peek() == '\'' || peek() == '"' ? std::string(parse_string()) : skip_list();
        has_dtype = true;
      } else if (key == "fortran_order") {
        header.fortran_order = parse_bool();
        has_order = true;
      } else if (key == "shape") {
        header.shape = parse_shape();
        has_shape = true;
      } else {
        malformed();
      }
      if (!accept(',') && peek() != '}') malformed();
    }
    if (!has_dtype || !has_order || !has_shape) malformed();
    return header;
  }

 private:
  [[noreturn]] void malformed() const {
    fail("{}: expected a header with descr, fortran_order and shape, got {}", name_, quoted(rest_));
  }

  char peek() {
    rest_ = trimmed(rest_);
    return rest_.empty() ? '\0' : rest_.front();
  }

  bool accept(char c) {
    if (peek() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void expect(char c) {
    if (!accept(c)) malformed();
  }

  std::string_view parse_string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') malformed();
    const std::size_t end = rest_.find(quote, 1);
    if (end == std::string_view::npos) malformed();
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }

  bool parse_bool() {
    peek();
    for (const std::string_view word : {"True", "False"}) {
      if (rest_.starts_with(word)) {
        rest_.remove_prefix(word.size());
        return word == "True";
      }
    }
    malformed();
  }

  std::vector<std::int64_t> parse_shape() {
    constexpr std::size_t kMaxDimensions = 32;
    std::vector<std::int64_t> shape;
    expect('(');
    while (!accept(')')) {
      peek();
      std::int64_t extent = 0;
      const auto [end, status] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), extent);
      if (status != std::errc() || extent < 0 || shape.size() == kMaxDimensions) malformed();
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      shape.push_back(extent);
      if (!accept(',') && peek() != ')') malformed();
    }
    return shape;
  }

  // A structured dtype is a list of fields; it is only passed over, so that the message can name it.
  std::string skip_list() {
    if (peek() != '[') malformed();
    std::size_t depth = 0, length = 0;
    do {
      if (length == rest_.size()) malformed();
      depth += rest_[length] == '[';
      depth -= rest_[length] == ']';
      ++length;
    } while (depth > 0);
    const std::string text(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return text;
  }

  std::string_view rest_;
  const std::string& name_;
};

// Elements times bytes per element, or -1 if that is more than `most`.
std::int64_t checked_bytes(const std::vector<std::int64_t>& shape, std::size_t item, std::size_t most) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::size_t bytes = item;
  for (const std::int64_t extent : shape) {
    if (static_cast<std::uint64_t>(extent) > most / bytes) return -1;
    bytes *= static_cast<std::size_t>(extent);
  }
  return bytes <= most ? static_cast<std::int64_t>(bytes) : -1;
}

std::string transposed(std::string_view bytes, std::size_t rows, std::size_t columns, std::size_t item) {
  std::string result(bytes.size(), '\0');
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      std::memcpy(result.data() + (row * columns + column) * item,
                  bytes.data() + (column * rows + row) * item, item);
    }
  }
  return result;
}

template <class Stored, class Value>
std::vector<Value> copy_as(const NpyArray& array) {
  std::vector<Value> result(static_cast<std::size_t>(array.size()));
  const char* next = array.bytes.data();
  for (Value& value : result) {
    Stored stored;
    std::memcpy(&stored, next, sizeof stored);
    next += sizeof stored;
    value = static_cast<Value>(stored);
  }
  return result;
}

template <class Value>
std::vector<Value> copy_integers(const NpyArray& array, const std::string& name) {
  const std::string_view kind = std::string_view(array.dtype).substr(1);
  if (kind == "i8") return copy_as<std::int64_t, Value>(array);
  if (kind == "i4") return copy_as<std::int32_t, Value>(array);
  if (kind == "i2") return copy_as<std::int16_t, Value>(array);
  if (kind == "i1") return copy_as<std::int8_t, Value>(array);
  if (kind == "u8") return copy_as<std::uint64_t, Value>(array);
  if (kind == "u4") return copy_as<std::uint32_t, Value>(array);
  if (kind == "u2") return copy_as<std::uint16_t, Value>(array);
  if (kind == "u1" || kind == "b1") return copy_as<std::uint8_t, Value>(array);
  fail("{}: expected numbers, got dtype {}", name, quoted(array.dtype));
}

void append_utf8(std::string& text, std::uint32_t code) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80u | (code >> shift & 0x3Fu)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0u | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0u | code >> 12);
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0u | (code >> 18 & 0x07u));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace

std::int64_t NpyArray::size() const {
  // An empty array may declare any other extents: their product need not fit.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

bool is_supported_dtype(std::string_view dtype) {
  return item_size(dtype) > 0;
}

NpyHeader parse_npy_header(std::string_view content, const std::string& name) {
  constexpr std::size_t kVersionAt = 6, kLengthAt = 8;
  check(content.size() >= 10 && content.starts_with(kMagic), "{}: expected a .npy array, got {}", name,
        quoted(content.substr(0, 8)));
  const int version = content[kVersionAt];
  check(version >= 1 && version <= 3, "{}: expected .npy version 1, 2 or 3, got {}", name, version);
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  check(content.size() >= kLengthAt + length_bytes, "{}: the array is truncated in its header", name);
  std::uint32_t length = 0;
  std::memcpy(&length, content.data() + kLengthAt, length_bytes);
  const std::size_t begin = kLengthAt + length_bytes;
  check(length <= content.size() - begin, "{}: the array declares a header of {} bytes but holds {} in all",
        name, length, content.size());
  NpyHeader header = HeaderParser(content.substr(begin, length), name).parse();
  header.data_offset = begin + length;
  return header;
}

NpyArray parse_npy(std::string_view content, const std::string& name) {
  const NpyHeader header = parse_npy_header(content, name);
  const std::size_t item = item_size(header.dtype);
  check(item > 0, "{}: expected little-endian numbers, bools or strings, got dtype {}", name,
        quoted(header.dtype));
  const std::string_view data = content.substr(header.data_offset);
  const std::int64_t bytes = checked_bytes(header.shape, item, data.size());
  check(bytes == static_cast<std::int64_t>(data.size()),
        "{}: the shape ({}) of dtype {} does not match the {} bytes of data", name,
        fmt::join(header.shape, ", "), quoted(header.dtype), data.size());
  NpyArray array{header.dtype, header.shape, {}};
  const auto longer_than_one =
      std::count_if(array.shape.begin(), array.shape.end(), [](auto n) { return n > 1; });
  if (!header.fortran_order || longer_than_one < 2) {
    array.bytes = data;
  } else {
    check(array.shape.size() == 2, "{}: expected C order for an array of {} dimensions, got Fortran order",
          name, array.shape.size());
    array.bytes = transposed(data, static_cast<std::size_t>(array.shape[0]),
                             static_cast<std::size_t>(array.shape[1]), item);
  }
  return array;
}

std::string format_npy(const NpyArray& array) {
  const std::size_t item = item_size(array.dtype);
  check(item > 0 && checked_bytes(array.shape, item, array.bytes.size()) ==
                        static_cast<std::int64_t>(array.bytes.size()),
        "format_npy: shape ({}) of dtype {} does not match {} bytes", fmt::join(array.shape, ", "),
        quoted(array.dtype), array.bytes.size());
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", array.dtype,
                  fmt::join(array.shape, ", "), array.shape.size() == 1 ? "," : "");
  // Magic, version 1.0, two bytes of length; the data begins at a multiple of 64 bytes.
  constexpr std::size_t kFixedBytes = 10;
  const std::size_t unpadded = kFixedBytes + header.size() + 1;
  header.append((kHeaderAlignment - unpadded % kHeaderAlignment) % kHeaderAlignment, ' ');
  header += '\n';
  const auto length = static_cast<std::uint16_t>(header.size());
  std::string result(kMagic);
  result += '\x01';
  result += '\x00';
  result += static_cast<char>(length & 0xFF);
  result += static_cast<char>(length >> 8);
  return result + header + array.bytes;
}

std::vector<std::int64_t> integer_values(const NpyArray& array, const std::string& name) {
  check(array.dtype[1] != 'f', "{}: expected integers, got dtype {}", name, quoted(array.dtype));
  // A uint64 past 2^63 wraps to a negative number, which no caller accepts as an index.
  return copy_integers<std::int64_t>(array, name);
}

std::vector<double> finite_doubles(const NpyArray& array, const std::string& name) {
  const std::string_view kind = std::string_view(array.dtype).substr(1);
  if (kind != "f4" && kind != "f8") return copy_integers<double>(array, name);
  std::vector<double> values = kind == "f4" ? copy_as<float, double>(array) : copy_as<double, double>(array);
  for (std::size_t k = 0; k < values.size(); ++k) {
    check(std::abs(values[k]) <= double{std::numeric_limits<float>::max()},
          "{}: expected finite numbers, got {} at place {}", name, values[k], k);
  }
  return values;
}

std::vector<float> finite_values(const NpyArray& array, const std::string& name) {
  const std::vector<double> values = finite_doubles(array, name);
  return {values.begin(), values.end()};
}

std::vector<std::string> string_values(const NpyArray& array, const std::string& name) {
  const char kind = array.dtype[1];
  check(kind == 'U' || kind == 'S', "{}: expected strings, got dtype {}", name, quoted(array.dtype));
  const std::size_t item = item_size(array.dtype);
  std::vector<std::string> result(static_cast<std::size_t>(array.size()));
  const char* next = array.bytes.data();
  for (std::string& text : result) {
    if (kind == 'S') {
      text.assign(next, strnlen(next, item));
    } else {
      for (std::size_t k = 0; k < item; k += 4) {
        std::uint32_t code = 0;
        std::memcpy(&code, next + k, sizeof code);
        if (code == 0) break;  // zeros fill up a shorter string
        append_utf8(text, code);
      }
    }
    next += item;
  }
  return result;
}

}  // namespace topomask
