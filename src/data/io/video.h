// Clips of video files as pixels, decoded by FFmpeg's libraries; free of torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/io/image_folder.h"

namespace topomask {

inline constexpr int kMostClipFrames = 4096;

// Whether there is a decoder: it is a separate module, which a build may lack.
bool has_video_decoder();
// Throws one sentence where there is none.
void require_video_decoder();

// Which part of a video: `frames` frames, each `stride` after the last, at `size` x `size` pixels. With a
// crop seed the clip begins at a random frame and shows random_crop of the picture; without one it lies in
// the middle of the video and shows the centre square. A video that ends too early repeats its last frame.
struct ClipChoice {
  int frames = 32, stride = 2, size = 224;
  CropChoice crop = {};
  std::int64_t max_pixels = std::int64_t{1} << 26;  // of a frame
};

// `content` is a whole file; `name` is for messages. out: [frames, 3, size, size]. Throws where there is no
// video in it, or the part of it that is asked for cannot be decoded.
void decode_clip(std::string_view content, const std::string& name, const ClipChoice& choice,
                 std::uint8_t* out);

// The same of a file.
void load_clip(const std::string& path, const ClipChoice& choice, std::uint8_t* out);

}  // namespace topomask
