#include "data/io/image.h"

#include <spng.h>
#include <turbojpeg.h>

#include <memory>

#include "core/check.h"

namespace topomask {
namespace {

constexpr std::int64_t kMostPixels = std::int64_t{1} << 26;

const unsigned char* bytes_of(std::string_view content) {
  return reinterpret_cast<const unsigned char*>(content.data());
}

bool is_jpeg(std::string_view content) {
  return content.starts_with("\xFF\xD8");
}

bool is_png(std::string_view content) {
  return content.starts_with("\x89PNG\r\n\x1A\n");
}

void check_extent(std::int64_t width, std::int64_t height, const std::string& name) {
  check(width > 0 && height > 0 && width * height <= kMostPixels,
        "'{}': expected an image of 1 to {} pixels, its header says {} x {}", name, kMostPixels, width,
        height);
}

std::vector<std::uint8_t> pixels_for(int width, int height, int channels) {
  return std::vector<std::uint8_t>(static_cast<std::size_t>(width) * height * channels);
}

// --- JPEG ------------------------------------------------------------------------------------------------

class JpegDecoder {
 public:
  JpegDecoder(std::string_view content, const std::string& name)
      : content_(content), name_(name), handle_(tjInitDecompress(), tjDestroy) {
    check(handle_ != nullptr, "'{}': the JPEG decoder cannot be started", name);
    int subsampling = 0;
    const int status = tjDecompressHeader3(handle_.get(), bytes_of(content), content.size(), &width_,
                                           &height_, &subsampling, &colour_space_);
    // A warning alone is about bytes that do not matter.
    if (status != 0 && tjGetErrorCode(handle_.get()) == TJERR_FATAL) damaged();
    check(width_ > 0, "'{}' is a damaged JPEG file: it ends before its header does", name);
    check_extent(width_, height_, name);
  }

  ImageExtent extent() const { return {width_, height_}; }

  RgbImage decode(int denominator) {
    const bool four_inks = colour_space_ == TJCS_CMYK || colour_space_ == TJCS_YCCK;
    RgbImage image{(width_ + denominator - 1) / denominator, (height_ + denominator - 1) / denominator, {}};
    image.pixels = pixels_for(image.width, image.height, four_inks ? 4 : 3);
    const int status =
        tjDecompress2(handle_.get(), bytes_of(content_), content_.size(), image.pixels.data(), image.width, 0,
                      image.height, four_inks ? TJPF_CMYK : TJPF_RGB, TJFLAG_LIMITSCANS | TJFLAG_ACCURATEDCT);
    if (status != 0) {
      // Cameras leave stray bytes between the markers; everything else that the decoder only warns about
      // means that pixels are made up.
      const std::string_view warning = tjGetErrorStr2(handle_.get());
      if (warning.find("extraneous bytes") == std::string_view::npos) damaged();
    }
    if (four_inks) convert_inks(image);
    return image;
  }

 private:
  [[noreturn]] void damaged() const {
    fail("'{}' is a damaged JPEG file: {}", name_, tjGetErrorStr2(handle_.get()));
  }

  // Files with four inks come from Adobe programs, which store them inverted: 255 is no ink.
  static void convert_inks(RgbImage& image) {
    const std::size_t count = static_cast<std::size_t>(image.width) * image.height;
    for (std::size_t i = 0; i < count; ++i) {
      const int black = image.pixels[4 * i + 3];
      for (std::size_t c = 0; c < 3; ++c) {
        image.pixels[3 * i + c] = static_cast<std::uint8_t>((image.pixels[4 * i + c] * black + 127) / 255);
      }
    }
    image.pixels.resize(3 * count);
  }

  std::string_view content_;
  const std::string& name_;
  std::unique_ptr<void, int (*)(void*)> handle_;
  int width_ = 0, height_ = 0, colour_space_ = 0;
};

// --- PNG -------------------------------------------------------------------------------------------------

class PngDecoder {
 public:
  PngDecoder(std::string_view content, const std::string& name)
      : name_(name), context_(spng_ctx_new(0), spng_ctx_free) {
    check(context_ != nullptr, "'{}': the PNG decoder cannot be started", name);
    require(spng_set_png_buffer(context_.get(), content.data(), content.size()));
    require(spng_get_ihdr(context_.get(), &header_));
    check_extent(header_.width, header_.height, name);
  }

  ImageExtent extent() const { return {static_cast<int>(header_.width), static_cast<int>(header_.height)}; }

  RgbImage decode() {
    const auto [width, height] = extent();
    RgbImage image{width, height, pixels_for(width, height, 3)};
    std::size_t size = 0;
    require(spng_decoded_image_size(context_.get(), SPNG_FMT_RGB8, &size));
    check(size == image.pixels.size(), "'{}': expected {} bytes of pixels, the PNG decoder makes {}", name_,
          image.pixels.size(), size);
    require(spng_decode_image(context_.get(), image.pixels.data(), size, SPNG_FMT_RGB8, 0));
    return image;
  }

  Grey16Image decode_grey16() {
    check(
        header_.color_type == SPNG_COLOR_TYPE_GRAYSCALE && header_.bit_depth == 16,
        "'{}': expected a PNG image with one channel of 16 bits, its header says {} bits and colour type {}",
        name_, header_.bit_depth, header_.color_type);
    const auto [width, height] = extent();
    Grey16Image image{width, height, std::vector<std::uint16_t>(static_cast<std::size_t>(width) * height)};
    // "PNG" keeps the file's own channels and turns them into the machine's byte order.
    require(spng_decode_image(context_.get(), image.pixels.data(), 2 * image.pixels.size(), SPNG_FMT_PNG, 0));
    return image;
  }

 private:
  void require(int status) const {
    check(status == 0, "'{}' is a damaged PNG file: {}", name_, spng_strerror(status));
  }

  const std::string& name_;
  std::unique_ptr<spng_ctx, void (*)(spng_ctx*)> context_;
  spng_ihdr header_{};
};

[[noreturn]] void unknown_format(std::string_view content, const std::string& name) {
  if (content.empty()) fail("'{}' is empty: expected a JPEG or PNG image", name);
  std::string start;
  for (const char c : content.substr(0, 4)) start += fmt::format(" {:02x}", static_cast<std::uint8_t>(c));
  fail("'{}' is neither a JPEG nor a PNG image: it begins with{}", name, start);
}

}  // namespace

ImageExtent read_image_extent(std::string_view content, const std::string& name) {
  if (is_jpeg(content)) return JpegDecoder(content, name).extent();
  if (is_png(content)) return PngDecoder(content, name).extent();
  unknown_format(content, name);
}

RgbImage decode_image(std::string_view content, const std::string& name, int denominator) {
  check(denominator == 1 || denominator == 2 || denominator == 4 || denominator == 8,
        "decode_image: expected a denominator of 1, 2, 4 or 8, got {}", denominator);
  if (is_jpeg(content)) return JpegDecoder(content, name).decode(denominator);
  if (is_png(content)) return PngDecoder(content, name).decode();
  unknown_format(content, name);
}

Grey16Image decode_grey16(std::string_view content, const std::string& name) {
  if (is_png(content)) return PngDecoder(content, name).decode_grey16();
  if (is_jpeg(content)) fail("'{}' is a JPEG image: expected a PNG image with one channel of 16 bits", name);
  unknown_format(content, name);
}

}  // namespace topomask
