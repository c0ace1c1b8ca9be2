#include "train/checkpoint_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/check.h"
#include "io/safetensors_header.h"
#include "topomask/mask_catalogue.h"

namespace topomask {
namespace {

// Of a mask's parameters; other modules have kept their names.
std::string current_name(const std::string& name) {
  return std::string_view(name).substr(0, name.rfind('.')).ends_with(".mask") ? current_parameter_name(name)
                                                                              : name;
}

}  // namespace

SafetensorsFile read_checkpoint(const std::string& path) {
  SafetensorsFile file = read_safetensors(path);
  SafetensorsFile result;
  result.metadata = std::move(file.metadata);
  for (auto& [name, tensor] : file.tensors) result.tensors.emplace(current_name(name), std::move(tensor));
  return result;
}

std::map<std::string, std::string> read_checkpoint_metadata(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  check(stream.is_open(), "cannot open '{}': {}", path, std::strerror(errno));
  std::error_code error;
  const std::uint64_t file_bytes = std::filesystem::file_size(path, error);
  check(!error, "cannot read '{}': it is not a regular file", path);
  const auto read = [&](std::uint64_t bytes) {
    std::string text(bytes, '\0');
    stream.read(text.data(), static_cast<std::streamsize>(bytes));
    check(static_cast<bool>(stream), "cannot read '{}': it ended too early", path);
    return text;
  };
  const std::uint64_t header_bytes =
      safetensors_header_bytes(read(std::min(file_bytes, kSafetensorsLengthBytes)), file_bytes, path);
  return parse_safetensors_header(read(header_bytes), file_bytes - kSafetensorsLengthBytes - header_bytes,
                                  path)
      .metadata;
}

std::string weight_prefix(const SafetensorsFile& file) {
  for (const auto& entry : file.tensors) {
    if (entry.first.starts_with(kAveragePrefix)) return kAveragePrefix;
  }
  return "";
}

bool is_training_state(const std::string& name) {
  return name.starts_with(kAveragePrefix) || name.starts_with("optimizer.");
}

const at::Tensor& find_tensor(const std::map<std::string, at::Tensor>& tensors, const std::string& path,
                              const std::string& name, c10::IntArrayRef sizes) {
  const auto found = tensors.find(name);
  check(found != tensors.end(), "{}: there is no tensor '{}' (is it of another model?)", path, name);
  check(found->second.sizes() == sizes, "{}: tensor '{}' is [{}], the model's is [{}]", path, name,
        fmt::join(found->second.sizes(), ", "), fmt::join(sizes, ", "));
  return found->second;
}

}  // namespace topomask
