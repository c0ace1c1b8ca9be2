#include "data/io/image.h"

#include <algorithm>
#include <cmath>

#include "data/encoded.h"
#include "data/io/image_folder.h"
#include "support/expect_edges.h"
#include "support/temporary_folder.h"

namespace topomask::testing {
namespace {

const auto decode = [](std::string_view content, const std::string& name) {
  return decode_image(content, name);
};

int largest_difference(const Bytes& a, const Bytes& b) {
  EXPECT_EQ(a.size(), b.size());
  int largest = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

Bytes repeated(const Bytes& grey) {
  Bytes rgb;
  for (const std::uint8_t level : grey) rgb.insert(rgb.end(), 3, level);
  return rgb;
}

TEST(DecodeJpeg, Colour) {
  const Bytes pixels = gradient(40, 24, 3);
  const std::string file = encode_jpeg(pixels, 40, 24);
  const RgbImage image = decode_image(file, "file");
  EXPECT_EQ(image.width, 40);
  EXPECT_EQ(image.height, 24);
  EXPECT_LE(largest_difference(image.pixels, pixels), 6);
  const ImageExtent extent = read_image_extent(file, "file");
  EXPECT_EQ(extent.width, 40);
  EXPECT_EQ(extent.height, 24);
}

TEST(DecodeJpeg, GreyIsRepeated) {
  const Bytes pixels = gradient(16, 16, 1);
  const RgbImage image = decode_image(encode_jpeg(pixels, 16, 16, TJPF_GRAY), "file");
  EXPECT_LE(largest_difference(image.pixels, repeated(pixels)), 4);
}

TEST(DecodeJpeg, FourInksAreInverted) {
  // No ink is white; full black is black; cyan takes the red away.
  Bytes inks;
  for (int i = 0; i < 64; ++i) inks.insert(inks.end(), {0, 255, 255, 128});
  const RgbImage image = decode_image(encode_jpeg(inks, 8, 8, TJPF_CMYK), "file");
  ASSERT_EQ(image.pixels.size(), 192u);
  EXPECT_NEAR(image.pixels[0], 0, 3);
  EXPECT_NEAR(image.pixels[1], 128, 3);
  EXPECT_NEAR(image.pixels[2], 128, 3);
}

TEST(DecodeJpeg, ReducedSizesRoundUp) {
  const std::string file = encode_jpeg(gradient(41, 33, 3), 41, 33);
  for (const int denominator : {2, 4, 8}) {
    const RgbImage image = decode_image(file, "file", denominator);
    EXPECT_EQ(image.width, (41 + denominator - 1) / denominator);
    EXPECT_EQ(image.height, (33 + denominator - 1) / denominator);
    EXPECT_EQ(image.pixels.size(), static_cast<std::size_t>(image.width) * image.height * 3);
  }
  expect_error([&] { decode_image(file, "file", 3); }, {"1, 2, 4 or 8", "got 3"});
}

TEST(DecodeJpeg, DamageIsAnError) {
  const std::string file = encode_jpeg(gradient(64, 64, 3), 64, 64);
  expect_rejected(decode, file.substr(0, file.size() / 2), {"damaged JPEG"});
  expect_rejected(decode, file.substr(0, 20), {"damaged JPEG"});
  expect_rejected(decode, "\xFF\xD8", {"damaged JPEG"});
  std::string corrupt = file;  // markers that no encoder writes, in the middle of the data
  for (std::size_t i = corrupt.size() / 2; i < corrupt.size() / 2 + 40; i += 2) {
    corrupt[i] = '\xFF', corrupt[i + 1] = '\xC1';
  }
  expect_rejected(decode, corrupt, {"damaged JPEG"});
}

TEST(DecodePng, EveryKindOfPixel) {
  const Bytes rgb = gradient(12, 9, 3), grey = gradient(12, 9, 1);
  EXPECT_EQ(decode_image(encode_png(rgb, 12, 9, SPNG_COLOR_TYPE_TRUECOLOR), "f").pixels, rgb);
  EXPECT_EQ(decode_image(encode_png(grey, 12, 9, SPNG_COLOR_TYPE_GRAYSCALE), "f").pixels, repeated(grey));

  Bytes with_alpha, grey_alpha;
  for (std::size_t i = 0; i < grey.size(); ++i) {
    with_alpha.insert(with_alpha.end(), {rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2], 17});
    grey_alpha.insert(grey_alpha.end(), {grey[i], 200});
  }
  EXPECT_EQ(decode_image(encode_png(with_alpha, 12, 9, SPNG_COLOR_TYPE_TRUECOLOR_ALPHA), "f").pixels, rgb);
  EXPECT_EQ(decode_image(encode_png(grey_alpha, 12, 9, SPNG_COLOR_TYPE_GRAYSCALE_ALPHA), "f").pixels,
            repeated(grey));

  std::vector<std::uint16_t> wide;
  for (const std::uint8_t level : rgb) wide.push_back(static_cast<std::uint16_t>(level * 257));
  EXPECT_EQ(decode_image(encode_png(wide.data(), wide.size() * 2, 12, 9, SPNG_COLOR_TYPE_TRUECOLOR, 16), "f")
                .pixels,
            rgb);
  const std::uint8_t bits[2] = {0b10000000, 0b01000000};  // two rows of two pixels
  EXPECT_EQ(decode_image(encode_png(bits, 2, 2, 2, SPNG_COLOR_TYPE_GRAYSCALE, 1), "f").pixels,
            repeated({255, 0, 0, 255}));
}

TEST(DecodePng, DamageIsAnError) {
  const std::string file = encode_png(gradient(32, 32, 3), 32, 32, SPNG_COLOR_TYPE_TRUECOLOR);
  expect_rejected(decode, file.substr(0, file.size() / 2), {"damaged PNG"});
  expect_rejected(decode, file.substr(0, 8), {"damaged PNG"});
  std::string corrupt = file;
  corrupt[file.size() / 2] = static_cast<char>(corrupt[file.size() / 2] ^ 0x55);
  expect_rejected(decode, corrupt, {"damaged PNG"});
}

TEST(DecodeImage, OtherFilesAreNamed) {
  expect_rejected(decode, "", {"is empty"});
  expect_rejected(decode, "GIF89a......", {"neither a JPEG nor a PNG", "47 49 46 38"});
  expect_rejected(decode, "<html>", {"neither a JPEG nor a PNG"});
}

TEST(DecodeImage, HugeExtentsAreRefused) {
  // A JPEG header that asks for 65500 x 65500 pixels, checked before they are allocated.
  std::string file = encode_jpeg(gradient(16, 16, 3), 16, 16);
  const std::size_t frame = file.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  for (std::size_t i = 5; i < 9; i += 2) file[frame + i] = '\xFF', file[frame + i + 1] = '\xDC';
  expect_rejected(decode, file, {"65500 x 65500"});
}

// --- resizing --------------------------------------------------------------------------------------------

// Straight from the definition: every output pixel is the average of all input pixels under a triangle.
std::uint8_t resized_pixel(const RgbImage& image, const Box& box, int height, int width, int c, int y,
                           int x) {
  const double sx = box.width / width, sy = box.height / height;
  const double cx = box.left + (x + 0.5) * sx, cy = box.top + (y + 0.5) * sy;
  double sum = 0, weights = 0;
  for (int v = 0; v < image.height; ++v) {
    for (int u = 0; u < image.width; ++u) {
      const double wx = std::max(0.0, 1 - std::abs(u + 0.5 - cx) / std::max(1.0, sx));
      const double wy = std::max(0.0, 1 - std::abs(v + 0.5 - cy) / std::max(1.0, sy));
      sum += wx * wy * image.pixels[(static_cast<std::size_t>(v) * image.width + u) * 3 + c];
      weights += wx * wy;
    }
  }
  return static_cast<std::uint8_t>(std::lround(sum / weights));
}

TEST(Resize, AgreesWithTheDefinition) {
  RgbImage image{23, 17, gradient(23, 17, 3)};
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {  // rough as well as smooth
    image.pixels[i] = static_cast<std::uint8_t>(image.pixels[i] / 2 + (i * 2654435761u >> 24) / 2);
  }
  struct Case {
    Box box;
    int height, width;
  };
  for (const auto& [box, height, width] :
       {Case{{0, 0, 23, 17}, 5, 7}, Case{{0, 0, 23, 17}, 40, 31}, Case{{3.5, 2.25, 9.5, 11}, 8, 8},
        Case{{20, 15, 3, 2}, 6, 6}, Case{{22, 16, 1, 1}, 4, 4}}) {
    Bytes out(static_cast<std::size_t>(3 * height * width));
    resize_box(image, box, height, width, out.data());
    for (int c = 0; c < 3; ++c) {
      for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) {
          EXPECT_NEAR(out[static_cast<std::size_t>((c * height + y) * width + x)],
                      resized_pixel(image, box, height, width, c, y, x), 1);
        }
      }
    }
  }
}

