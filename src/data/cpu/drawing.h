// A grey picture that strokes and dots are drawn on with soft edges, in units of pixels.
#pragma once

#include <cstdint>
#include <vector>

#include "core/random.h"

namespace topomask {

struct Point {
  double x = 0, y = 0;
};

class GreyPicture {
 public:
  explicit GreyPicture(int size);

  // All points no farther than `radius` from the segment; where strokes overlap, the brighter one shows.
  void stroke(Point from, Point to, double radius, double level);
  void dot(Point centre, double radius, double level) { stroke(centre, centre, radius, level); }

  // Adds Gaussian noise and rounds to bytes, [size, size]; 1 is white.
  void finish(double noise, RandomStream& random, std::uint8_t* out) const;

 private:
  int size_;
  std::vector<double> level_;
};

// Uniform in [low, high).
inline double uniform(RandomStream& random, double low, double high) {
  return low + (high - low) * random.next_double();
}

// Two independent standard normal numbers (Box and Muller).
struct NormalPair {
  double first, second;
};
NormalPair normal_pair(RandomStream& random);

}  // namespace topomask
