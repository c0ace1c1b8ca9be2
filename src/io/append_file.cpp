#include "io/append_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/check.h"

namespace topomask {

AppendFile::AppendFile(std::string path, std::size_t buffer_bytes)
    : path_(std::move(path)), buffer_bytes_(buffer_bytes) {
  std::remove(path_.c_str());
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::exchange(other.path_, std::string())),
      buffer_bytes_(other.buffer_bytes_),
      buffer_(std::move(other.buffer_)),
      written_(other.written_) {}

AppendFile::~AppendFile() {
  if (!path_.empty()) std::remove(path_.c_str());
}

void AppendFile::remove() {
  std::remove(path_.c_str());
  buffer_.clear();
  written_ = 0;
}

void AppendFile::add_bytes(const void* data, std::size_t size) {
  if (buffer_.size() + size > buffer_bytes_) flush();
  if (size >= buffer_bytes_) {
    write(data, size);  // large pieces are not copied
    return;
  }
  const char* const bytes = static_cast<const char*>(data);
  buffer_.insert(buffer_.end(), bytes, bytes + size);
}

void AppendFile::flush() {
  write(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void AppendFile::write(const void* data, std::size_t size) {
  if (size == 0) return;
  std::FILE* const file = std::fopen(path_.c_str(), "ab");
  check(file != nullptr, "cannot write '{}': {}", path_, std::strerror(errno));
  std::setvbuf(file, nullptr, _IONBF, 0);
  const bool written = std::fwrite(data, 1, size, file) == size;
  const int reason = errno;
  const bool closed = std::fclose(file) == 0;
  check(written && closed, "cannot write '{}': {}", path_, std::strerror(written ? errno : reason));
  written_ += size;
}

void AppendFile::read_bytes(void* target, std::size_t size) {
  flush();
  if (size == 0) return;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path_.c_str(), "rb"), std::fclose);
  check(file != nullptr, "cannot open '{}': {}", path_, std::strerror(errno));
  check(std::fread(target, 1, size, file.get()) == size, "cannot read '{}': it ended too early", path_);
}

SequentialReader::SequentialReader(const std::string& path)
    : path_(path), file_(std::fopen(path.c_str(), "rb")) {
  // A file that nothing was added to does not exist.
  check(file_ != nullptr || errno == ENOENT, "cannot open '{}': {}", path, std::strerror(errno));
  constexpr std::size_t kBuffer = std::size_t{1} << 20;
  if (file_ != nullptr) std::setvbuf(file_.get(), nullptr, _IOFBF, kBuffer);
}

void SequentialReader::read_bytes(void* target, std::size_t size) {
  if (size == 0) return;
  check(file_ != nullptr && std::fread(target, 1, size, file_.get()) == size,
        "cannot read '{}': it ended too early", path_);
}

}  // namespace topomask
