// Pictures and clips made from a formula, free of torch: one channel of bytes, a function of options, label
// and seed.
#pragma once

#include <cstdint>
#include <vector>

namespace topomask {

// A texture of short strokes on a grid of cells. The class is the angle at which neighbouring strokes tend to
// stand to each other: parallel, ..., perpendicular.
//
// Every picture holds each orientation equally often, whatever its class: only the arrangement differs, and
// only between neighbours. A model must relate a patch to its neighbours, which is what a mask on the grid of
// patches provides.
struct StrokesOptions {
  int size = 32, cell = 4;  // pixels; a cell holds one stroke
  int classes = 3;          // 2 to 5
  double coupling = 1;      // how strongly neighbours follow the rule of the class; 0: not at all
  double noise = 0.1;       // standard deviation, white is 1

  int grid() const { return size / cell; }
  int orientations() const { return 2 * (classes - 1); }  // equally spaced over half a turn
};

// The orientation of every cell, [grid * grid].
std::vector<std::uint8_t> arrange_strokes(const StrokesOptions& options, int label, std::uint64_t seed);
void draw_strokes(const StrokesOptions& options, int label, std::uint64_t seed, std::uint8_t* out);

// Two dots and dashed curves (Linsley et al., "Learning long-range spatial dependencies with horizontal gated
// recurrent units", 2018): label 1 if both dots are ends of one curve, 0 if they are ends of two. Both kinds
// show two long curves and the same sort of short distractors.
struct PathfinderOptions {
  int size = 32;        // pixels
  int dashes = 6;       // of the two long curves
  int distractors = 3;  // short curves; fewer where there is no room
  double noise = 0.05;  // standard deviation, white is 1
};

// Throws if no two long curves fit into the picture.
void draw_pathfinder(const PathfinderOptions& options, int label, std::uint64_t seed, std::uint8_t* out);

// Clips of strokes that turn: about a third of the cells clockwise, a third counter-clockwise, a third not at
// all. The class is the sense whose cells lie in clusters; those of the other sense avoid each other.
//
// The label depends on motion alone. Angles are uniform, so that a single frame says nothing. A clip of one
// class shown backwards is a clip of the other, so that its frames without their order say nothing either.
// How many cells turn which way is random and says little; the relation between neighbouring cells says the
// rest.
struct MotionOptions {
  int size = 32, cell = 4;  // pixels; a cell holds one stroke
  int frames = 8;
  double coupling = 2;   // how strongly the cells of the class's sense attract each other; 0: not at all
  double surplus = 0.5;  // mean excess of the class's sense, in standard deviations of it: by number alone a
                         // model is right in 69 % of the clips; 0: in half of them
  double noise = 0.05;   // standard deviation, white is 1

  int grid() const { return size / cell; }
};

// How every cell turns, [grid * grid]: 1 clockwise (on a screen, where y points down), -1 counter-clockwise,
// 0 not.
std::vector<std::int8_t> arrange_motion(const MotionOptions& options, int label, std::uint64_t seed);
// out: [frames, size, size]. Without noise, the two classes of one seed are each other's reversals, bit for
// bit.
void draw_motion(const MotionOptions& options, int label, std::uint64_t seed, std::uint8_t* out);

}  // namespace topomask
