// The generated sets against oracles that look at nothing but the pixels.
#include "data/cpu/generated.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

#include "core/random.h"
#include "support/expect_edges.h"

namespace topomask::testing {
namespace {

using Bytes = std::vector<std::uint8_t>;

// --- strokes ---------------------------------------------------------------------------------------------

Bytes strokes(const StrokesOptions& options, int label, std::uint64_t seed) {
  Bytes pixels(static_cast<std::size_t>(options.size) * options.size);
  draw_strokes(options, label, seed, pixels.data());
  return pixels;
}

// The orientation of a cell by the second moments of its brightness.
int orientation_of_cell(const Bytes& pixels, const StrokesOptions& options, int row, int col) {
  double xx = 0, yy = 0, xy = 0;
  for (int y = 0; y < options.cell; ++y) {
    for (int x = 0; x < options.cell; ++x) {
      const double weight =
          pixels[static_cast<std::size_t>((row * options.cell + y) * options.size + col * options.cell + x)];
      const double dx = x + 0.5 - options.cell / 2.0, dy = y + 0.5 - options.cell / 2.0;
      xx += weight * dx * dx, yy += weight * dy * dy, xy += weight * dx * dy;
    }
  }
  const double turn = std::atan2(2 * xy, xx - yy) / 2 / std::numbers::pi * options.orientations();
  return (static_cast<int>(std::lround(turn)) + 2 * options.orientations()) % options.orientations();
}

// The angle between neighbours that is commonest, compared with how often chance would show it.
int class_by_neighbours(const Bytes& cells, const StrokesOptions& options) {
  const int grid = options.grid(), turns = options.orientations();
  std::vector<double> excess(static_cast<std::size_t>(options.classes), 0);
  for (int i = 0; i < grid * grid; ++i) {
    for (const int j : {i % grid + 1 < grid ? i + 1 : -1, i / grid + 1 < grid ? i + grid : -1}) {
      if (j < 0) continue;
      const int turn = std::abs(cells[static_cast<std::size_t>(i)] - cells[static_cast<std::size_t>(j)]);
      const int between = std::min(turn, turns - turn);
      excess[static_cast<std::size_t>(between)] += between == 0 || 2 * between == turns ? 2 : 1;
    }
  }
  return static_cast<int>(std::max_element(excess.begin(), excess.end()) - excess.begin());
}

TEST(Strokes, EveryPictureHoldsEachOrientationEquallyOften) {
  StrokesOptions options;
  for (int label = 0; label < 3; ++label) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const Bytes cells = arrange_strokes(options, label, seed);
      for (int turn = 0; turn < 4; ++turn) EXPECT_EQ(std::count(cells.begin(), cells.end(), turn), 16);
    }
  }
  options.size = 20;  // 25 cells of 4 orientations
  const Bytes cells = arrange_strokes(options, 1, 5);
  for (int turn = 0; turn < 4; ++turn)
    EXPECT_THAT(std::count(cells.begin(), cells.end(), turn), ::testing::AnyOf(6, 7));
}

TEST(Strokes, NeighboursTellTheClass) {
  for (const int classes : {2, 3, 4}) {
    StrokesOptions options;
    options.classes = classes;
    options.cell = classes == 4 ? 6 : 4;
    options.size = 8 * options.cell;
    int right = 0, cells_right = 0, cells_seen = 0, pictures = 0;
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      for (int label = 0; label < classes; ++label, ++pictures) {
        const Bytes pixels = strokes(options, label, seed), truth = arrange_strokes(options, label, seed);
        Bytes cells;
        for (int i = 0; i < 64; ++i) {
          cells.push_back(static_cast<std::uint8_t>(orientation_of_cell(pixels, options, i / 8, i % 8)));
          cells_right += cells.back() == truth[static_cast<std::size_t>(i)];
          ++cells_seen;
        }
        right += class_by_neighbours(cells, options) == label;
      }
    }
    EXPECT_GT(cells_right, 0.9 * cells_seen) << classes;
    EXPECT_GT(right, 0.95 * pictures) << classes;
  }
}

TEST(Strokes, WithoutCouplingThereIsNothingToSee) {
  StrokesOptions options;
  options.coupling = 0;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    EXPECT_EQ(arrange_strokes(options, 0, seed), arrange_strokes(options, 2, seed));
  }
}

