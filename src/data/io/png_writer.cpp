#include "data/io/png_writer.h"

#include <zlib.h>

#include <cmath>
#include <cstdlib>

#include "core/check.h"

namespace topomask {
namespace {

// PNG is big-endian.
void append_number(std::string& text, std::uint32_t value, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 0xff);
}

void append_chunk(std::string& file, std::string_view type, std::string_view data) {
  append_number(file, static_cast<std::uint32_t>(data.size()), 4);
  const std::size_t begin = file.size();
  file.append(type).append(data);
  const uLong checksum =
      crc32(0, reinterpret_cast<const Bytef*>(file.data() + begin), static_cast<uInt>(4 + data.size()));
  append_number(file, static_cast<std::uint32_t>(checksum), 4);
}

struct Layout {
  int width, height, channels, bytes;  // bytes of a channel
  std::size_t pixel() const { return static_cast<std::size_t>(channels) * static_cast<std::size_t>(bytes); }
  std::size_t row() const { return static_cast<std::size_t>(width) * pixel(); }
};

void check_layout(const Layout& layout) {
  check(layout.width > 0 && layout.height > 0, "encode_png: width and height must be at least 1, got {} x {}",
        layout.width, layout.height);
}

// The predictor that leaves the least sum of magnitudes, row by row, as the PNG specification (12.8) advises.
std::string filtered(const std::string& rows, const Layout& layout) {
  const std::size_t row = layout.row(), step = layout.pixel();
  std::string result, best(row, '\0'), candidate(row, '\0');
  for (int y = 0; y < layout.height; ++y) {
    const auto* now = reinterpret_cast<const std::uint8_t*>(rows.data()) + static_cast<std::size_t>(y) * row;
    const auto* above = y > 0 ? now - row : nullptr;
    long least = -1;
    char chosen = 0;
    for (char filter = 0; filter <= 4; ++filter) {
      long sum = 0;
      for (std::size_t i = 0; i < row; ++i) {
        const int a = i >= step ? now[i - step] : 0, b = above != nullptr ? above[i] : 0,
                  c = above != nullptr && i >= step ? above[i - step] : 0;
        int guess = 0;
        if (filter == 1) guess = a;
        if (filter == 2) guess = b;
        if (filter == 3) guess = (a + b) / 2;
        if (filter == 4) {  // Paeth
          const int p = a + b - c, pa = std::abs(p - a), pb = std::abs(p - b), pc = std::abs(p - c);
          guess = pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
        }
        const auto rest = static_cast<std::uint8_t>(now[i] - guess);
        candidate[i] = static_cast<char>(rest);
        sum += rest < 128 ? rest : 256 - rest;
      }
      if (least < 0 || sum < least) {
        least = sum;
        chosen = filter;
        best.swap(candidate);
      }
    }
    result += chosen;
    result += best;
  }
  return result;
}

std::string deflated(const std::string& raw) {
  uLongf size = compressBound(raw.size());
  std::string packed(size, '\0');
  const int status = compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                               reinterpret_cast<const Bytef*>(raw.data()), raw.size(), Z_BEST_COMPRESSION);
  check(status == Z_OK, "encode_png: zlib cannot compress {} bytes", raw.size());
  packed.resize(size);
  return packed;
}

std::string beginning(const Layout& layout) {
  constexpr int kGrey = 0, kColour = 2;
  std::string file("\x89PNG\r\n\x1A\n"), header;
  append_number(header, static_cast<std::uint32_t>(layout.width), 4);
  append_number(header, static_cast<std::uint32_t>(layout.height), 4);
  append_number(header, static_cast<std::uint32_t>(8 * layout.bytes), 1);
  append_number(header, layout.channels == 3 ? kColour : kGrey, 1);
  append_number(header, 0, 3);  // compression, filter, no interlacing
  append_chunk(file, "IHDR", header);
  return file;
}

std::string as_rows(const std::uint8_t* pixels, const Layout& layout) {
  return std::string(reinterpret_cast<const char*>(pixels),
                     layout.row() * static_cast<std::size_t>(layout.height));
}

std::string still(const std::string& rows, const Layout& layout) {
  std::string file = beginning(layout);
  append_chunk(file, "IDAT", deflated(filtered(rows, layout)));
  append_chunk(file, "IEND", "");
  return file;
}

}  // namespace

std::string encode_png_rgb(const std::uint8_t* pixels, int width, int height) {
  const Layout layout{width, height, 3, 1};
  check_layout(layout);
  return still(as_rows(pixels, layout), layout);
}

std::string encode_png_grey16(const std::uint16_t* pixels, int width, int height) {
  const Layout layout{width, height, 1, 2};
  check_layout(layout);
  std::string rows;
  const std::size_t count = static_cast<std::size_t>(width) * static_cast<std::size_t>(height);
  for (std::size_t i = 0; i < count; ++i) append_number(rows, pixels[i], 2);
  return still(rows, layout);
}

// APNG: https://wiki.mozilla.org/APNG_Specification
std::string encode_png_animation(const std::vector<std::vector<std::uint8_t>>& frames, int width, int height,
                                 double seconds) {
  const Layout layout{width, height, 3, 1};
  check_layout(layout);
  check(!frames.empty(), "encode_png_animation: expected at least one frame");
  check(seconds > 0 && seconds <= 65, "encode_png_animation: seconds must be above 0 and at most 65, got {}",
        seconds);
  std::string file = beginning(layout), control;
  append_number(control, static_cast<std::uint32_t>(frames.size()), 4);
  append_number(control, 0, 4);  // for ever
  append_chunk(file, "acTL", control);
  std::uint32_t sequence = 0;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    check(frames[i].size() == layout.row() * static_cast<std::size_t>(height),
          "encode_png_animation: expected {} bytes in frame {}, got {}",
          layout.row() * static_cast<std::size_t>(height), i, frames[i].size());
    std::string frame;
    append_number(frame, sequence++, 4);
    append_number(frame, static_cast<std::uint32_t>(width), 4);
    append_number(frame, static_cast<std::uint32_t>(height), 4);
    append_number(frame, 0, 4);  // left
    append_number(frame, 0, 4);  // top
    append_number(frame, static_cast<std::uint32_t>(std::lround(1000 * seconds)), 2);
    append_number(frame, 1000, 2);
    append_number(frame, 0, 2);  // leave the frame as it is, then replace it
    append_chunk(file, "fcTL", frame);
    const std::string packed = deflated(filtered(as_rows(frames[i].data(), layout), layout));
    if (i == 0) {
      append_chunk(file, "IDAT", packed);
    } else {
      std::string data;
      append_number(data, sequence++, 4);
      append_chunk(file, "fdAT", data + packed);
    }
  }
  append_chunk(file, "IEND", "");
  return file;
}

}  // namespace topomask
