// Built-in sets that need no files: pictures made in parallel, each a function of the seed and its number.

#include <algorithm>

#include "core/check.h"
#include "core/parallel.h"
#include "core/random.h"
#include "data/cpu/generated.h"
#include "data/sources.h"

namespace topomask {
namespace {

constexpr std::int64_t kMostImages = std::int64_t{1} << 24;
constexpr int kLargestSide = 512;

struct Amounts {
  std::int64_t train, validation;
  std::uint64_t seed;
};

Amounts amounts_from(DataSpec& spec, std::int64_t train, std::int64_t validation) {
  return {spec.number<std::int64_t>("train", train, 1, kMostImages),
          spec.number<std::int64_t>("val", validation, 1, kMostImages),
          spec.number<std::uint64_t>("seed", 0, 0, ~std::uint64_t{0})};
}

// What strokes and motion share: cells on a grid, and how well they can be seen.
template <class Options>
Amounts read_cells(DataSpec& spec, Options& options) {
  options.size = spec.size(6, kLargestSide);
  options.cell = spec.number<int>("cell", options.cell, 3, 64);
  options.coupling = spec.number<double>("coupling", options.coupling, 0, 100);
  options.noise = spec.number<double>("noise", options.noise, 0, 10);
  const Amounts amounts = amounts_from(spec, 8000, 2000);
  spec.finish();
  if (options.grid() < 2)
    spec.complain(fmt::format("{} pixels do not hold two cells of {}", options.size, options.cell));
  return amounts;
}

int patch_of(int size) {
  return size % 4 == 0 ? 4 : size % 2 == 0 ? 2 : 1;
}

// Labels take turns, so the classes are balanced; the order of an epoch is shuffled anyway.
template <class Draw>
ImageSet generate(std::int64_t count, int size, int frames, int classes, std::uint64_t seed,
                  const Draw& draw) {
  ImageSet set = empty_set(count, 1, size, size, frames);
  auto* pixels = set.images.data_ptr<std::uint8_t>();
  auto* labels = set.labels.data_ptr<std::int64_t>();
  parallel_for(count, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      labels[i] = i % classes;
      draw(static_cast<int>(labels[i]), derive_seed(seed, static_cast<std::uint64_t>(i)),
           pixels + i * frames * size * size);
    }
  });
  return set;
}

// The two sets have separate seeds, so that more training images do not change the validation images.
template <class Draw>
ImageData generate_both(const Amounts& amounts, int size, std::vector<std::string> class_names,
                        const Draw& draw, int frames = 1) {
  const auto classes = static_cast<int>(class_names.size());
  ImageData data;
  data.train = generate(amounts.train, size, frames, classes, derive_seed(amounts.seed, 0), draw);
  data.validation = generate(amounts.validation, size, frames, classes, derive_seed(amounts.seed, 1), draw);
  data.class_names = std::move(class_names);
  return data;
}

}  // namespace

ImageData open_strokes(DataSpec& spec, const ImageDataOptions&) {
  StrokesOptions options;
  options.classes = spec.number<int>("classes", options.classes, 2, 5);
  const Amounts amounts = read_cells(spec, options);
  std::vector<std::string> names;
  for (int c = 0; c < options.classes; ++c) {
    names.push_back(c == 0 ? "parallel"
                    : c == options.classes - 1
                        ? "perpendicular"
                        : fmt::format("{:.0f} degrees", 180.0 * c / options.orientations()));
  }
  ImageData data = generate_both(
      amounts, options.size, std::move(names),
      [&](int label, std::uint64_t seed, std::uint8_t* out) { draw_strokes(options, label, seed, out); });
  data.patch_size = options.cell;
  return data;
}

ImageData open_pathfinder(DataSpec& spec, const ImageDataOptions&) {
  PathfinderOptions options;
  options.size = spec.size(16, kLargestSide);
  // Curves as long as a side or so, and a picture about as full at every size.
  options.dashes = spec.number<int>("dashes", std::max(3, options.size / 5), 2, 1000);
  options.distractors = spec.number<int>("distractors", 3 * options.size * options.size / 1024, 0, 10000);
  options.noise = spec.number<double>("noise", options.noise, 0, 10);
  const Amounts amounts = amounts_from(spec, 20000, 2000);
  spec.finish();
  ImageData data = generate_both(
      amounts, options.size, {"two curves", "one curve"},
      [&](int label, std::uint64_t seed, std::uint8_t* out) { draw_pathfinder(options, label, seed, out); });
  data.patch_size = patch_of(options.size);
  return data;
}

