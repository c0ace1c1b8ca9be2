// The arrays of an .npz archive, one at a time.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topomask/npy.h"

struct zip;

namespace topomask {

class NpzArchive {
 public:
  // The content must outlive the archive.
  NpzArchive(std::string_view content, const std::string& name, const ReadOptions& options = {});

  // In the order of the archive, without ".npy".
  const std::vector<std::string>& keys() const { return keys_; }
  bool has(std::string_view key) const;

  // Throws if there is no such array, or if it is of a kind that parse_npy rejects.
  NpyArray read(const std::string& key) const;
  // Nothing instead of throwing where the array is missing or of an unsupported dtype (pickled objects).
  std::optional<NpyArray> read_if_supported(const std::string& key) const;

  // Its shape alone, of any dtype; nothing where the array is missing. Unpacks no more than its beginning.
  std::optional<std::vector<std::int64_t>> shape(const std::string& key) const;

  // "file, array 'key'", for messages.
  std::string place(const std::string& key) const;

 private:
  struct Close {
    void operator()(struct zip* archive) const;
  };
  // The first bytes of an entry, by default all of them.
  std::string read_entry(const std::string& key,
                         std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) const;

  std::string name_;
  std::unique_ptr<struct zip, Close> archive_;
  std::vector<std::string> keys_;
  std::uint64_t limit_;                 // of what all reads together may unpack
  mutable std::uint64_t unpacked_ = 0;  // so far
};

}  // namespace topomask
