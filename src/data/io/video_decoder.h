// What the module with FFmpeg in it offers. It is loaded when the first video is read: FFmpeg brings more
// than a hundred libraries with it, which programs that read none should not wait for.
#pragma once

#include "data/io/video.h"

// decode_clip with a valid choice. Weak: null in all that is not linked with the decoder itself.
extern "C" [[gnu::weak]] void topomask_decode_clip(std::string_view content, const std::string& name,
                                                   const topomask::ClipChoice& choice, std::uint8_t* out);

namespace topomask {

using DecodeClip = decltype(&topomask_decode_clip);

}  // namespace topomask
