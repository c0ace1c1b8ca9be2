#include "topomask/safetensors.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.h"
#include "io/files.h"
#include "io/safetensors_header.h"

namespace topomask {

namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::array<std::pair<std::string_view, at::ScalarType>, 19> kTypes{{
    {"BOOL", at::kBool},
    {"U8", at::kByte},
    {"I8", at::kChar},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
    {"F8_E8M0", at::kFloat8_e8m0fnu},
    {"U16", at::kUInt16},
    {"I16", at::kShort},
    {"F16", at::kHalf},
    {"BF16", at::kBFloat16},
    {"U32", at::kUInt32},
    {"I32", at::kInt},
    {"F32", at::kFloat},
    {"U64", at::kUInt64},
    {"I64", at::kLong},
    {"F64", at::kDouble},
    {"C64", at::kComplexFloat},
}};

at::ScalarType type_named(std::string_view dtype) {
  return std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& type) { return type.first == dtype; })
      ->second;
}

std::string name_of(at::ScalarType type, const std::string& tensor) {
  const auto* found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& entry) { return entry.second == type; });
  check(found != kTypes.end(), "write_safetensors: tensor '{}' has a dtype that the format lacks: {}", tensor,
        c10::toString(type));
  return std::string(found->first);
}

void read_bytes(std::ifstream& stream, void* target, std::uint64_t bytes, const std::string& path) {
  stream.read(static_cast<char*>(target), static_cast<std::streamsize>(bytes));
  check(static_cast<bool>(stream), "cannot read '{}': it ended too early", path);
}

}  // namespace

SafetensorsFile read_safetensors(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  check(stream.is_open(), "cannot open '{}': {}", path, std::strerror(errno));
  std::error_code error;
  const std::uint64_t file_bytes = std::filesystem::file_size(path, error);
  check(!error, "cannot read '{}': it is not a regular file", path);

  std::string first(std::min(file_bytes, kSafetensorsLengthBytes), '\0');
  read_bytes(stream, first.data(), first.size(), path);
  const std::uint64_t header_bytes = safetensors_header_bytes(first, file_bytes, path);
  std::string json(header_bytes, '\0');
  read_bytes(stream, json.data(), json.size(), path);
  const std::uint64_t data_begin = kSafetensorsLengthBytes + header_bytes;
  const SafetensorsHeader header = parse_safetensors_header(json, file_bytes - data_begin, path);

  SafetensorsFile file;
  file.metadata = header.metadata;
  for (const auto& [name, entry] : header.entries) {
    at::Tensor tensor = at::empty(entry.shape, type_named(entry.dtype));
    stream.seekg(static_cast<std::streamoff>(data_begin + entry.begin));
    read_bytes(stream, tensor.mutable_data_ptr(), entry.end - entry.begin, path);
    file.tensors.emplace(name, std::move(tensor));
  }
  return file;
}

void write_safetensors(const std::string& path, const SafetensorsFile& file) {
  struct Piece {
    std::string name;
    at::Tensor tensor;
  };
  std::vector<Piece> pieces;
  for (const auto& [name, tensor] : file.tensors) {
    check(tensor.defined(), "write_safetensors: tensor '{}' is undefined", name);
    check(!tensor.is_sparse() && tensor.layout() == at::kStrided,
          "write_safetensors: tensor '{}' is sparse; expected a dense one", name);
    pieces.push_back({name, tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()});
  }
  // Wide elements first, so that each tensor begins at a multiple of its element size.
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.tensor.itemsize() > b.tensor.itemsize(); });

  SafetensorsHeader header{{}, file.metadata};
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : pieces) {
    const std::uint64_t end = offset + tensor.nbytes();
    header.entries.emplace(
        name, SafetensorsEntry{name_of(tensor.scalar_type(), name), tensor.sizes().vec(), offset, end});
    offset = end;
  }
  const std::string head = format_safetensors_header(header);
  std::vector<std::string_view> content{head};
  for (const auto& [name, tensor] : pieces) {
    content.emplace_back(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  }
  write_file(path, content);
}

}  // namespace topomask
