// JPEG and PNG files as pixels, and parts of them at another size; free of torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace topomask {

// Red, green and blue bytes, whatever the file holds: grey is repeated, CMYK converted, 16 bits are reduced
// to 8, and transparency is dropped (the colour behind it stays).
struct RgbImage {
  int width = 0, height = 0;
  std::vector<std::uint8_t> pixels;  // [height, width, 3]
};

struct ImageExtent {
  int width = 0, height = 0;
};

// The size an image says it has; it knows JPEG and PNG by their first bytes. Throws where it is neither, or
// where it is larger than any photograph.
ImageExtent read_image_extent(std::string_view content, const std::string& name);

// Throws if the data is damaged or incomplete. With `denominator` 2, 4 or 8 a JPEG is decoded at that part of
// its size (rounded up), which is much faster; a PNG is decoded whole.
RgbImage decode_image(std::string_view content, const std::string& name, int denominator = 1);

// A PNG image with one channel of 16 bits, such as a depth map: its numbers as they are.
struct Grey16Image {
  int width = 0, height = 0;
  std::vector<std::uint16_t> pixels;  // [height, width]
};
// Throws for JPEG, for colour and for fewer bits, which would be no depth.
Grey16Image decode_grey16(std::string_view content, const std::string& name);

// A rectangle in units of pixels; its corners need not be whole.
struct Box {
  double left = 0, top = 0, width = 0, height = 0;
};

// The box of `image` at another size, with a triangle filter that widens where the image shrinks (bilinear
// with antialiasing, as Pillow and torchvision do): `out` is [3, height, width].
void resize_box(const RgbImage& image, const Box& box, int height, int width, std::uint8_t* out);

// The largest centred square of an image.
Box centre_square(ImageExtent extent);

// A random part of an image of at least `min_area` of it, its sides between 3:4 and 4:3 (Szegedy et al.,
// "Going deeper with convolutions", 2015), as a function of the seed.
Box random_crop(ImageExtent extent, double min_area, std::uint64_t seed);

}  // namespace topomask
