#include "io/line_stream.h"

#include <lzma.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "core/check.h"
#include "io/text.h"

namespace topomask {

namespace {

struct CloseInput {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

constexpr std::size_t kPackedChunk = std::size_t{1} << 18;
// No edge and no comment is longer; a binary file without line ends must not fill the memory.
constexpr std::size_t kLongestLine = std::size_t{1} << 24;

}  // namespace

// Bytes of a file, unpacked as they are asked for.
class ByteSource {
 public:
  explicit ByteSource(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "rb")) {
    check(file_ != nullptr, "cannot open '{}': {}", path, std::strerror(errno));
  }
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // As many bytes as fit, fewer only at the end.
  virtual std::size_t read(char* target, std::size_t size) = 0;
  std::int64_t position() const { return position_; }

 protected:
  std::size_t read_raw(void* target, std::size_t size) {
    const std::size_t got = std::fread(target, 1, size, file_.get());
    check(got == size || std::ferror(file_.get()) == 0, "cannot read '{}': {}", path_, std::strerror(errno));
    position_ += static_cast<std::int64_t>(got);
    return got;
  }

  std::string path_;

 private:
  std::unique_ptr<std::FILE, CloseInput> file_;
  std::int64_t position_ = 0;
};

namespace {

std::string packed_extension(const std::string& path) {
  return lower_case(std::filesystem::path(path).extension().string());
}

class PlainSource : public ByteSource {
 public:
  using ByteSource::ByteSource;
  std::size_t read(char* target, std::size_t size) override { return read_raw(target, size); }
};

class GzipSource : public ByteSource {
 public:
  explicit GzipSource(const std::string& path) : ByteSource(path), packed_(kPackedChunk) {
    constexpr int kGzipOnly = 16;
    check(inflateInit2(&stream_, MAX_WBITS + kGzipOnly) == Z_OK, "cannot decompress '{}': out of memory",
          path);
  }
  ~GzipSource() override { inflateEnd(&stream_); }

  std::size_t read(char* target, std::size_t size) override {
    std::size_t written = 0;
    while (written < size && !done_) {
      if (stream_.avail_in == 0) feed();
      if (member_ended_) {  // a gzip file is a sequence of members; zeros may pad the end
        while (stream_.avail_in > 0 && *stream_.next_in == 0) {
          ++stream_.next_in;
          --stream_.avail_in;
        }
        if (stream_.avail_in == 0) {
          done_ = input_ended_;
          continue;
        }
        inflateReset(&stream_);
        member_ended_ = false;
      }
      const auto room = static_cast<uInt>(std::min(size - written, kPackedChunk));
      stream_.next_out = reinterpret_cast<Bytef*>(target + written);
      stream_.avail_out = room;
      const int status = inflate(&stream_, Z_NO_FLUSH);
      written += room - stream_.avail_out;
      total_ += room - stream_.avail_out;
      check(status != Z_BUF_ERROR || !input_ended_,
            "'{}' is truncated: its gzip stream ends after {} decompressed bytes", path_, total_);
      check(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR,
            "'{}' is not valid gzip after {} decompressed bytes: {}", path_, total_,
            stream_.msg ? stream_.msg : "bad data");
      member_ended_ = status == Z_STREAM_END;
    }
    return written;
  }

 private:
  void feed() {
    const std::size_t got = read_raw(packed_.data(), packed_.size());
    input_ended_ = got < packed_.size();
    stream_.next_in = packed_.data();
    stream_.avail_in = static_cast<uInt>(got);
  }

  z_stream stream_{};
  std::vector<Bytef> packed_;
  std::uint64_t total_ = 0;
  bool input_ended_ = false, member_ended_ = false, done_ = false;
};

class XzSource : public ByteSource {
 public:
  explicit XzSource(const std::string& path) : ByteSource(path), packed_(kPackedChunk) {
    // A forged header may ask for a huge dictionary.
    constexpr std::uint64_t kMemoryLimit = std::uint64_t{1} << 30;
    check(lzma_stream_decoder(&stream_, kMemoryLimit, LZMA_CONCATENATED) == LZMA_OK,
          "cannot decompress '{}': out of memory", path);
  }
  ~XzSource() override { lzma_end(&stream_); }