TEST(Resize, TheSameSizeChangesNothing) {
  const RgbImage image{6, 4, gradient(6, 4, 3)};
  Bytes out(72);
  resize_box(image, {0, 0, 6, 4}, 4, 6, out.data());
  for (int i = 0; i < 24; ++i) {
    for (int c = 0; c < 3; ++c) EXPECT_EQ(out[static_cast<std::size_t>(24 * c + i)], image.pixels[3 * i + c]);
  }
}

TEST(Resize, ABoxOutsideIsAnError) {
  const RgbImage image{6, 4, gradient(6, 4, 3)};
  Bytes out(300);
  expect_error([&] { resize_box(image, {2, 0, 5, 4}, 4, 4, out.data()); }, {"not inside", "6 x 4"});
}

TEST(Crop, CentreSquare) {
  const Box wide = centre_square({10, 4}), tall = centre_square({5, 10});
  EXPECT_EQ(wide.left, 3);
  EXPECT_EQ(wide.top, 0);
  EXPECT_EQ(wide.width, 4);
  EXPECT_EQ(tall.top, 2.5);
  EXPECT_EQ(tall.height, 5);
}

TEST(Crop, RandomCropsKeepTheirPromises) {
  double area_sum = 0;
  constexpr int kCount = 4000;
  for (std::uint64_t seed = 0; seed < kCount; ++seed) {
    const Box box = random_crop({100, 80}, 0.25, seed);
    EXPECT_GE(box.left, 0);
    EXPECT_GE(box.top, 0);
    EXPECT_LE(box.left + box.width, 100);
    EXPECT_LE(box.top + box.height, 80);
    const double ratio = box.width / box.height, area = box.width * box.height / 8000;
    EXPECT_GE(ratio, 0.74);
    EXPECT_LE(ratio, 1.36);
    EXPECT_GE(area, 0.24);
    area_sum += area;
  }
  // Large areas are rejected more often, so the mean lies below the middle of [0.25, 1].
  EXPECT_GT(area_sum / kCount, 0.5);
  EXPECT_LT(area_sum / kCount, 0.625);
  const Box a = random_crop({100, 80}, 0.25, 7), b = random_crop({100, 80}, 0.25, 7);
  EXPECT_EQ(a.left, b.left);
  EXPECT_EQ(a.width, b.width);
}

