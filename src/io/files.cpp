#include "io/files.h"

#include <lzma.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>

#include "core/check.h"
#include "io/memory.h"
#include "io/text.h"

namespace topomask {

namespace {

constexpr std::size_t kChunk = std::size_t{1} << 20;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

std::string lower_case_extension(const std::filesystem::path& path) {
  return lower_case(path.extension().string());
}

std::string read_raw(const std::string& path, const ReadOptions& options) {
  const File file(std::fopen(path.c_str(), "rb"));
  check(file != nullptr, "cannot open '{}': {}", path, std::strerror(errno));
  const std::uint64_t limit = options.max_file_size != 0 ? options.max_file_size : available_memory();
  const auto check_size = [&](std::uint64_t size) {
    check(size <= limit, "'{}' is larger than {} bytes, {}", path, limit,
          options.max_file_size != 0 ? "which max_file_size allows" : "which is all the memory that is free");
  };
  std::string content;
  std::error_code unknown_size;
  const std::uintmax_t size = std::filesystem::file_size(path, unknown_size);
  if (!unknown_size) {
    check_size(size);
    content.reserve(size + kChunk);
  }
  while (true) {
    const std::size_t before = content.size();
    content.resize(before + kChunk);
    const std::size_t got = std::fread(content.data() + before, 1, kChunk, file.get());
    content.resize(before + got);
    check_size(content.size());
    if (got < kChunk) {
      check(std::ferror(file.get()) == 0, "cannot read '{}': {}", path, std::strerror(errno));
      return content;
    }
  }
}

// Appends what a decompressor put into `chunk`, unless the result would grow past the limit.
void append_output(std::string& result, const std::string& chunk, std::size_t unused, const std::string& path,
                   std::uint64_t limit) {
  result.append(chunk, 0, chunk.size() - unused);
  check(result.size() <= limit, "'{}' unpacks to more than {} bytes; a larger max_file_size allows it", path,
        limit);
}

std::string decompress_gzip(const std::string& packed, const std::string& path, std::uint64_t limit) {
  constexpr int kGzipOnly = 16;
  z_stream stream{};
  check(inflateInit2(&stream, MAX_WBITS + kGzipOnly) == Z_OK, "cannot decompress '{}': out of memory", path);
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, inflateEnd);
  std::string result, chunk(kChunk, '\0');
  std::size_t fed = 0;
  int status = Z_OK;
  while (true) {
    // zlib counts in 32 bits, so large files are fed piecewise.
    if (stream.avail_in == 0 && fed < packed.size()) {
      const std::size_t piece = std::min(packed.size() - fed, std::size_t{std::numeric_limits<uInt>::max()});
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + fed));
      stream.avail_in = static_cast<uInt>(piece);
      fed += piece;
    }
    if (status == Z_STREAM_END) {  // a gzip file is a sequence of members; zeros may pad the end
      while (stream.avail_in > 0 && *stream.next_in == 0) {
        ++stream.next_in;
        --stream.avail_in;
      }
      if (stream.avail_in == 0 && fed == packed.size()) return result;
      if (stream.avail_in == 0) continue;
      inflateReset(&stream);
    }
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    status = inflate(&stream, Z_NO_FLUSH);
    append_output(result, chunk, stream.avail_out, path, limit);
    check(status != Z_BUF_ERROR, "'{}' is truncated: its gzip stream ends after {} decompressed bytes", path,
          result.size());
    check(status == Z_OK || status == Z_STREAM_END, "'{}' is not valid gzip after {} decompressed bytes: {}",
          path, result.size(), stream.msg ? stream.msg : "bad data");
  }
}