TEST(Strokes, NoPositionPrefersAnOrientation) {
  // Position and orientation are independent: at every cell each orientation comes up in a quarter of the
  // pictures of a class, within four standard errors (and a little, since 256 are compared).
  constexpr int kPictures = 2000;
  const double bound = 4.5 * std::sqrt(0.25 * 0.75 / kPictures);
  const StrokesOptions options;
  for (int label = 0; label < 3; ++label) {
    std::vector<std::array<int, 4>> count(64, {0, 0, 0, 0});
    for (std::uint64_t seed = 0; seed < kPictures; ++seed) {
      const Bytes cells = arrange_strokes(options, label, derive_seed(3, seed));
      for (std::size_t i = 0; i < 64; ++i) ++count[i][cells[i]];
    }
    for (const auto& cell : count) {
      for (const int times : cell) EXPECT_NEAR(static_cast<double>(times) / kPictures, 0.25, bound);
    }
  }
}

// --- motion ----------------------------------------------------------------------------------------------

Bytes motion(const MotionOptions& options, int label, std::uint64_t seed) {
  Bytes pixels(static_cast<std::size_t>(options.frames) * options.size * options.size);
  draw_motion(options, label, seed, pixels.data());
  return pixels;
}

Bytes frame_of(const Bytes& clip, const MotionOptions& options, int frame) {
  const auto bytes = static_cast<std::ptrdiff_t>(options.size) * options.size;
  return Bytes(clip.begin() + frame * bytes, clip.begin() + (frame + 1) * bytes);
}

// Twice the angle of a cell's stroke, by the second moments of its brightness.
double double_angle(const Bytes& pixels, const MotionOptions& options, int cell) {
  const int row = cell / options.grid(), column = cell % options.grid();
  double difference = 0, mixed = 0;
  for (int y = 0; y < options.cell; ++y) {
    for (int x = 0; x < options.cell; ++x) {
      const double weight = pixels[static_cast<std::size_t>((row * options.cell + y) * options.size +
                                                            column * options.cell + x)];
      const double dx = x + 0.5 - options.cell / 2.0, dy = y + 0.5 - options.cell / 2.0;
      difference += weight * (dx * dx - dy * dy), mixed += weight * dx * dy;
    }
  }
  return std::atan2(2 * mixed, difference);
}

// How every cell turns, by the pixels of the clip in a given order of its frames.
std::vector<double> seen_turns(const Bytes& clip, const MotionOptions& options,
                               const std::vector<int>& order) {
  std::vector<double> turns(static_cast<std::size_t>(options.grid() * options.grid()), 0);
  for (std::size_t t = 0; t + 1 < order.size(); ++t) {
    const Bytes now = frame_of(clip, options, order[t]), next = frame_of(clip, options, order[t + 1]);
    for (std::size_t i = 0; i < turns.size(); ++i) {
      const auto cell = static_cast<int>(i);
      turns[i] += std::sin(double_angle(next, options, cell) - double_angle(now, options, cell));
    }
  }
  for (double& turn : turns) turn = turn > 3 ? 1 : turn < -3 ? -1 : 0;
  return turns;
}

// Class 0 where more neighbours both turn clockwise than both turn the other way.
int class_by_clusters(const std::vector<double>& turns, int grid) {
  double sum = 0;
  for (int i = 0; i < grid * grid; ++i) {
    const int row = i / grid, column = i % grid;
    for (const int j : {row * grid + (column + 1) % grid, (row + 1) % grid * grid + column}) {
      const double own = turns[static_cast<std::size_t>(i)], other = turns[static_cast<std::size_t>(j)];
      if (own == other) sum += own;
    }
  }
  return sum > 0 ? 0 : 1;
}

TEST(Motion, NeighboursTellTheClassInTheOrderOfTheFramesAlone) {
  const MotionOptions options;
  std::vector<int> order(8), shuffled(8);
  std::iota(order.begin(), order.end(), 0);
  RandomStream random(1, 2);
  int right = 0, right_shuffled = 0, clips = 0, cells_right = 0, cells = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    for (int label = 0; label < 2; ++label, ++clips) {
      const Bytes clip = motion(options, label, seed);
      const std::vector<std::int8_t> truth = arrange_motion(options, label, seed);
      const std::vector<double> seen = seen_turns(clip, options, order);
      for (std::size_t i = 0; i < truth.size(); ++i, ++cells) cells_right += seen[i] == truth[i];
      right += class_by_clusters(seen, options.grid()) == label;
      shuffled = order;
      for (std::size_t i = 7; i > 0; --i) std::swap(shuffled[i], shuffled[random.next_below(i + 1)]);
      right_shuffled += class_by_clusters(seen_turns(clip, options, shuffled), options.grid()) == label;
    }
  }
  EXPECT_GT(cells_right, 0.9 * cells);
  EXPECT_GT(right, 0.95 * clips);
  const double standard_error = std::sqrt(0.25 / clips);
  EXPECT_NEAR(static_cast<double>(right_shuffled) / clips, 0.5, 4 * standard_error);
}

