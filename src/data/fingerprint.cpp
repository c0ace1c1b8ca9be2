#include <cstring>
#include <filesystem>

#include "core/check.h"
#include "topomask/data.h"

namespace topomask {
namespace {

// Not cryptographic: it detects data that were replaced by mistake, not by an adversary.
class Hash {
 public:
  void add(std::uint64_t word) { state_ = mix(state_ ^ word); }
  // Four chains at once: one alone would wait for its own multiplications.
  void add(const void* bytes, std::size_t size) {
    constexpr std::size_t kLanes = 4, kWord = sizeof(std::uint64_t);
    const char* begin = static_cast<const char*>(bytes);
    std::uint64_t lanes[kLanes] = {1, 2, 3, 4};
    std::size_t done = 0;
    for (; done + kLanes * kWord <= size; done += kLanes * kWord) {
      std::uint64_t words[kLanes];
      std::memcpy(words, begin + done, sizeof(words));
      for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = mix(lanes[lane] ^ words[lane]);
    }
    for (const std::uint64_t lane : lanes) add(lane);
    for (; done < size; done += kWord) {
      std::uint64_t word = 0;
      std::memcpy(&word, begin + done, std::min(kWord, size - done));
      add(word);
    }
    add(static_cast<std::uint64_t>(size));
  }
  std::uint64_t value() const { return state_; }

 private:
  // The finaliser of SplitMix64: every bit of the input changes half of the output's.
  static std::uint64_t mix(std::uint64_t z) {
    z += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  std::uint64_t state_ = 0;
};

std::uint64_t hash_tensor(const at::Tensor& tensor) {
  Hash hash;
  for (const std::int64_t size : tensor.sizes()) hash.add(static_cast<std::uint64_t>(size));
  const at::Tensor values = tensor.contiguous();
  hash.add(values.const_data_ptr(), values.nbytes());
  return hash.value();
}

// Reading all bytes of a set that does not fit into memory would take as long as an epoch.
std::uint64_t hash_files(const ImageSet& set) {
  Hash hash;
  for (const std::int64_t size : {set.channels, set.height, set.width})
    hash.add(static_cast<std::uint64_t>(size));
  if (set.frames > 1) {
    for (const std::int64_t size : {set.frames, set.stride}) hash.add(static_cast<std::uint64_t>(size));
  }
  for (const std::string& file : set.files) {
    const std::filesystem::path path(file);
    const std::string name = path.parent_path().filename().string() + "/" + path.filename().string();
    hash.add(name.data(), name.size());
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    hash.add(error ? 0 : static_cast<std::uint64_t>(size) + 1);
  }
  return hash.value();
}

std::uint64_t hash_images(const ImageSet& set) {
  return set.resident() ? hash_tensor(set.images) : hash_files(set);
}

}  // namespace

DataFingerprint fingerprint(const ImageData& data) {
  check(data.train.labels.defined() && data.validation.labels.defined(),
        "fingerprint: expected a training and a validation set");
  return {hash_images(data.train), hash_tensor(data.train.labels), hash_images(data.validation),
          hash_tensor(data.validation.labels)};
}

}  // namespace topomask