ImageData open_motion(DataSpec& spec, const ImageDataOptions&) {
  MotionOptions options;
  options.frames = spec.number<int>("frames", options.frames, 2, 256);
  options.surplus = spec.number<double>("surplus", options.surplus, 0, 6);
  const Amounts amounts = read_cells(spec, options);
  ImageData data = generate_both(
      amounts, options.size, {"clockwise", "counter-clockwise"},
      [&](int label, std::uint64_t seed, std::uint8_t* out) { draw_motion(options, label, seed, out); },
      options.frames);
  data.patch_size = options.cell;
  data.mirror_changes_class = true;
  return data;
}

namespace {

// Four ways to drift, in pixels per frame.
constexpr int kDriftX[] = {2, -2, 0, 0}, kDriftY[] = {0, 0, 2, -2};
constexpr const char* kDriftNames[] = {"right", "left", "down", "up"};
constexpr std::int64_t kDrifts = 4;
constexpr std::uint32_t kDigit = 0x44494754;  // "DIGT"

enum class DigitLabels { both, digit, motion };

// One digit on a black ground that has no edges: what leaves at one side comes back at the other, so that a
// single frame does not tell which way it drifts.
ImageSet drift_digits(const ImageSet& digits, std::int64_t count, int size, int frames, DigitLabels kind,
                      std::uint64_t seed) {
  ImageSet set = empty_set(count, 1, size, size, frames);
  auto* clips = set.images.data_ptr<std::uint8_t>();
  auto* labels = set.labels.data_ptr<std::int64_t>();
  const auto* sources = digits.images.const_data_ptr<std::uint8_t>();
  const auto* classes = digits.labels.const_data_ptr<std::int64_t>();
  const std::int64_t height = digits.height, width = digits.width, pixels = std::int64_t{size} * size;
  parallel_for(count, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      RandomStream random(derive_seed(seed, static_cast<std::uint64_t>(i)), kDigit);
      const auto which =
          static_cast<std::int64_t>(random.next_below(static_cast<std::uint64_t>(digits.size())));
      const auto drift = static_cast<std::int64_t>(random.next_below(kDrifts));
      const auto left = static_cast<std::int64_t>(random.next_below(static_cast<std::uint64_t>(size)));
      const auto top = static_cast<std::int64_t>(random.next_below(static_cast<std::uint64_t>(size)));
      labels[i] = kind == DigitLabels::both    ? classes[which] * kDrifts + drift
                  : kind == DigitLabels::digit ? classes[which]
                                               : drift;
      std::uint8_t* clip = clips + i * frames * pixels;
      std::fill_n(clip, frames * pixels, std::uint8_t{0});
      const std::uint8_t* digit = sources + which * height * width;
      for (int frame = 0; frame < frames; ++frame) {
        // Whole turns are added so that remainders stay positive.
        const std::int64_t x0 = left + std::int64_t{frame} * kDriftX[drift] + std::int64_t{2} * frames * size,
                           y0 = top + std::int64_t{frame} * kDriftY[drift] + std::int64_t{2} * frames * size;
        for (std::int64_t y = 0; y < height; ++y) {
          for (std::int64_t x = 0; x < width; ++x)
            clip[frame * pixels + (y0 + y) % size * size + (x0 + x) % size] = digit[y * width + x];
        }
      }
    }
  });
  return set;
}

}  // namespace

ImageData open_moving_digits(DataSpec& spec, const ImageDataOptions& options) {
  const int size = spec.number<int>("size", 40, 8, kLargestSide),
            frames = spec.number<int>("frames", 8, 2, 256);
  const std::string word = spec.text("labels", "both");
  const Amounts amounts = amounts_from(spec, 20000, 4000);
  spec.finish();
  if (word != "both" && word != "digit" && word != "motion")
    spec.complain(fmt::format("expected labels=both, digit or motion, got '{}'", word));
  const DigitLabels kind = word == "both"    ? DigitLabels::both
                           : word == "digit" ? DigitLabels::digit
                                             : DigitLabels::motion;
  const ImageData digits = open_image_data("idx:" + spec.subject(), options);
  if (digits.height > size || digits.width > size)
    spec.complain(
        fmt::format("digits of {} x {} do not fit into {} pixels", digits.height, digits.width, size));
  ImageData data;
  data.train = drift_digits(digits.train, amounts.train, size, frames, kind, derive_seed(amounts.seed, 0));
  data.validation =
      drift_digits(digits.validation, amounts.validation, size, frames, kind, derive_seed(amounts.seed, 1));
  if (kind == DigitLabels::digit) data.class_names = digits.class_names;
  if (kind == DigitLabels::motion) data.class_names.assign(std::begin(kDriftNames), std::end(kDriftNames));
  for (const std::string& digit : digits.class_names) {
    if (kind != DigitLabels::both) break;
    for (const char* drift : kDriftNames) data.class_names.push_back(digit + " " + drift);
  }
  data.patch_size = patch_of(size);
  data.mirror_changes_class = kind != DigitLabels::digit;
  return data;
}

}  // namespace topomask
