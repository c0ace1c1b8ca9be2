// One function for every kind of `--data`: each reads its options from the description, then opens the sets.
// Class names, both sets, the patch size and mirror_changes_class are filled in; extents, mean and deviation
// follow from the sets.
#pragma once

#include "data/spec.h"
#include "topomask/data.h"

namespace topomask {

ImageData open_cifar10(DataSpec& spec, const ImageDataOptions& options);
ImageData open_cifar100(DataSpec& spec, const ImageDataOptions& options);
ImageData open_idx(DataSpec& spec, const ImageDataOptions& options);
ImageData open_folder(DataSpec& spec, const ImageDataOptions& options);
ImageData open_strokes(DataSpec& spec, const ImageDataOptions& options);
ImageData open_pathfinder(DataSpec& spec, const ImageDataOptions& options);
ImageData open_motion(DataSpec& spec, const ImageDataOptions& options);
ImageData open_moving_digits(DataSpec& spec, const ImageDataOptions& options);
ImageData open_video_folder(DataSpec& spec, const ImageDataOptions& options);

// A set of `count` images or clips in memory, not yet filled.
ImageSet empty_set(std::int64_t count, std::int64_t channels, std::int64_t height, std::int64_t width,
                   std::int64_t frames = 1);

}  // namespace topomask