// Whatever a model sees of a clip without the order of its frames, it sees of the other class as well.
TEST(Motion, OneClassIsTheReversalOfTheOther) {
  MotionOptions options;
  options.noise = 0;
  for (const int frames : {2, 5, 8}) {
    options.frames = frames;
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      const Bytes one = motion(options, 0, seed), other = motion(options, 1, seed);
      for (int frame = 0; frame < frames; ++frame)
        EXPECT_EQ(frame_of(one, options, frame), frame_of(other, options, frames - 1 - frame));
      EXPECT_NE(one, other);
    }
  }
}

// The number of cells that turn with the class: 21 of 64 and a sixth of that times (surplus + a normal
// number).
TEST(Motion, NumbersSayAsMuchAsTheSurplus) {
  constexpr int kClips = 1000;
  for (const double surplus : {0.0, 0.5}) {
    MotionOptions options;
    options.surplus = surplus;
    double sum = 0;
    for (std::uint64_t seed = 0; seed < kClips; ++seed) {
      const int label = static_cast<int>(seed % 2);
      const std::vector<std::int8_t> turns = arrange_motion(options, label, derive_seed(6, seed));
      const auto with = std::count(turns.begin(), turns.end(), label == 0 ? 1 : -1);
      EXPECT_EQ(with + std::count(turns.begin(), turns.end(), label == 0 ? -1 : 1), 42);
      sum += static_cast<double>(with);
    }
    EXPECT_NEAR(sum / kClips, 21 + 3.5 * surplus, 4 * 3.5 / std::sqrt(kClips)) << surplus;
  }
}

TEST(Motion, NoPositionPrefersASense) {
  constexpr int kClips = 2000;
  const double share = 21.0 / 64, bound = 4.5 * std::sqrt(share * (1 - share) / kClips);
  MotionOptions options;
  options.surplus = 0;
  std::vector<std::array<int, 3>> count(64, {0, 0, 0});
  for (std::uint64_t seed = 0; seed < kClips; ++seed) {
    const std::vector<std::int8_t> turns = arrange_motion(options, 0, derive_seed(5, seed));
    for (std::size_t i = 0; i < 64; ++i) ++count[i][static_cast<std::size_t>(turns[i] + 1)];
  }
  for (const auto& cell : count) {
    EXPECT_NEAR(static_cast<double>(cell[0]) / kClips, share, bound);
    EXPECT_NEAR(static_cast<double>(cell[2]) / kClips, share, bound);
  }
}

// A single frame: no cell of either class prefers an angle.
TEST(Motion, AngleAndClassAreIndependentInEveryFrame) {
  constexpr int kClips = 400;
  MotionOptions options;
  options.noise = 0;
  for (int label = 0; label < 2; ++label) {
    double cosines = 0, sines = 0, neighbours = 0;
    int seen = 0;
    for (std::uint64_t seed = 0; seed < kClips; ++seed) {
      const Bytes first = frame_of(motion(options, label, seed), options, 0);
      for (int i = 0; i < 64; i += 2, ++seen) {  // pairs that do not overlap are independent
        const double angle = double_angle(first, options, i), beside = double_angle(first, options, i + 1);
        cosines += std::cos(angle), sines += std::sin(angle), neighbours += std::cos(angle - beside);
      }
    }
    // A cosine of a uniform angle has the variance 1/2; pixels add a little for strokes that lie along them.
    const double bound = 4 * std::sqrt(0.5 / seen);
    EXPECT_NEAR(sines / seen, 0, bound) << label;
    EXPECT_NEAR(neighbours / seen, 0, bound + 0.01) << label;
    EXPECT_NEAR(cosines / seen, 0, bound + 0.01) << label;
  }
}

// --- pathfinder ------------------------------------------------------------------------------------------

// The end of a dash lies in a pixel whose centre is at most 0.71 away, which is at least this bright; so ink
// on both sides of a gap of 2 is at most 3.42 apart, and that of different curves farther.
constexpr int kInk = 30;
constexpr double kBridge = 3.42, kDot = 2.35;
constexpr int kBrightestDash = 180;

class Picture {
 public:
  Picture(const PathfinderOptions& options, int label, std::uint64_t seed)
      : size_(options.size), pixels_(static_cast<std::size_t>(size_) * size_) {
    draw_pathfinder(options, label, seed, pixels_.data());
    find_dots();
    join_dashes();
  }

