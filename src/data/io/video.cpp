#include "data/io/video.h"

#include <dlfcn.h>

#include <filesystem>

#include "core/check.h"
#include "data/io/video_decoder.h"
#include "io/files.h"

namespace topomask {
namespace {

constexpr std::uint64_t kLargestVideo = std::uint64_t{1} << 30;
constexpr const char* kModule = "libtopomask_video.so";

struct LoadedDecoder {
  DecodeClip decode = nullptr;
  std::string problem;  // why there is none
};

// The module lies beside the library or program that this code is in.
std::string module_path() {
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&has_video_decoder), &self) == 0 || self.dli_fname == nullptr)
    return kModule;
  return (std::filesystem::path(self.dli_fname).parent_path() / kModule).string();
}

const LoadedDecoder& decoder() {
  static const LoadedDecoder loaded = []() -> LoadedDecoder {
    if (topomask_decode_clip != nullptr) return {topomask_decode_clip, ""};  // linked into a test
    void* module = dlopen(module_path().c_str(), RTLD_NOW | RTLD_LOCAL);
    void* function = module == nullptr ? nullptr : dlsym(module, "topomask_decode_clip");
    if (function == nullptr) return {nullptr, dlerror()};
    return {reinterpret_cast<DecodeClip>(function), ""};
  }();
  return loaded;
}

}  // namespace

bool has_video_decoder() {
  return decoder().decode != nullptr;
}

void require_video_decoder() {
  check(has_video_decoder(),
        "video files cannot be read: {}; the module is built where FFmpeg's libraries are found (Debian "
        "packages "
        "libavformat-dev, libavcodec-dev, libswscale-dev and libavutil-dev)",
        decoder().problem);
}

void decode_clip(std::string_view content, const std::string& name, const ClipChoice& choice,
                 std::uint8_t* out) {
  check(choice.frames >= 1 && choice.frames <= kMostClipFrames && choice.stride >= 1 && choice.size >= 1,
        "decode_clip: expected 1 to {} frames with a stride and a size of 1 or more, got {}, {} and {}",
        kMostClipFrames, choice.frames, choice.stride, choice.size);
  require_video_decoder();
  decoder().decode(content, name, choice, out);
}

void load_clip(const std::string& path, const ClipChoice& choice, std::uint8_t* out) {
  decode_clip(read_file(path, {.max_file_size = kLargestVideo}), path, choice, out);
}

}  // namespace topomask