std::string decompress_xz(const std::string& packed, const std::string& path, std::uint64_t limit) {
  // A forged header may ask for a huge dictionary.
  constexpr std::uint64_t kMemoryLimit = std::uint64_t{1} << 30;
  lzma_stream stream = LZMA_STREAM_INIT;
  check(lzma_stream_decoder(&stream, kMemoryLimit, LZMA_CONCATENATED) == LZMA_OK,
        "cannot decompress '{}': out of memory", path);
  const std::unique_ptr<lzma_stream, void (*)(lzma_stream*)> guard(&stream, lzma_end);
  stream.next_in = reinterpret_cast<const std::uint8_t*>(packed.data());
  stream.avail_in = packed.size();
  std::string result, chunk(kChunk, '\0');
  while (true) {
    stream.next_out = reinterpret_cast<std::uint8_t*>(chunk.data());
    stream.avail_out = chunk.size();
    const lzma_ret status = lzma_code(&stream, LZMA_FINISH);
    append_output(result, chunk, stream.avail_out, path, limit);
    if (status == LZMA_STREAM_END) return result;
    check(status != LZMA_BUF_ERROR, "'{}' is truncated: its xz stream ends after {} decompressed bytes", path,
          result.size());
    check(status != LZMA_MEMLIMIT_ERROR, "'{}' needs more than {} bytes of memory to decompress", path,
          kMemoryLimit);
    check(status == LZMA_OK, "'{}' is not valid xz after {} decompressed bytes (liblzma error {})", path,
          result.size(), static_cast<int>(status));
  }
}

}  // namespace

std::uint64_t unpacked_limit(std::uint64_t packed, const ReadOptions& options, std::uint64_t free_memory) {
  if (options.max_file_size != 0) return options.max_file_size;
  // Text of graphs shrinks to a third or a tenth, numbers that repeat to a fiftieth; bombs to a thousandth.
  constexpr std::uint64_t kRatio = 200, kAlways = std::uint64_t{1} << 28;
  // What is read from text takes a few times its size.
  constexpr std::uint64_t kShare = 4;
  const std::uint64_t by_size = packed > free_memory / kRatio ? free_memory : packed * kRatio;
  return std::min(std::max(kAlways, by_size), free_memory / kShare);
}

std::string read_file(const std::string& path, const ReadOptions& options) {
  std::string content = read_raw(path, options);
  const std::string extension = lower_case_extension(path);
  if (extension != ".gz" && extension != ".xz") return content;
  const std::uint64_t limit = unpacked_limit(content.size(), options, available_memory());
  return extension == ".gz" ? decompress_gzip(content, path, limit) : decompress_xz(content, path, limit);
}

std::string content_extension(const std::string& path) {
  const std::filesystem::path file(path);
  const std::string extension = lower_case_extension(file);
  return extension == ".gz" || extension == ".xz" ? lower_case_extension(file.stem()) : extension;
}

void check_replaceable(const std::string& path) {
  std::error_code ignored;
  const auto kind = std::filesystem::status(path, ignored).type();
  check(kind != std::filesystem::file_type::directory, "cannot write '{}': it is a folder", path);
  check(kind == std::filesystem::file_type::regular || kind == std::filesystem::file_type::not_found,
        "cannot write '{}': it is not a regular file", path);
}

void write_file(const std::string& path, std::string_view content) {
  write_file(path, std::span<const std::string_view>(&content, 1));
}

void write_file(const std::string& path, std::span<const std::string_view> pieces) {
  std::error_code status;
  const bool device = std::filesystem::is_other(path, status);
  if (!device) check_replaceable(path);
  const std::string target = device ? path : fmt::format("{}.{}.tmp", path, getpid());
  // errno is kept before anything else can change it.
  const auto give_up = [&](int error) {
    if (!device) std::remove(target.c_str());
    fail("cannot write '{}': {}", path, std::strerror(error));
  };
  File file(std::fopen(target.c_str(), "wb"));
  if (file == nullptr) give_up(errno);
  for (const std::string_view piece : pieces) {
    if (piece.empty()) continue;  // its data() may be null, which fwrite does not take
    if (std::fwrite(piece.data(), 1, piece.size(), file.get()) != piece.size()) give_up(errno);
  }
  if (!device && (std::fflush(file.get()) != 0 || fsync(fileno(file.get())) != 0)) give_up(errno);
  if (std::fclose(file.release()) != 0) give_up(errno);
  if (!device && std::rename(target.c_str(), path.c_str()) != 0) give_up(errno);
}

}  // namespace topomask
