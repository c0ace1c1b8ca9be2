#include "io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/check.h"

namespace topomask {

namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the official reader
constexpr const char* kMetadata = "__metadata__";

constexpr std::array<std::pair<std::string_view, std::uint64_t>, 19> kItemBytes{{
    {"BOOL", 1},    {"U8", 1},          {"I8", 1},      {"F8_E4M3", 1}, {"F8_E4M3FNUZ", 1},
    {"F8_E5M2", 1}, {"F8_E5M2FNUZ", 1}, {"F8_E8M0", 1}, {"U16", 2},     {"I16", 2},
    {"F16", 2},     {"BF16", 2},        {"U32", 4},     {"I32", 4},     {"F32", 4},
    {"U64", 8},     {"I64", 8},         {"F64", 8},     {"C64", 8},
}};

// Text from a file may hold anything; a message shows a printable beginning of it.
std::string shown(const std::string& text) {
  constexpr std::size_t kShown = 80;
  std::string result = text.substr(0, kShown);
  std::replace_if(
      result.begin(), result.end(), [](unsigned char c) { return c < ' ' || c >= 0x7F; }, '?');
  return "'" + result + (text.size() > kShown ? "...'" : "'");
}

std::uint64_t unsigned_number(const Json& value, const std::string& tensor, const char* what,
                              const std::string& name) {
  check(value.is_number_unsigned() && value.get<std::uint64_t>() <= std::uint64_t{INT64_MAX},
        "{}: expected whole numbers in the {} of tensor {}", name, what, shown(tensor));
  return value.get<std::uint64_t>();
}

const Json& member(const Json& entry, const char* key, const std::string& tensor, const std::string& name) {
  const auto found = entry.find(key);
  check(found != entry.end(), "{}: tensor {} has no {}", name, shown(tensor), key);
  return *found;
}

SafetensorsEntry parse_entry(const Json& json, const std::string& tensor, std::uint64_t data_bytes,
                             const std::string& name) {
  check(json.is_object(), "{}: expected dtype, shape and data_offsets for tensor {}", name, shown(tensor));
  SafetensorsEntry entry;
  const Json& dtype = member(json, "dtype", tensor, name);
  check(dtype.is_string(), "{}: expected a name as dtype of tensor {}", name, shown(tensor));
  entry.dtype = dtype.get<std::string>();
  const std::uint64_t item = safetensors_item_bytes(entry.dtype);
  check(item > 0, "{}: tensor {} has a dtype that is not supported: {}", name, shown(tensor),
        shown(entry.dtype));

  const Json& offsets = member(json, "data_offsets", tensor, name);
  check(offsets.is_array() && offsets.size() == 2, "{}: expected two data_offsets for tensor {}", name,
        shown(tensor));
  entry.begin = unsigned_number(offsets[0], tensor, "data_offsets", name);
  entry.end = unsigned_number(offsets[1], tensor, "data_offsets", name);
  check(entry.begin <= entry.end && entry.end <= data_bytes,
        "{}: tensor {} lies at bytes {} to {}, but the file holds {} bytes of data", name, shown(tensor),
        entry.begin, entry.end, data_bytes);

  const Json& shape = member(json, "shape", tensor, name);
  check(shape.is_array(), "{}: expected a list as shape of tensor {}", name, shown(tensor));
  // A zero among the lengths does not excuse the others: torch counts strides with them all.
  std::int64_t extent = static_cast<std::int64_t>(item);
  bool overflow = false;
  bool empty = false;
  for (const Json& size : shape) {
    const auto length = static_cast<std::int64_t>(unsigned_number(size, tensor, "shape", name));
    entry.shape.push_back(length);
    empty |= length == 0;
    overflow |= __builtin_mul_overflow(extent, std::max<std::int64_t>(length, 1), &extent);
  }
  const std::uint64_t bytes = empty ? 0 : static_cast<std::uint64_t>(extent);
  check(!overflow && bytes == entry.end - entry.begin,
        "{}: tensor {} of shape [{}] and dtype {} does not match the {} bytes at its data_offsets", name,
        shown(tensor), fmt::join(entry.shape, ", "), entry.dtype, entry.end - entry.begin);
  return entry;
}

// The official reader insists on this too: no byte belongs to two tensors or to none.
void check_contiguous(const SafetensorsHeader& header, std::uint64_t data_bytes, const std::string& name) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> pieces;
  for (const auto& [tensor, entry] : header.entries) pieces.emplace_back(entry.begin, entry.end);
  std::sort(pieces.begin(), pieces.end());
  std::uint64_t covered = 0;
  for (const auto& [begin, end] : pieces) {
    check(begin == covered, "{}: the tensors leave a gap or overlap at byte {} of the data", name,
          std::min(begin, covered));
    covered = end;
  }
  check(covered == data_bytes, "{}: the tensors cover {} bytes, but the file holds {} bytes of data", name,
        covered, data_bytes);
}

