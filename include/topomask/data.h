// Labelled images and clips from a description (`--data SPEC`), and batches of them on a device (paper, Sec.
// 4, "Images").
//
//   cifar10:DIR[,train=1-4][,val=5|test]
//       CIFAR-10 binary batches, plain, .xz or .gz
//   cifar100:DIR[,labels=fine|coarse]
//       CIFAR-100 binary files, plain, .xz or .gz
//   idx:DIR[,val=0.2]
//       MNIST and data sets in its format, plain, .xz or .gz; val is for a folder with one pair of files
//   folder:DIR[,size=64][,crop=0.25][,cache=auto|yes|no]
//       train/CLASS/*.jpg|png and val/CLASS/*.jpg|png
//   strokes:SIZE[,classes=3][,cell=4][,coupling=1][,noise=0.1][,train=N][,val=N][,seed=S]
//       generated
//   pathfinder:SIZE[,dashes=D][,distractors=K][,noise=0.05][,train=N][,val=N][,seed=S]
//       generated
//
// and clips of several frames:
//
//   motion:SIZE[,frames=8][,cell=4][,coupling=2][,surplus=0.5][,noise=0.05][,train=N][,val=N][,seed=S]
//       generated; the label depends on motion alone
//   moving-digits:DIR[,size=40][,frames=8][,labels=both|digit|motion][,train=N][,val=N][,seed=S]
//       the digits of an IDX folder, drifting
//   video-folder:DIR[,frames=32][,stride=2][,size=224][,crop=0.25]
//       train/CLASS/*.mp4|m4v|mkv|webm|avi|mov and val/CLASS/..., where the build has FFmpeg's libraries
//
// Small sets are kept as bytes on the training device, so a batch is one gather. Threads decode a folder that
// does not fit ahead of time. The images of a batch, their order and their crops are a function of (seed,
// epoch, batch) only, so an interrupted epoch resumes where it stopped.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "topomask/words.h"

namespace topomask {

// One part of a data set: held in memory (`images`) or decoded on demand (`files`).
struct ImageSet {
  std::int64_t channels = 0, height = 0, width = 0;
  std::int64_t frames = 1;  // in a clip; 1: single images
  std::int64_t stride = 1;  // streamed clips take every stride-th frame
  at::Tensor labels;        // [N] int64 on the CPU
  at::Tensor images;        // [N, C, H, W], clips [N, T, C, H, W], uint8 on the CPU; undefined where the
                            // set is streamed
  std::vector<std::string> files;  // [N] where the set is streamed, else empty
  double min_crop_area = 1;        // of random crops while streaming, as a part of the image
  std::int64_t skipped = 0;        // unreadable images left out when the set was opened

  std::int64_t size() const { return labels.defined() ? labels.size(0) : 0; }
  bool resident() const { return images.defined(); }
  // [C, H, W], or [T, C, H, W] of clips.
  std::vector<std::int64_t> sample_sizes() const {
    if (frames == 1) return {channels, height, width};
    return {frames, channels, height, width};
  }
};

struct ImageData {
  std::string spec;                      // as it was given
  std::vector<std::string> class_names;  // [num_classes]
  std::int64_t channels = 0, height = 0, width = 0;
  std::int64_t frames = 1;            // in a clip; 1: single images
  std::vector<double> mean, stddev;   // [C] of pixel values in [0, 1], over the training images
  std::int64_t patch_size = 0;        // a patch size that suits these images
  bool mirror_changes_class = false;  // an image flipped horizontally may belong to another class
  ImageSet train, validation;

