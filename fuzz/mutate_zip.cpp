// A mutator that corrects the checksums of stored zip entries: without it nearly every changed archive would
// be rejected for its checksum, and the code behind would never run.
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

// Fields of a central directory record and of the local header it points to (APPNOTE.TXT 4.3.7 and 4.3.12).
constexpr std::size_t kCentralBytes = 46, kCentralCrc = 16, kCentralPacked = 20, kCentralOffset = 42;
constexpr std::size_t kLocalBytes = 30, kLocalCrc = 14, kLocalNameLength = 26, kLocalExtraLength = 28;

template <class T>
T load(const std::uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

void repair_entry(std::uint8_t* data, std::size_t size, std::uint8_t* central) {
  const std::size_t offset = load<std::uint32_t>(central + kCentralOffset);
  const std::size_t packed = load<std::uint32_t>(central + kCentralPacked);
  if (offset > size || size - offset < kLocalBytes) return;
  std::uint8_t* local = data + offset;
  const std::size_t begin = offset + kLocalBytes + load<std::uint16_t>(local + kLocalNameLength) +
                            load<std::uint16_t>(local + kLocalExtraLength);
  if (begin > size || size - begin < packed) return;
  const auto checksum = static_cast<std::uint32_t>(crc32(0, data + begin, static_cast<uInt>(packed)));
  std::memcpy(central + kCentralCrc, &checksum, sizeof checksum);
  std::memcpy(local + kLocalCrc, &checksum, sizeof checksum);
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int /*seed*/) {
  size = LLVMFuzzerMutate(data, size, max_size);
  for (std::size_t at = 0; at + kCentralBytes <= size; ++at) {
    if (std::memcmp(data + at, "PK\x01\x02", 4) == 0) repair_entry(data, size, data + at);
  }
  return size;
}
