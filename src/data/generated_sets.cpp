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

// Labels take turns, so the classes are balanced; the order of an epoch is shuffled anyway.
template <class Draw>
ImageSet generate(std::int64_t count, int size, int classes, std::uint64_t seed, const Draw& draw) {
  ImageSet set = empty_set(count, 1, size, size);
  auto* pixels = set.images.data_ptr<std::uint8_t>();
  auto* labels = set.labels.data_ptr<std::int64_t>();
  parallel_for(count, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      labels[i] = i % classes;
      draw(static_cast<int>(labels[i]), derive_seed(seed, static_cast<std::uint64_t>(i)),
           pixels + i * size * size);
    }
  });
  return set;
}

// The two sets have seeds of their own, so that more training images leave the validation images alone.
template <class Draw>
ImageData generate_both(const Amounts& amounts, int size, std::vector<std::string> class_names,
                        const Draw& draw) {
  const auto classes = static_cast<int>(class_names.size());
  ImageData data;
  data.train = generate(amounts.train, size, classes, derive_seed(amounts.seed, 0), draw);
  data.validation = generate(amounts.validation, size, classes, derive_seed(amounts.seed, 1), draw);
  data.class_names = std::move(class_names);
  return data;
}

}  // namespace

ImageData open_strokes(DataSpec& spec, const ImageDataOptions&) {
  StrokesOptions options;
  options.size = spec.size(6, kLargestSide);
  options.classes = spec.number<int>("classes", options.classes, 2, 5);
  options.cell = spec.number<int>("cell", options.cell, 3, 64);
  options.coupling = spec.number<double>("coupling", options.coupling, 0, 100);
  options.noise = spec.number<double>("noise", options.noise, 0, 10);
  const Amounts amounts = amounts_from(spec, 8000, 2000);
  spec.finish();
  if (options.grid() < 2) {
    spec.complain(fmt::format("{} pixels do not hold two cells of {}", options.size, options.cell));
  }
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
  data.patch_size = options.size % 4 == 0 ? 4 : options.size % 2 == 0 ? 2 : 1;
  return data;
}

}  // namespace topomask
