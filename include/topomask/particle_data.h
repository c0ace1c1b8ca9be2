// Simulated episodes as batches of particles, on which a particle model is trained and evaluated (paper, Sec.
// 4 "point clouds", App. C.3).
//
//   const ParticleData data("robot", {.particles = 8192});
//   const ParticleBatch batch = data.batch({{.episode = 3, .first = 10}}, {.rollout = 6}, seed);
//
// A window of an episode shows the frames first and first + 1; the frames after them are to be predicted. A
// batch is a function of its arguments and does not depend on threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "topomask/robot_points.h"

namespace topomask {

struct ParticleWindow {
  std::int64_t episode = 0, first = 0;
};

// What a particle lies on. Tools are fixed to hands and belong to arms.
enum class ParticleGroup : std::int64_t { table = -1, arm, object, grain };
inline constexpr std::int64_t kMovingGroups = 3;  // arm, object, grain
inline constexpr double kLeastMove = .005;        // metres from which on a particle counts as moved

// B windows; N particles at first + 1 and P at first; K frames to predict; Q kinematic particles.
struct ParticleBatch {
  at::Tensor images;                     // [B, 2, C, 3, H, W] float32, 0 to 1: the frames that are seen
  at::Tensor pixels, past_pixels;        // [B, N], [B, P] int64: pixels of the particles, of C H W
  at::Tensor positions, past_positions;  // [B, N, 3], [B, P, 3] float32
  at::Tensor shapes;                     // [B, N] int64: the shape that a particle lies on
  // [B, 2 + K, Q, 3], [B, 2 + K, Q]: as measured in frames that are seen, as commanded afterwards
  at::Tensor robot, grips;
  // [B, S, R, 3]: rays of the S = K predicted frames with their true colours; with K = 0 of the last seen
  // one.
  at::Tensor origins, directions, colours;
  // Where asked for. [B, K, N, 3]: where the particles truly are in the predicted frames; [B, N] int64:
  // ParticleGroup.
  at::Tensor truth, groups;

  ParticleBatch to(c10::Device device) const;
  ParticleBatch pinned() const;  // in memory that a GPU copies from while the host goes on
};

// `count` of the pixels [C, H, W] with known depth, uniformly without repetition, in random order: [count]
// int64. Throws where there are not as many, or where a depth is negative or not finite; `name` begins the
// sentence.
at::Tensor sample_pixels(const at::Tensor& depth, std::int64_t count, std::uint64_t seed,
                         const std::string& name);

struct ParticleDataOptions {
  std::int64_t particles = 8192, past_particles = 2048, robot_points = 128;
  int size = 0;       // pixels of a frame, both ways; 0: as the data set says
  bool cache = true;  // keep rendered frames in memory

  bool operator==(const ParticleDataOptions&) const = default;
};

class ParticleData {
 public:
  // A folder of `topomask simulate robot`. Throws where the data have no states of a robot, or where a frame
  // has fewer pixels with known depth than there are particles.
  ParticleData(const std::string& folder, const ParticleDataOptions& options);

  const RgbdData& frames() const { return *frames_; }
  const RobotTensors& states(std::int64_t episode) const;
  std::int64_t episodes() const { return frames_->episodes(); }
  // Windows of an episode with this many frames to predict; throws where it is too short for one.
  std::int64_t windows(std::int64_t episode, std::int64_t rollout) const;
  std::uint64_t fingerprint() const;  // of all episodes

  struct BatchOptions {
    std::int64_t rollout = 1;  // frames to predict
    std::int64_t rays = 128;   // of each predicted frame; 0: predicted frames are not looked at
    std::int64_t first = 0;    // place of the first window in its batch, where these are a part of one
    bool truth = false;        // where the particles truly go
  };
  // Particles and rays are drawn for a seed and a window's place in its batch.
  ParticleBatch batch(const std::vector<ParticleWindow>& windows, const BatchOptions& options,
                      std::uint64_t seed) const;

 private:
  ParticleDataOptions options_;
  std::unique_ptr<RgbdData> frames_;
  std::vector<RobotTensors> states_;
  std::vector<RobotPoints> robots_;
};

}  // namespace topomask