  std::int64_t num_classes() const { return static_cast<std::int64_t>(class_names.size()); }
};

struct ImageDataOptions {
  std::vector<double> mean, stddev;           // [C]; empty: computed from the training images
  bool skip_bad = false;                      // leave unreadable images out and count them
  int workers = 0;                            // threads that decode; 0: one per core
  std::int64_t max_cached_bytes = 512 << 20;  // a folder that decodes to no more is held in memory
};

// Reads or generates the sets. A streamed folder is only listed, but for the images that mean and deviation
// are measured on.
ImageData open_image_data(const std::string& spec, const ImageDataOptions& options = {});

// The forms above of images or of clips, one per line, for the help text of a program.
std::string image_data_forms(bool clips = false);

// 64-bit hashes of what a data set holds: the same for the same images and labels, wherever their files lie.
struct DataFingerprint {
  std::uint64_t train_images = 0, train_labels = 0;
  std::uint64_t validation_images = 0, validation_labels = 0;
};
// Every byte of images in memory counts; of streamed ones, the name and size of every file.
DataFingerprint fingerprint(const ImageData& data);

// Bytes as a model sees them, (x / 255 - mean) / stddev in each channel.
// images: [B, C, H, W] or [B, T, C, H, W] uint8; mean, stddev: [C] -> the same in float32 on the device of
// the images
at::Tensor normalise_images(const at::Tensor& images, const std::vector<double>& mean,
                            const std::vector<double>& stddev);

// 0 .. size-1 in the order in which epoch `epoch` visits them: [size] int64 on the CPU.
at::Tensor epoch_order(std::int64_t size, std::uint64_t seed, std::int64_t epoch);

// Where the images that a rank has of a batch stand in the whole batch.
struct BatchPlaces {
  at::Tensor places;       // [B] int64 on the CPU, ascending; undefined: the batch is whole
  std::int64_t whole = 0;  // images in the whole batch
  // Which of the B are the rank's own. The others are there to be mixed with them.
  std::int64_t own_begin = 0, own_end = 0;
};

struct Batch {
  at::Tensor images;                 // [B, C, H, W] or [B, T, C, H, W] uint8 on the loader's device
  at::Tensor labels;                 // [B] int64 on the loader's device
  at::Tensor indices;                // [B] int64 on the CPU: which images of the set
  std::int64_t epoch = 0, step = 0;  // step: the number of this batch in its epoch
  BatchPlaces part = {};
};

// What one of several ranks takes: in training images n part / parts to n (part + 1) / parts of each batch of
// n, in evaluation each batch whose number leaves `part` when divided by `parts`.
struct BatchPart {
  int part = 0, parts = 1;
  bool partners = false;  // in training also the images that mixup and cutmix mix with the own

  BatchPlaces places(std::int64_t whole) const;
};

// What a model gets to see of a clip: a control of whether its label depends on motion.
enum class FrameOrder {
  given,
  shuffled,  // all frames, in a random order
  single,    // one random frame in place of all
};
template <>
std::span<const Word<FrameOrder>> words<FrameOrder>();

// The images of a batch of clips in another order: a function of seed, epoch and the clip's number in its
// set.
at::Tensor reorder_frames(const Batch& batch, FrameOrder order, std::uint64_t seed);

enum class LoaderMode {
  training,    // shuffled, random crops of streamed images, what is left over of the last batch is dropped
  evaluation,  // in the order of the set, centre crops, every image once
};

struct LoaderOptions {
  LoaderMode mode = LoaderMode::training;
  std::int64_t batch_size = 256;
  std::uint64_t seed = 0;
  c10::Device device = c10::Device(c10::kCPU);
  int workers = 0;        // threads that decode a streamed set; 0: one per core
  int prefetch = 4;       // batches that they may be ahead
  bool skip_bad = false;  // an unreadable image makes its batch smaller instead of an error
  BatchPart part;         // of ranks that share batches of batch_size
};

// Batches of one set. A resident set is copied to the device once, so keep the loader for all epochs.
class BatchLoader {
 public:
  BatchLoader(const ImageSet& set, const LoaderOptions& options);
  ~BatchLoader();
  BatchLoader(BatchLoader&&) noexcept;
  BatchLoader& operator=(BatchLoader&&) noexcept;

  std::int64_t batches_per_epoch() const;  // of all ranks together

  // Begins an epoch at one of its batches; the constructor begins epoch 0. May be called at any moment.
  void start_epoch(std::int64_t epoch, std::int64_t start_batch = 0);

  // The next batch, or nothing at the end of the epoch. Throws, naming the file, at an image that cannot be
  // read.
  std::optional<Batch> next();

  // Images left out so far in this epoch because they could not be read.
  std::int64_t skipped() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace topomask
