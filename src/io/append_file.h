// Temporary files that grow: many at once, written in large pieces and open only while that happens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace topomask {

// Collects bytes and appends them to a file; the file is removed with the object.
class AppendFile {
 public:
  // Replaces a file of that name.
  AppendFile(std::string path, std::size_t buffer_bytes);
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&&) = delete;
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  template <class Value>
  void add(std::span<const Value> values) {
    add_bytes(values.data(), values.size_bytes());
  }

  void remove();  // the file; the object is empty then
  void flush();   // throws one sentence where the disk is full
  const std::string& path() const { return path_; }
  std::uint64_t size() const { return written_ + buffer_.size(); }  // in bytes

  // All of it; flushes first.
  template <class Value>
  std::vector<Value> read() {
    std::vector<Value> values(static_cast<std::size_t>(size()) / sizeof(Value));
    read_bytes(values.data(), values.size() * sizeof(Value));
    return values;
  }

 private:
  void add_bytes(const void* data, std::size_t size);
  void write(const void* data, std::size_t size);
  void read_bytes(void* target, std::size_t size);

  std::string path_;  // empty: moved from
  std::size_t buffer_bytes_;
  std::vector<char> buffer_;
  std::uint64_t written_ = 0;
};

// Reads such a file from its beginning, piece by piece.
class SequentialReader {
 public:
  explicit SequentialReader(const std::string& path);

  template <class Value>
  void read(std::vector<Value>& values, std::size_t count) {
    values.resize(count);
    read_bytes(values.data(), count * sizeof(Value));
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void read_bytes(void* target, std::size_t size);

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace topomask
