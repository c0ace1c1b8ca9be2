// The lines of a text file that need not fit into memory, plain or compressed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "topomask/read_options.h"

namespace topomask {

class ByteSource;

class LineStream {
 public:
  // `path` may end in .gz or .xz. The file is read `buffer_bytes` at a time, at least one line.
  explicit LineStream(const std::string& path, const ReadOptions& options = {},
                      std::size_t buffer_bytes = std::size_t{1} << 20);
  ~LineStream();
  LineStream(const LineStream&) = delete;
  LineStream& operator=(const LineStream&) = delete;

  // The next line without blanks at either end, valid until the next call; false at the end. Throws, naming
  // the line, at a control character that no text file has.
  bool next(std::string_view& line);

  std::size_t line_number() const { return line_number_; }  // of the line last returned, from 1
  std::int64_t bytes_read() const;                          // of the file as it lies on the disk

 private:
  void fill();

  std::string path_;
  std::uint64_t limit_;  // on unpacked bytes, 0: none
  std::unique_ptr<ByteSource> source_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // what of the buffer is not yet returned
  bool at_end_ = false;              // nothing is left in the file
  std::uint64_t unpacked_ = 0;
  std::size_t line_number_ = 0;
};

}  // namespace topomask
