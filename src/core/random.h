// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011).
//
// A number depends on its purpose, never on which thread draws it or when: the key is the seed, the counter
// says (node, walk, block of hops, purpose). One block holds four 32-bit words, one for each of four hops.
#pragma once

#include <array>
#include <cstdint>

namespace topomask {

using RandomBlock = std::array<std::uint32_t, 4>;

constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53u, kPhiloxMultiplier1 = 0xCD9E8D57u;
constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9u, kPhiloxWeyl1 = 0xBB67AE85u;
constexpr int kPhiloxRounds = 10;

constexpr RandomBlock philox(RandomBlock counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * counter[2];
    counter = {
        static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(product1),
        static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(product0)};
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return counter;
}

// A well-mixed 64-bit seed for the `index`-th of many independent repetitions (SplitMix64).
constexpr std::uint64_t derive_seed(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed + 0x9E3779B97F4A7C15ull * (index + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// A stream of numbers for code that draws in sequence (graph generators).
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::uint32_t purpose) : seed_(seed), purpose_(purpose) {}

  std::uint32_t next_u32() {
    if (used_ == 4) {
      block_ =
          philox({static_cast<std::uint32_t>(index_), static_cast<std::uint32_t>(index_ >> 32), 0, purpose_},
                 static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32));
      ++index_;
      used_ = 0;
    }
    return block_[used_++];
  }
  std::uint64_t next_u64() {
    const std::uint64_t high = next_u32();
    return high << 32 | next_u32();
  }
  // Uniform in [0, 1) with 53 bits.
  double next_double() { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }
  // Uniform in [0, bound), without bias (Lemire 2019).
  std::uint64_t next_below(std::uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    Wide product = Wide{next_u64()} * bound;
    const std::uint64_t threshold = (0 - bound) % bound;
    while (static_cast<std::uint64_t>(product) < threshold) product = Wide{next_u64()} * bound;
    return static_cast<std::uint64_t>(product >> 64);
  }

 private:
  std::uint64_t seed_;
  std::uint32_t purpose_;
  std::uint64_t index_ = 0;
  RandomBlock block_{};
  std::size_t used_ = 4;
};

}  // namespace topomask
