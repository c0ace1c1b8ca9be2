// RGB-D frames in files, written and read; PNG files as another library reads them.
#include "topomask/rgbd.h"

#include <gtest/gtest.h>
#include <spng.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "data/io/image.h"
#include "data/io/png_writer.h"
#include "io/files.h"
#include "stored.h"
#include "support/expect_error.h"

namespace topomask::testing {
namespace {

namespace fs = std::filesystem;

class Rgbd : public ::testing::Test {
 protected:
  Rgbd() { fs::remove_all(folder); }
  ~Rgbd() override { fs::remove_all(folder); }

  std::string path(const std::string& name) const { return folder + "/" + name; }
  void expect_refused(std::initializer_list<const char*> parts) const {
    expect_error([&] { RgbdFolder(folder).read(0); }, parts);
  }

  const std::string folder =
      ::testing::TempDir() + "/rgbd-" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
  // A folder with one frame.
  void write(std::int64_t number, const RgbdImage& frame) const {
    fs::create_directories(folder);
    write_rgbd_intrinsics(folder, frame.intrinsics);
    write_rgbd_frame(folder, number, frame);
  }

  const RgbdImage image = render_robot(stored_episode(RobotTask::lift_can), 3, 1);
};

TEST_F(Rgbd, WrittenFramesAreRead) {
  write(7, image);
  write(12, render_robot(stored_episode(RobotTask::lift_can), 4, 1));
  EXPECT_TRUE(is_rgbd_folder(folder));
  const RgbdFolder read(folder);
  ASSERT_EQ(read.frames(), 2);
  const RgbdImage back = read.read(0);
  EXPECT_EQ(back.width, 128);
  EXPECT_EQ(back.colour, image.colour);
  EXPECT_EQ(back.pose, image.pose);
  EXPECT_EQ(back.intrinsics, image.intrinsics);
  EXPECT_TRUE(back.segment.empty());
  for (std::size_t i = 0; i < image.depth.size(); ++i) ASSERT_NEAR(back.depth[i], image.depth[i], 5.1e-4);
}

TEST_F(Rgbd, MissingAndDamagedFilesGiveOneSentence) {
  expect_refused({"rgbd-", "is not a folder"});
  fs::create_directories(folder);
  EXPECT_FALSE(is_rgbd_folder(folder));
  expect_refused({"camera-intrinsics.txt", "is missing", "3 x 3"});
  write_file(path("camera-intrinsics.txt"), "1 0 1\n0 1 1\n0 0 1\n");
  expect_refused({"holds no frames"});
  fs::remove_all(folder);

  write(0, image);
  const std::string intrinsics = read_file(path("camera-intrinsics.txt")),
                    pose = read_file(path("frame-000000.pose.txt")),
                    colour = read_file(path("frame-000000.color.png")),
                    depth = read_file(path("frame-000000.depth.png"));
  const auto with = [&](const std::string& name, const std::string& content,
                        std::initializer_list<const char*> parts) {
    const std::string before = read_file(path(name));
    write_file(path(name), content);
    expect_refused(parts);
    write_file(path(name), before);
  };
  with("camera-intrinsics.txt", "1 0 1\n0 1 1\n", {"camera-intrinsics.txt", "expected 3 x 3 numbers, got 6"});
  with("camera-intrinsics.txt", "1 0 1\n0 1 one\n0 0 1\n", {"number 6 is 'one'"});
  with("camera-intrinsics.txt", intrinsics + "4", {"there are more"});
  with("camera-intrinsics.txt", "-1 0 1\n0 1 1\n0 0 1\n", {"fx and fy above 0"});
  with("frame-000000.pose.txt", "nan" + pose.substr(pose.find(' ')),
       {"frame-000000.pose.txt", "finite numbers, number 1 is 'nan'"});
  with("frame-000000.pose.txt", "2 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1",
       {"frame-000000.pose.txt", "must be a rotation"});
  with("frame-000000.pose.txt", "1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 2", {"0 0 0 1 as the last row"});
  with("frame-000000.depth.png", colour, {"frame-000000.depth.png", "one channel of 16 bits"});
  with("frame-000000.depth.png", depth.substr(0, depth.size() / 2), {"frame-000000.depth.png", "damaged"});
  with("frame-000000.depth.png", "", {"frame-000000.depth.png", "is empty"});
  const std::vector<std::uint16_t> small(16, 1000);
  with("frame-000000.depth.png", encode_png_grey16(small.data(), 4, 4), {"128 x 128", "4 x 4"});
  with("frame-000000.color.png", "no picture", {"frame-000000.color.png", "neither a JPEG nor a PNG"});

  fs::remove(path("frame-000000.depth.png"));
  expect_refused({"frame-000000.depth.png", "is missing, although"});
  write_file(path("frame-000000.depth.png"), depth);
  write_file(path("frame-0.color.png"), colour);
  write_file(path("frame-0.depth.png"), depth);
  write_file(path("frame-0.pose.txt"), pose);
  expect_refused({"are the same frame"});
  fs::remove(path("frame-0.color.png"));
  expect_error([&] { RgbdFolder(folder).read(1); }, "frame must be 0 to 0, got 1");
  expect_error([&] { write_rgbd_frame(folder + "/nowhere", 0, image); }, "nowhere");
}

TEST_F(Rgbd, DepthThatIsUnknownIsZero) {
  RgbdImage far = image;
  far.depth.assign(far.depth.size(), 1.f);
  far.depth[0] = 0;
  far.depth[1] = 70;  // more than 16 bits of millimetres
  far.depth[2] = std::nanf("");
  write(0, far);
  // As the cameras of 7-Scenes write what they do not know.
  std::vector<std::uint16_t> numbers =
      decode_grey16(read_file(path("frame-000000.depth.png")), "depth").pixels;
  EXPECT_EQ(numbers[1], 0);
  numbers[3] = 65535;
  write_file(path("frame-000000.depth.png"), encode_png_grey16(numbers.data(), 128, 128));
  const std::vector<float> depth = RgbdFolder(folder).read(0).depth;
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(depth[i], 0) << i;
  EXPECT_EQ(depth[4], 1);
}

TEST(RgbdFiles, SevenScenesIsRead) {
  const char* data = std::getenv("TOPOMASK_DATA");
  const std::string folder = data == nullptr ? "" : std::string(data) + "/rgbd7s";
  if (folder.empty() || !fs::exists(folder)) GTEST_SKIP() << "TOPOMASK_DATA is not set";
  const RgbdFolder frames(folder);
  EXPECT_EQ(frames.frames(), 150);
  const RgbdImage image = frames.read(149);
  EXPECT_EQ(image.width, 640);
  EXPECT_EQ(image.height, 480);
  EXPECT_EQ(image.intrinsics, (std::array<float, 4>{585, 585, 320, 240}));
  double nearest = 1e9, farthest = 0;
  for (const float depth : image.depth) {
    if (depth == 0) continue;
    nearest = std::min<double>(nearest, depth);
    farthest = std::max<double>(farthest, depth);
  }
  EXPECT_GT(nearest, .3);  // metres, in a room
  EXPECT_LT(farthest, 10);
}

struct Decoded {
  spng_ihdr header{};
  std::vector<std::uint8_t> pixels;
};
Decoded decode_with_spng(const std::string& bytes, int format) {
  const std::unique_ptr<spng_ctx, void (*)(spng_ctx*)> context(spng_ctx_new(0), spng_ctx_free);
  Decoded result;
  std::size_t size = 0;
  EXPECT_EQ(spng_set_png_buffer(context.get(), bytes.data(), bytes.size()), 0);
  EXPECT_EQ(spng_get_ihdr(context.get(), &result.header), 0);
  EXPECT_EQ(spng_decoded_image_size(context.get(), format, &size), 0);
  result.pixels.resize(size);
  EXPECT_EQ(spng_decode_image(context.get(), result.pixels.data(), size, format, 0), 0);
  EXPECT_EQ(spng_decode_chunks(context.get()), 0);  // checksums up to the end
  return result;
}

TEST(Png, PicturesAreWhatWasGiven) {
  const RgbdImage image = render_robot(stored_episode(RobotTask::sweep), 10, 0);
  const std::string bytes = encode_png_rgb(image.colour.data(), 128, 128);
  EXPECT_EQ(decode_with_spng(bytes, SPNG_FMT_RGB8).pixels, image.colour);
  EXPECT_LT(bytes.size(), image.colour.size() / 2);
  std::vector<std::uint16_t> numbers;
  for (int i = 0; i < 300; ++i) numbers.push_back(static_cast<std::uint16_t>(i * 217));
  const Grey16Image grey = decode_grey16(encode_png_grey16(numbers.data(), 20, 15), "grey");
  EXPECT_EQ(grey.width, 20);
  EXPECT_EQ(grey.pixels, numbers);
}

TEST(Png, AnimationsHoldAllFrames) {
  std::vector<std::vector<std::uint8_t>> frames;
  for (int frame = 0; frame < 3; ++frame)
    frames.push_back(render_robot(stored_episode(RobotTask::sweep), frame, 0).colour);
  const std::string bytes = encode_png_animation(frames, 128, 128, .5);
  EXPECT_EQ(decode_with_spng(bytes, SPNG_FMT_RGB8).pixels, frames[0]);  // others see the first
  // The chunks: each frame has a control of 26 bytes, and all are numbered in their order. The data of the
  // second frame, as a picture of its own, is the second frame.
  constexpr std::size_t kSignature = 8, kHeader = 25;
  std::string second = bytes.substr(0, kSignature + kHeader);
  std::uint32_t next = 0;
  int controls = 0;
  const auto number = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t k = 0; k < 4; ++k) value = value << 8 | static_cast<std::uint8_t>(bytes[at + k]);
    return value;
  };
  const auto append = [](std::string& file, const std::string& type, const std::string& data) {
    const std::string body = type + data;
    const auto checksum =
        crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
    for (int shift = 24; shift >= 0; shift -= 8) file += static_cast<char>(data.size() >> shift & 0xff);
    file += body;
    for (int shift = 24; shift >= 0; shift -= 8) file += static_cast<char>(checksum >> shift & 0xff);
  };
  for (std::size_t at = kSignature; at < bytes.size(); at += 12 + number(at)) {
    const std::string type = bytes.substr(at + 4, 4);
    if (type == "acTL") {
      EXPECT_EQ(number(at + 8), 3u);
    }
    if (type == "fcTL") {
      ++controls;
      EXPECT_EQ(number(at), 26u);
      EXPECT_EQ(number(at + 8 + 20), 500u << 16 | 1000u);  // half a second
    }
    if (type == "fcTL" || type == "fdAT") {
      EXPECT_EQ(number(at + 8), next++);
    }
    if (type == "fdAT" && controls == 2) append(second, "IDAT", bytes.substr(at + 12, number(at) - 4));
  }
  append(second, "IEND", "");
  EXPECT_EQ(decode_with_spng(second, SPNG_FMT_RGB8).pixels, frames[1]);
  EXPECT_EQ(controls, 3);
  EXPECT_EQ(next, 5u);
  frames[1].pop_back();
  expect_error([&] { encode_png_animation(frames, 128, 128, .5); }, "frame 1");
  expect_error([&] { encode_png_animation({}, 128, 128, .5); }, "at least one frame");
}

}  // namespace
}  // namespace topomask::testing
