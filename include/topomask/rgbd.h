// One picture of an RGB-D camera: colour, metric depth, intrinsics and pose. It is rendered (robot.h) or read
// from files in the layout of the 7-Scenes data set. Input of the particle models (paper, section 4 "point
// clouds"). Does not include torch; rgbd_data.h has the same as tensors.
//
// The pixel in column u and row v looks along ((u - cx) / fx, (v - cy) / fy, 1): x to the right, y down, z
// forward. A depth of z puts its point at pose * (z * that direction, 1).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace topomask {

struct RgbdImage {
  int width = 0, height = 0;
  std::array<float, 4> intrinsics{};  // fx, fy, cx, cy in pixels
  std::array<float, 16> pose{};       // [4, 4], camera to world
  std::vector<std::uint8_t> colour;   // [height, width, 3]
  std::vector<float> depth;           // [height, width] metres along z; 0: unknown
  std::vector<std::int16_t> segment;  // [height, width] shape seen, -1: none; empty for real cameras
};

// A folder of frames in the layout of 7-Scenes (Shotton et al., CVPR 2013):
//
//   camera-intrinsics.txt      [3, 3]: fx 0 cx / 0 fy cy / 0 0 1
//   frame-000000.color.png     8 bits per channel; or .color.jpg
//   frame-000000.depth.png     16-bit grey, millimetres; 0 and 65535: unknown
//   frame-000000.pose.txt      [4, 4], camera to world
//
// Frames are those that have a colour file, in the order of their numbers, which may have gaps.
class RgbdFolder {
 public:
  // Reads the intrinsics and the names of the frames; throws if there are none or if one lacks its depth or
  // pose.
  explicit RgbdFolder(const std::string& folder);

  std::int64_t frames() const { return static_cast<std::int64_t>(frames_.size()); }
  RgbdImage read(std::int64_t frame) const;

 private:
  struct Frame {
    std::int64_t number = 0;
    std::string colour, depth, pose;  // paths
  };
  std::string folder_;
  std::array<float, 4> intrinsics_{};
  std::vector<Frame> frames_;
};

// Whether the folder has camera-intrinsics.txt or frames with the names above.
bool is_rgbd_folder(const std::string& folder);

// Write the same layout, with colour as PNG; the folder must exist. Depth is rounded to millimetres.
void write_rgbd_intrinsics(const std::string& folder, const std::array<float, 4>& intrinsics);
void write_rgbd_frame(const std::string& folder, std::int64_t number, const RgbdImage& image);

}  // namespace topomask
