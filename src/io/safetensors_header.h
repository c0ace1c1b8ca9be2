// The header of a safetensors file: which tensor lies where. Free of torch, so that it can be fuzzed.
//
//     8 bytes: length of the header, little-endian | the header, JSON | the data
//     {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
//      "__metadata__": {"key": "text"}}
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace topomask {

struct SafetensorsEntry {
  std::string dtype;  // "F32"; one of those that safetensors_item_bytes knows
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // in bytes from the start of the data
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

inline constexpr std::uint64_t kSafetensorsLengthBytes = 8;

// Bytes of one element, 0 for a dtype that is not supported.
std::uint64_t safetensors_item_bytes(std::string_view dtype);

// The length of the header from the first bytes of a file of `file_bytes`; `name` is used in error messages
// only.
std::uint64_t safetensors_header_bytes(std::string_view first_bytes, std::uint64_t file_bytes,
                                       const std::string& name);

// The header proper. The tensors must fill the `data_bytes` after it without gaps or overlaps.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                           const std::string& name);

// Both steps on the whole content of a file.
SafetensorsHeader parse_safetensors(std::string_view content, const std::string& name);

// Length and header, padded so that the data after it is aligned.
std::string format_safetensors_header(const SafetensorsHeader& header);

}  // namespace topomask
