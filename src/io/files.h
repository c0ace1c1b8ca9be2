// Whole files in, whole files out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "topomask/read_options.h"

namespace topomask {

// The whole content of a file, decompressed if it ends in .gz or .xz.
std::string read_file(const std::string& path, const ReadOptions& options = {});

// The most bytes that `packed` bytes may unpack to under the options, with so much memory free.
std::uint64_t unpacked_limit(std::uint64_t packed, const ReadOptions& options, std::uint64_t free_memory);

// Writes the content to a temporary file beside `path`, waits until it is on the disk and renames it, so that
// a reader never sees half a file, not even after a power cut; a device such as /dev/stdout is written to
// directly. Throws one sentence if the path cannot be written.
void write_file(const std::string& path, std::string_view content);
void write_file(const std::string& path, std::span<const std::string_view> pieces);

// Throws if `path` exists and is no regular file, because renaming a new file over it would destroy it.
void check_replaceable(const std::string& path);

// The extension of a path in lower case, ".mtx" of "a/b.mtx.gz"; "" if there is none.
std::string content_extension(const std::string& path);

}  // namespace topomask
