// Compressed bytes made on the spot.
#pragma once

#include <lzma.h>
#include <zlib.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace topomask::testing {

inline std::string gzip(std::string_view content) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

inline std::string xz(std::string_view content) {
  std::string packed(lzma_stream_buffer_bound(content.size()), '\0');
  std::size_t size = 0;
  lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const std::uint8_t*>(content.data()),
                          content.size(), reinterpret_cast<std::uint8_t*>(packed.data()), &size,
                          packed.size());
  packed.resize(size);
  return packed;
}

// A zip archive of one deflated entry (APPNOTE.TXT 4.3.7, 4.3.12 and 4.3.16).
inline std::string zip_of(std::string_view name, std::string_view content) {
  // The gzip stream without its header of 10 and its trailer of 8 bytes is the deflated content.
  const std::string gz = gzip(content), packed = gz.substr(10, gz.size() - 18);
  const auto number = [](std::uint32_t value, int bytes) {
    std::string text;
    for (int k = 0; k < bytes; ++k) text += static_cast<char>(value >> 8 * k & 0xff);
    return text;
  };
  const auto size = [](std::string_view text) { return static_cast<std::uint32_t>(text.size()); };
  const auto checksum = static_cast<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size())));
  // Version, flags, method, time and date, checksum, sizes, lengths of the name and of extra fields.
  const std::string entry = number(20, 2) + number(0, 2) + number(8, 2) + number(0, 2) + number(33, 2) +
                            number(checksum, 4) + number(size(packed), 4) + number(size(content), 4) +
                            number(size(name), 2) + number(0, 2);
  std::string archive = "PK\3\4" + entry;
  archive.append(name).append(packed);
  const std::uint32_t directory = size(archive);
  archive += "PK\1\2" + number(20, 2) + entry + number(0, 2) + number(0, 2) + number(0, 2) + number(0, 4) +
             number(0, 4);
  archive += name;
  const std::uint32_t end = size(archive);
  return archive + "PK\5\6" + number(0, 2) + number(0, 2) + number(1, 2) + number(1, 2) +
         number(end - directory, 4) + number(directory, 4) + number(0, 2);
}

}  // namespace topomask::testing