  std::size_t read(char* target, std::size_t size) override {
    stream_.next_out = reinterpret_cast<std::uint8_t*>(target);
    stream_.avail_out = size;
    while (stream_.avail_out > 0 && !done_) {
      if (stream_.avail_in == 0 && !input_ended_) {
        const std::size_t got = read_raw(packed_.data(), packed_.size());
        input_ended_ = got < packed_.size();
        stream_.next_in = packed_.data();
        stream_.avail_in = got;
      }
      const lzma_ret status = lzma_code(&stream_, input_ended_ ? LZMA_FINISH : LZMA_RUN);
      done_ = status == LZMA_STREAM_END;
      check(status != LZMA_BUF_ERROR, "'{}' is truncated: its xz stream ends after {} decompressed bytes",
            path_, stream_.total_out);
      check(done_ || status == LZMA_OK, "'{}' is not valid xz after {} decompressed bytes (liblzma error {})",
            path_, stream_.total_out, static_cast<int>(status));
    }
    return size - stream_.avail_out;
  }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
  std::vector<std::uint8_t> packed_;
  bool input_ended_ = false, done_ = false;
};

}  // namespace

LineStream::LineStream(const std::string& path, const ReadOptions& options, std::size_t buffer_bytes)
    : path_(path), limit_(options.max_file_size), buffer_(std::max<std::size_t>(buffer_bytes, 1)) {
  const std::string extension = packed_extension(path);
  if (extension == ".gz") {
    source_ = std::make_unique<GzipSource>(path);
  } else if (extension == ".xz") {
    source_ = std::make_unique<XzSource>(path);
  } else {
    source_ = std::make_unique<PlainSource>(path);
  }
}

LineStream::~LineStream() = default;

std::int64_t LineStream::bytes_read() const {
  return source_->position();
}

// Moves the rest to the front and reads after it; doubles the buffer if one line fills it.
void LineStream::fill() {
  std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
            buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
  end_ -= begin_;
  begin_ = 0;
  if (end_ == buffer_.size()) {
    check(end_ < kLongestLine, "{}, line {}: expected lines of at most {} bytes, got a longer one", path_,
          line_number_ + 1, kLongestLine);
    buffer_.resize(2 * buffer_.size());
  }
  const std::size_t room = buffer_.size() - end_, got = source_->read(buffer_.data() + end_, room);
  at_end_ = got < room;
  unpacked_ += got;
  check(limit_ == 0 || unpacked_ <= limit_, "'{}' is larger than {} bytes, which max_file_size allows", path_,
        limit_);
  end_ += got;
}

bool LineStream::next(std::string_view& line) {
  std::size_t searched = 0;
  while (true) {
    const char* const start = buffer_.data() + begin_;
    const void* const found = std::memchr(start + searched, '\n', end_ - begin_ - searched);
    std::size_t length = end_ - begin_;
    if (found != nullptr) {
      length = static_cast<std::size_t>(static_cast<const char*>(found) - start);
    } else if (!at_end_) {
      searched = length;
      fill();
      continue;
    } else if (length == 0) {
      return false;
    }
    ++line_number_;
    const std::string_view whole(start, length);
    begin_ += length + (found != nullptr ? 1 : 0);
    for (const char c : whole) {
      const auto byte = static_cast<unsigned char>(c);
      check(byte >= 0x20 || is_blank(c), "{}, line {}: expected text, got the byte 0x{:02x} of a binary file",
            path_, line_number_, byte);
    }
    line = trimmed(line_number_ == 1 ? without_byte_order_mark(whole) : whole);
    return true;
  }
}

}  // namespace topomask