  double dot_distance() const { return std::hypot(dots_[0].x - dots_[1].x, dots_[0].y - dots_[1].y); }
  bool connected() const { return curve_of(dots_[0]) == curve_of(dots_[1]); }
  int curves() const {
    int roots = 0;
    for (std::size_t i = 0; i < ink_.size(); ++i) roots += find(i) == i;
    return roots;
  }

 private:
  struct Spot {
    double x, y;
  };

  // The dots are the only things brighter than a dash: the middle of the white pixels around the first one
  // met.
  void find_dots() {
    std::vector<std::vector<Spot>> groups;
    for (int y = 0; y < size_; ++y) {
      for (int x = 0; x < size_; ++x) {
        if (at(x, y) <= kBrightestDash) continue;
        const Spot spot{static_cast<double>(x), static_cast<double>(y)};
        const auto near = std::find_if(groups.begin(), groups.end(),
                                       [&](const auto& group) { return distance(group.front(), spot) < 4; });
        (near == groups.end() ? groups.emplace_back() : *near).push_back(spot);
      }
    }
    ASSERT_EQ(groups.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
      Spot sum{0, 0};
      for (const Spot spot : groups[i]) sum.x += spot.x, sum.y += spot.y;
      const auto count = static_cast<double>(groups[i].size());
      dots_[i] = {sum.x / count, sum.y / count};
    }
  }

  // Ink outside the dots, joined across gaps that are shorter than the distance between curves.
  void join_dashes() {
    for (int y = 0; y < size_; ++y) {
      for (int x = 0; x < size_; ++x) {
        const Spot spot{static_cast<double>(x), static_cast<double>(y)};
        const bool in_dot = distance(spot, dots_[0]) < kDot || distance(spot, dots_[1]) < kDot;
        if (at(x, y) > kInk && !in_dot) ink_.push_back(spot);
      }
    }
    parent_.resize(ink_.size());
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
    for (std::size_t i = 0; i < ink_.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (distance(ink_[i], ink_[j]) <= kBridge) parent_[find(i)] = find(j);
      }
    }
  }
  std::size_t curve_of(Spot dot) const {
    std::size_t nearest = 0;
    for (std::size_t i = 1; i < ink_.size(); ++i) {
      if (distance(ink_[i], dot) < distance(ink_[nearest], dot)) nearest = i;
    }
    return find(nearest);
  }
  std::size_t find(std::size_t i) const {
    while (parent_[i] != i) i = parent_[i];
    return i;
  }
  static double distance(Spot a, Spot b) { return std::hypot(a.x - b.x, a.y - b.y); }
  int at(int x, int y) const { return pixels_[static_cast<std::size_t>(y) * size_ + x]; }

  int size_;
  Bytes pixels_;
  std::array<Spot, 2> dots_{};
  std::vector<Spot> ink_;
  std::vector<std::size_t> parent_;
};

TEST(Pathfinder, ConnectivityTellsTheClass) {
  for (const auto& [size, dashes, distractors] :
       {std::tuple{32, 6, 3}, std::tuple{48, 9, 6}, std::tuple{64, 12, 12}}) {
    PathfinderOptions options{size, dashes, distractors, 0};
    int right = 0;
    constexpr int kPictures = 200;
    for (std::uint64_t seed = 0; seed < kPictures; ++seed) {
      const int label = static_cast<int>(seed % 2);
      const Picture picture(options, label, seed);
      right += picture.connected() == (label == 1);
      EXPECT_GE(picture.curves(), 2);
    }
    EXPECT_EQ(right, kPictures) << size;
  }
}

TEST(Pathfinder, TheDistanceOfTheDotsIsNoShortcut) {
  std::vector<std::pair<double, int>> pictures;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const int label = static_cast<int>(seed % 2);
    pictures.emplace_back(Picture({32, 6, 3, 0}, label, seed + 5000).dot_distance(), label);
  }
  std::sort(pictures.begin(), pictures.end());
  int ones_below = 0, best = 0;  // the best threshold, either way round
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    ones_below += pictures[i].second;
    const int right = ones_below + (500 - (static_cast<int>(i) + 1 - ones_below));
    best = std::max({best, right, 1000 - right});
  }
  EXPECT_LT(best, 600);
}

TEST(Pathfinder, CurvesThatDoNotFitAreAnError) {
  Bytes pixels(256);
  expect_error([&] { draw_pathfinder({16, 200, 0, 0}, 1, 0, pixels.data()); }, {"200 dashes", "16 x 16"});
}

}  // namespace
}  // namespace topomask::testing
