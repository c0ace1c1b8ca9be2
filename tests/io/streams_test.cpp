// Files that are read and written piece by piece.
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "io/append_file.h"
#include "io/line_stream.h"
#include "support/compressed.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace topomask {
namespace {

using namespace topomask::testing;

TEST(line_stream, lines_do_not_depend_on_the_buffer) {
  const TemporaryFolder scratch;
  std::string text = "first\n\n  blanks around \r\n";
  for (int i = 0; i < 3000; ++i) text += std::string(static_cast<std::size_t>(i % 97), 'x') + "\n";
  text += "last without an end";
  // Two members, and zeros behind them, as tape drives leave.
  const std::string halves = gzip(text.substr(0, 1000)) + gzip(text.substr(1000)) + std::string(100, '\0');
  const std::vector<std::string> paths = {scratch.write("a.txt", text), scratch.write("a.txt.gz", halves),
                                          scratch.write("a.txt.xz", xz(text))};
  std::vector<std::string> expected;
  for (const std::string& path : paths) {
    for (const std::size_t buffer : {1u, 2u, 13u, 1u << 20}) {
      LineStream lines(path, {}, buffer);
      std::vector<std::string> found;
      for (std::string_view line; lines.next(line);) found.emplace_back(line);
      if (expected.empty()) expected = found;
      EXPECT_EQ(found, expected) << path << " " << buffer;
      EXPECT_EQ(lines.line_number(), 3004u);
    }
  }
  EXPECT_EQ(expected[2], "blanks around");
  EXPECT_EQ(expected.back(), "last without an end");
}

TEST(line_stream, an_endless_line_is_an_error) {
  const TemporaryFolder scratch;
  LineStream lines(scratch.write("a.txt", "short\n" + std::string((std::size_t{1} << 24) + 1, 'x')));
  std::string_view line;
  ASSERT_TRUE(lines.next(line));
  expect_error([&] { lines.next(line); }, "line 2: expected lines of at most 16777216 bytes");
}

TEST(append_file, gives_back_what_was_added) {
  const TemporaryFolder scratch;
  std::vector<std::int32_t> all(1000);
  std::iota(all.begin(), all.end(), 0);
  for (const std::size_t buffer : {1u, 64u, 1u << 20}) {
    AppendFile file(scratch / "numbers", buffer);
    for (std::size_t begin = 0, size = 0; begin < all.size(); begin += size) {
      size = std::min<std::size_t>(begin % 37 + 1, all.size() - begin);
      file.add(std::span<const std::int32_t>(all).subspan(begin, size));
    }
    EXPECT_EQ(file.size(), 4000u);
    EXPECT_EQ(file.read<std::int32_t>(), all);
    SequentialReader reader(file.path());
    std::vector<std::int32_t> piece;
    reader.read(piece, 3);
    reader.read(piece, 2);
    EXPECT_EQ(piece, (std::vector<std::int32_t>{3, 4}));
    expect_error([&] { reader.read(piece, 1000); }, "ended too early");
    AppendFile moved(std::move(file));
    EXPECT_TRUE(std::filesystem::exists(scratch / "numbers"));
    moved.remove();
    EXPECT_EQ(moved.size(), 0u);
    EXPECT_TRUE(moved.read<std::int32_t>().empty());
  }
  EXPECT_FALSE(std::filesystem::exists(scratch / "numbers"));
  AppendFile nowhere(scratch / "missing/file", 1);
  expect_error([&] { nowhere.add(std::span<const std::int32_t>(all)); }, "cannot write");
}

}  // namespace
}  // namespace topomask