Json parse_json(std::string_view text, const std::string& name) {
  std::set<std::string> names;
  // A second tensor of the same name would silently replace the first.
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth == 1 && event == Json::parse_event_t::key) {
      check(names.insert(parsed.get<std::string>()).second, "{}: there are two tensors named {}", name,
            shown(parsed.get<std::string>()));
    }
    // Nothing in a valid header is deeper.
    check(depth <= 3, "{}: the header is no safetensors header: it is nested too deeply", name);
    return true;
  };
  Json json = Json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  check(json.is_object(), "{}: the header is not a JSON object", name);
  return json;
}

}  // namespace

std::uint64_t safetensors_item_bytes(std::string_view dtype) {
  const auto* found = std::find_if(kItemBytes.begin(), kItemBytes.end(),
                                   [&](const auto& entry) { return entry.first == dtype; });
  return found == kItemBytes.end() ? 0 : found->second;
}

std::uint64_t safetensors_header_bytes(std::string_view first_bytes, std::uint64_t file_bytes,
                                       const std::string& name) {
  check(first_bytes.size() >= kSafetensorsLengthBytes && file_bytes >= kSafetensorsLengthBytes,
        "{}: expected a safetensors file, got {} bytes", name,
        std::min<std::uint64_t>(first_bytes.size(), file_bytes));
  std::uint64_t length = 0;
  for (std::size_t byte = kSafetensorsLengthBytes; byte-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(first_bytes[byte]);
  }
  check(
      length <= kMaxHeaderBytes && length <= file_bytes - kSafetensorsLengthBytes,
      "{}: expected a safetensors file, but its first 8 bytes announce a header of {} bytes in a file of {}",
      name, length, file_bytes);
  return length;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                           const std::string& name) {
  SafetensorsHeader header;
  const Json parsed = parse_json(json, name);
  for (const auto& [key, value] : parsed.items()) {
    if (key != kMetadata) {
      header.entries.emplace(key, parse_entry(value, key, data_bytes, name));
      continue;
    }
    check(value.is_object(), "{}: expected {} to map text to text", name, kMetadata);
    for (const auto& [entry, text] : value.items()) {
      check(text.is_string(), "{}: expected {} to map text to text, but {} is none", name, kMetadata,
            shown(entry));
      header.metadata.emplace(entry, text.get<std::string>());
    }
  }
  check_contiguous(header, data_bytes, name);
  return header;
}

SafetensorsHeader parse_safetensors(std::string_view content, const std::string& name) {
  const std::uint64_t length = safetensors_header_bytes(content, content.size(), name);
  return parse_safetensors_header(content.substr(kSafetensorsLengthBytes, length),
                                  content.size() - kSafetensorsLengthBytes - length, name);
}

std::string format_safetensors_header(const SafetensorsHeader& header) {
  Json json = Json::object();
  if (!header.metadata.empty()) json[kMetadata] = header.metadata;
  for (const auto& [tensor, entry] : header.entries) {
    check(tensor != kMetadata, "a tensor cannot be named {}", kMetadata);
    json[tensor] = {
        {"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const Json::exception&) {
    fail("safetensors: a name or a text of the metadata is not UTF-8");
  }
  constexpr std::size_t kAlignment = 8;
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  check(text.size() <= kMaxHeaderBytes,
        "safetensors: the header of {} bytes is larger than the format's limit of {}", text.size(),
        kMaxHeaderBytes);
  std::string length;
  for (std::size_t byte = 0; byte < kSafetensorsLengthBytes; ++byte) {
    length += static_cast<char>(text.size() >> (8 * byte) & 0xFF);
  }
  return length + text;
}

}  // namespace topomask