TEST(Crop, AnImageOfOnePixelIsItself) {
  const Box box = random_crop({1, 1}, 0.01, 3);
  EXPECT_EQ(box.width, 1);
  EXPECT_EQ(box.height, 1);
}

// --- folders ---------------------------------------------------------------------------------------------

class ImageFolder : public ::testing::Test {
 protected:
  void add(const std::string& name, const std::string& content = "x") {
    std::filesystem::create_directories((folder.path() / name).parent_path());
    folder.write(name, content);
  }
  TemporaryFolder folder;
};

TEST_F(ImageFolder, ListsClassesAndFilesSorted) {
  for (const char* name : {"b/2.JPG", "b/1.png", "a/z.jpeg", "a/notes.txt", "a/.hidden.jpg", "wnids.txt"})
    add(name);
  const ImageList list = list_image_folder(folder.path().string());
  EXPECT_EQ(list.class_names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(list.files,
            (std::vector<std::string>{folder / "a/z.jpeg", folder / "b/1.png", folder / "b/2.JPG"}));
  EXPECT_EQ(list.labels, (std::vector<std::int64_t>{0, 1, 1}));
  const ImageList again = list_image_folder(folder.path().string(), std::vector<std::string>{"a", "aa", "b"});
  EXPECT_EQ(again.labels, (std::vector<std::int64_t>{0, 2, 2}));
}

TEST_F(ImageFolder, SaysWhatIsMissing) {
  const std::string path = folder.path().string();
  expect_error([&] { list_image_folder(path + "/none"); }, {"there is no folder", "none"});
  expect_error([&] { list_image_folder(path); }, {"no class folders"});
  add("a/1.png");
  add("empty/readme");
  expect_error([&] { list_image_folder(path); }, {"empty", "no image"});
  expect_error([&] { list_image_folder(path, std::vector<std::string>{"b"}); },
               {"'a'", "not among the 1 classes"});
}

TEST_F(ImageFolder, LoadsTheCentreSquareOrACrop) {
  const Bytes pixels = gradient(48, 32, 3);
  add("image.png", encode_png(pixels, 48, 32, SPNG_COLOR_TYPE_TRUECOLOR));
  Bytes loaded(3 * 32 * 32), cropped(loaded), expected(loaded);
  load_image(folder / "image.png", 32, {}, loaded.data());
  resize_box({48, 32, pixels}, {8, 0, 32, 32}, 32, 32, expected.data());
  EXPECT_EQ(loaded, expected);
  load_image(folder / "image.png", 32, {0.2, 5}, cropped.data());
  resize_box({48, 32, pixels}, random_crop({48, 32}, 0.2, 5), 32, 32, expected.data());
  EXPECT_EQ(cropped, expected);
}

TEST_F(ImageFolder, ReducedDecodingShowsTheSamePicture) {
  const Bytes pixels = gradient(640, 480, 3);
  add("large.jpg", encode_jpeg(pixels, 640, 480));
  Bytes loaded(3 * 32 * 32), expected(loaded);
  load_image(folder / "large.jpg", 32, {}, loaded.data());  // decoded at an eighth
  resize_box({640, 480, pixels}, {80, 0, 480, 480}, 32, 32, expected.data());
  EXPECT_LE(largest_difference(loaded, expected), 4);
}

TEST_F(ImageFolder, ErrorsNameTheFile) {
  add("bad.jpg", "not an image");
  Bytes out(3 * 8 * 8);
  expect_error([&] { load_image(folder / "bad.jpg", 8, {}, out.data()); }, {"bad.jpg", "neither"});
  expect_error([&] { load_image(folder / "gone.jpg", 8, {}, out.data()); }, {"gone.jpg", "No such file"});
}

}  // namespace
}  // namespace topomask::testing
