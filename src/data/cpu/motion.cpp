#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "core/check.h"
#include "core/random.h"
#include "data/cpu/drawing.h"
#include "data/cpu/generated.h"

namespace topomask {
namespace {

constexpr std::uint32_t kArrangeTurns = 0x4D415252, kDrawTurns = 0x4D445257;  // "MARR", "MDRW"
constexpr int kTurnSweeps = 16;

// Pairs of neighbours that a cell forms with its own kind: those that turn with the class count, those that
// turn against it count against. Opposite borders touch, or cells that avoid each other would prefer borders.
int clustering(const std::vector<std::int8_t>& turns, int grid, int cell) {
  const int x = cell % grid, y = cell / grid, own = turns[static_cast<std::size_t>(cell)];
  const auto alike = [&](int row, int column) {
    return turns[static_cast<std::size_t>((row + grid) % grid * grid + (column + grid) % grid)] == own ? 1
                                                                                                       : 0;
  };
  return own * (alike(y, x - 1) + alike(y, x + 1) + alike(y - 1, x) + alike(y + 1, x));
}

}  // namespace

std::vector<std::int8_t> arrange_motion(const MotionOptions& options, int label, std::uint64_t seed) {
  check(label == 0 || label == 1, "arrange_motion: expected label 0 or 1, got {}", label);
  RandomStream random(seed, kArrangeTurns);
  const int grid = options.grid(), count = grid * grid;
  // Arranged for class 0 and turned round for class 1, so that the two are each other's reversals.
  std::vector<std::int8_t> turns(static_cast<std::size_t>(count), 0);
  const int third = count / 3;
  const double surplus = (options.surplus + normal_pair(random).first) / 6;
  const int with = std::clamp(static_cast<int>(std::lround(third * (1 + surplus))), 0, 2 * third);
  const int against = 2 * third - with;
  std::fill_n(turns.begin(), with, std::int8_t{1});
  std::fill_n(turns.begin() + with, against, std::int8_t{-1});
  const auto below = [&](int bound) {
    return static_cast<std::size_t>(random.next_below(static_cast<std::uint64_t>(bound)));
  };
  for (int i = count - 1; i > 0; --i) std::swap(turns[static_cast<std::size_t>(i)], turns[below(i + 1)]);
  // Metropolis steps that exchange two cells: how many turn which way never changes.
  for (int step = 0; step < kTurnSweeps * count; ++step) {
    const std::size_t a = below(count), b = below(count);
    const double u = random.next_double();
    const auto both = [&] {
      return clustering(turns, grid, static_cast<int>(a)) + clustering(turns, grid, static_cast<int>(b));
    };
    const int before = both();
    std::swap(turns[a], turns[b]);
    if (u >= std::exp(options.coupling * (both() - before))) std::swap(turns[a], turns[b]);
  }
  if (label == 1) {
    for (std::int8_t& turn : turns) turn = static_cast<std::int8_t>(-turn);
  }
  return turns;
}

void draw_motion(const MotionOptions& options, int label, std::uint64_t seed, std::uint8_t* out) {
  const std::vector<std::int8_t> turns = arrange_motion(options, label, seed);
  struct Stroke {
    Point centre;
    double angle, speed, level;  // angle: at the middle of the clip
  };
  RandomStream random(seed, kDrawTurns);
  const int grid = options.grid();
  const double cell = options.cell, thickness = cell / 10, reach = 0.45 * cell - thickness;
  const double border = (options.size - grid * cell) / 2;
  std::vector<Stroke> strokes;
  for (int i = 0; i < grid * grid; ++i) {
    const double column = i % grid, row = i / grid;
    Stroke stroke;
    stroke.centre = {border + cell * (column + 0.5) + uniform(random, -0.05, 0.05) * cell,
                     border + cell * (row + 0.5) + uniform(random, -0.05, 0.05) * cell};
    stroke.angle = uniform(random, 0, std::numbers::pi);
    // Around an eighth of a turn, where one way looks most unlike the other: a stroke is the same after a
    // half.
    stroke.speed = turns[static_cast<std::size_t>(i)] * std::numbers::pi / 4 * uniform(random, 0.8, 1.2);
    stroke.level = uniform(random, 0.7, 1);
    strokes.push_back(stroke);
  }
  for (int frame = 0; frame < options.frames; ++frame) {
    const double time = frame - 0.5 * (options.frames - 1);
    GreyPicture picture(options.size);
    for (const Stroke& stroke : strokes) {
      const double angle = stroke.angle + stroke.speed * time;
      const double dx = reach * std::cos(angle), dy = reach * std::sin(angle);
      picture.stroke({stroke.centre.x - dx, stroke.centre.y - dy},
                     {stroke.centre.x + dx, stroke.centre.y + dy}, thickness, stroke.level);
    }
    picture.finish(options.noise, random,
                   out + static_cast<std::size_t>(frame) * options.size * options.size);
  }
}

}  // namespace topomask
