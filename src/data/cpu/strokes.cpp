#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "core/check.h"
#include "data/cpu/drawing.h"
#include "data/cpu/generated.h"

namespace topomask {
namespace {

constexpr std::uint32_t kArrange = 0x53415252, kDraw = 0x53445257;  // "SARR", "SDRW"
constexpr int kSweeps = 8;  // long enough for neighbours to settle, too short for order across the picture

// How many neighbours of a cell stand at the angle of the class.
class Agreement {
 public:
  Agreement(const StrokesOptions& options, int label)
      : grid_(options.grid()), turns_(options.orientations()), label_(label) {}

  int of_cell(const std::vector<std::uint8_t>& cells, int cell) const {
    const int x = cell % grid_, y = cell / grid_;
    int count = 0;
    if (x > 0) count += agree(cells[cell], cells[cell - 1]);
    if (x + 1 < grid_) count += agree(cells[cell], cells[cell + 1]);
    if (y > 0) count += agree(cells[cell], cells[cell - grid_]);
    if (y + 1 < grid_) count += agree(cells[cell], cells[cell + grid_]);
    return count;
  }

 private:
  bool agree(int a, int b) const {
    const int turn = std::abs(a - b);
    return std::min(turn, turns_ - turn) == label_;
  }

  int grid_, turns_, label_;
};

}  // namespace

std::vector<std::uint8_t> arrange_strokes(const StrokesOptions& options, int label, std::uint64_t seed) {
  check(label >= 0 && label < options.classes, "arrange_strokes: expected a label below {}, got {}",
        options.classes, label);
  RandomStream random(seed, kArrange);
  const int count = options.grid() * options.grid(), turns = options.orientations();
  std::vector<std::uint8_t> cells(static_cast<std::size_t>(count));
  const auto first = static_cast<int>(random.next_below(turns));  // which orientations get the leftover cells
  for (int i = 0; i < count; ++i) cells[i] = static_cast<std::uint8_t>((first + i) % turns);
  for (int i = count - 1; i > 0; --i) std::swap(cells[i], cells[random.next_below(i + 1)]);

  // Metropolis steps that exchange two cells: the number of strokes of each orientation never changes.
  const Agreement agreement(options, label);
  for (int step = 0; step < kSweeps * count; ++step) {
    const auto a = static_cast<int>(random.next_below(count)), b = static_cast<int>(random.next_below(count));
    const double u = random.next_double();
    const int before = agreement.of_cell(cells, a) + agreement.of_cell(cells, b);
    std::swap(cells[a], cells[b]);
    const int after = agreement.of_cell(cells, a) + agreement.of_cell(cells, b);
    if (u >= std::exp(options.coupling * (after - before))) std::swap(cells[a], cells[b]);
  }
  return cells;
}

void draw_strokes(const StrokesOptions& options, int label, std::uint64_t seed, std::uint8_t* out) {
  const std::vector<std::uint8_t> cells = arrange_strokes(options, label, seed);
  RandomStream random(seed, kDraw);
  GreyPicture picture(options.size);
  const double cell = options.cell, thickness = cell / 10;
  const double reach = 0.45 * cell - thickness;  // strokes stay inside their cells
  // What is left of the size after whole cells is divided between the borders.
  const double border = (options.size - options.grid() * cell) / 2;
  for (int i = 0; i < options.grid() * options.grid(); ++i) {
    const double turn = cells[i] + uniform(random, -0.15, 0.15);
    const double angle = std::numbers::pi * turn / options.orientations();
    const Point centre{border + cell * (i % options.grid() + 0.5) + uniform(random, -0.05, 0.05) * cell,
                       border + cell * (i / options.grid() + 0.5) + uniform(random, -0.05, 0.05) * cell};
    const double dx = reach * std::cos(angle), dy = reach * std::sin(angle);
    picture.stroke({centre.x - dx, centre.y - dy}, {centre.x + dx, centre.y + dy}, thickness,
                   uniform(random, 0.7, 1));
  }
  picture.finish(options.noise, random, out);
}

}  // namespace topomask
