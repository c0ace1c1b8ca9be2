// Clips of video files: which frames they show, and files that are damaged, hostile or no videos.
#include "data/io/video.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "core/random.h"
#include "data/encoded_video.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace topomask::testing {
namespace {

using Bytes = std::vector<std::uint8_t>;

// Studio levels of a grey frame as red, green and blue.
double shown_level(int level) {
  return (level - 16) * 255.0 / 219;
}

class Video : public ::testing::Test {
 protected:
  std::string make(const std::string& name, const VideoOptions& options = {}) const {
    write_video(folder / name, options);
    return folder / name;
  }
  // The number of each frame of a clip, by its level.
  std::vector<int> numbers(const std::string& path, ClipChoice choice) const {
    choice.size = 16;
    Bytes clip(static_cast<std::size_t>(choice.frames) * 3 * 16 * 16);
    load_clip(path, choice, clip.data());
    std::vector<int> result;
    for (int t = 0; t < choice.frames; ++t) {
      const int low = clip[static_cast<std::size_t>(t) * 768 + 15 * 16 + 8];  // below the block
      result.push_back(static_cast<int>(std::lround((low * 219.0 / 255 + 16 - 40) / 5)));
    }
    return result;
  }
  TemporaryFolder folder;
};

TEST_F(Video, ShowsTheMiddleOfAVideo) {
  // 24 frames, of which 4 at a stride of 3 span 10: they begin at (24 - 10) / 2.
  for (const char* format : {"mp4", "matroska", "mov"}) {
    const std::string path = make(std::string("clip.") + format, {.format = format});
    EXPECT_EQ(numbers(path, {4, 3}), (std::vector<int>{7, 10, 13, 16})) << format;
    EXPECT_EQ(numbers(path, {24, 1}).back(), 23) << format;
  }
}

// AVI stores pictures in the order in which they are decoded, and no times.
TEST_F(Video, ShowsTheFramesOfAnAviInTheirOrder) {
  const auto expect_order = [&](const std::string& path) {
    std::vector<int> all(24);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(numbers(path, {24, 1}), all) << path;
    EXPECT_EQ(numbers(path, {4, 3}), (std::vector<int>{7, 10, 13, 16})) << path;
    EXPECT_EQ(numbers(path, {30, 1}).back(), 23) << path;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const std::vector<int> seen = numbers(path, {4, 2, 16, {1, seed}});
      for (std::size_t t = 1; t < seen.size(); ++t) EXPECT_EQ(seen[t], seen[t - 1] + 2) << path;
    }
  };
  for (const int b_frames : {0, 1, 2})
    expect_order(make(fmt::format("b{}.avi", b_frames), {.b_frames = b_frames, .format = "avi"}));
  expect_order(make("keys.avi", {.keyframe_every = 1, .b_frames = 0, .format = "avi"}));
  expect_order(make("one-key.avi", {.keyframe_every = 100, .format = "avi"}));
}

TEST_F(Video, RepeatsTheLastFrameOfAShortVideo) {
  const std::string path = make("short.mp4", {.frames = 3});
  EXPECT_EQ(numbers(path, {6, 1}), (std::vector<int>{0, 1, 2, 2, 2, 2}));
  EXPECT_EQ(numbers(path, {3, 4}), (std::vector<int>{0, 2, 2}));
}

TEST_F(Video, BeginsAnywhereAsAFunctionOfTheSeed) {
  const std::string path = make("clip.mp4");
  std::set<int> starts;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const ClipChoice choice = {4, 2, 16, {1, seed}};
    const std::vector<int> seen = numbers(path, choice);
    EXPECT_EQ(seen, numbers(path, choice));
    for (std::size_t t = 1; t < seen.size(); ++t) EXPECT_EQ(seen[t], seen[t - 1] + 2);
    starts.insert(seen.front());
  }
  EXPECT_EQ(*starts.begin(), 0);
  EXPECT_EQ(*starts.rbegin(), 17);  // 24 - 7
  EXPECT_GT(starts.size(), 10u);
}

TEST_F(Video, CropsAllFramesAlike) {
  const std::string path = make("clip.mp4");
  Bytes clip(2 * 3 * 48 * 48);
  load_clip(path, {2, 1, 48, {}}, clip.data());
  // The centre square of 64 x 48 pixels, whose block moves by 2 per frame; the clip begins at frame 11.
  const auto pixel = [&](int t, int y, int x) {
    return clip[static_cast<std::size_t>((t * 3 * 48 + y) * 48 + x)];
  };
  EXPECT_NEAR(pixel(0, 40, 24), shown_level(40 + 5 * 11), 6);
  EXPECT_GT(pixel(0, 3, 2 * 11 - 8 + 4), 220);
  EXPECT_LT(pixel(0, 3, 2 * 11 - 8 - 4), 160);
  EXPECT_GT(pixel(1, 3, 2 * 12 - 8 + 4), 220);
}

TEST_F(Video, SaysWhatIsWrongWithAFile) {
  Bytes clip(2 * 3 * 8 * 8);
  const auto load = [&](const std::string& path) {
    return [&clip, path] { load_clip(path, {2, 1, 8, {}}, clip.data()); };
  };
  folder.write("text.mp4", "this is no video");
  expect_error(load(folder / "text.mp4"), {"text.mp4", "no MP4"});
  folder.write("empty.mp4", "");
  expect_error(load(folder / "empty.mp4"), {"empty.mp4", "no MP4"});
  expect_error(load(folder / "gone.mp4"), {"gone.mp4", "No such file"});
  // A playlist names other files, which must not be opened.
  folder.write("list.mp4", "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n/etc/passwd\n#EXT-X-ENDLIST\n");
  expect_error(load(folder / "list.mp4"), {"list.mp4", "no MP4"});
  folder.write("script.mp4", "ffconcat version 1.0\nfile /etc/passwd\n");
  expect_error(load(folder / "script.mp4"), {"script.mp4", "no MP4"});
  expect_error([&] { load_clip(folder / "text.mp4", {0, 1, 8, {}}, clip.data()); }, {"frames", "got 0"});
  const std::string good = make("good.mp4");
  expect_error(
      [&] {
        load_clip(good, {2, 1, 8, {}, 100}, clip.data());
      },
      {"good.mp4"});  // at most 100 pixels
  load_clip(good, {2, 1, 8, {}}, clip.data());
}

// Whatever the bytes, the reader returns a clip or throws its own error.
TEST_F(Video, SurvivesDamage) {
  const std::string whole = read_bytes(make("clip.mp4", {.width = 32, .height = 32, .frames = 10}));
  Bytes clip(4 * 3 * 8 * 8);
  int read = 0, refused = 0;
  const auto attempt = [&](const std::string& content) {
    try {
      decode_clip(content, "damaged", {4, 2, 8, {}}, clip.data());
      ++read;
    } catch (const Error&) {
      ++refused;
    }
  };
  RandomStream random(3, 4);
  for (std::size_t length = 0; length < whole.size(); length += whole.size() / 40)
    attempt(whole.substr(0, length));
  for (int trial = 0; trial < 400; ++trial) {
    std::string damaged = whole;
    const auto changes = 1 + random.next_below(trial % 2 == 0 ? 3 : 40);
    for (std::uint64_t i = 0; i < changes; ++i)
      damaged[random.next_below(damaged.size())] = static_cast<char>(random.next_below(256));
    attempt(damaged);
  }
  EXPECT_GT(read, 10);
  EXPECT_GT(refused, 10);
}

}  // namespace
}  // namespace topomask::testing
