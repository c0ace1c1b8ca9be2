#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "core/parallel.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "topomask/particle_data.h"
#include "topomask/rgbd_geometry.h"

namespace topomask {
namespace {

namespace fs = std::filesystem;
using testing::expect_error;
using testing::TemporaryFolder;

const std::string kEpisodes = TOPOMASK_ROBOT_STATES;
const ParticleDataOptions kSmall = {.particles = 120, .past_particles = 30, .robot_points = 6, .size = 16};

TEST(SamplePixels, TakesKnownDepthsOnce) {
  at::Tensor depth = at::zeros({2, 4, 5});
  depth[0][1] = 1;
  depth[1][3] = 2;
  const at::Tensor all = sample_pixels(depth, 10, 7, "a frame");
  EXPECT_TRUE(std::get<0>(all.sort())
                  .equal(at::tensor(std::vector<std::int64_t>{5, 6, 7, 8, 9, 35, 36, 37, 38, 39})));
  EXPECT_TRUE(sample_pixels(depth, 4, 7, "a frame").equal(all.narrow(0, 0, 4)));
  EXPECT_FALSE(sample_pixels(depth, 10, 8, "a frame").equal(all));
}

// Each pixel is drawn as often as any other: 4 of 10, binomial over seeds.
TEST(SamplePixels, IsUniform) {
  const at::Tensor depth = at::ones({1, 2, 5});
  at::Tensor counts = at::zeros({10}, at::kLong);
  constexpr int kSeeds = 2000;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed)
    counts.index_add_(0, sample_pixels(depth, 4, seed, "a frame"), at::ones({4}, at::kLong));
  const double expected = .4 * kSeeds, standard = std::sqrt(kSeeds * .4 * .6);
  EXPECT_LT((counts - expected).abs().max().item<double>(), 4 * standard);
}

TEST(SamplePixels, SaysWhatIsWrong) {
  at::Tensor depth = at::ones({2, 4, 5});
  expect_error([&] { sample_pixels(depth, 41, 0, "'sweep', frame 3"); },
               {"'sweep', frame 3: 40 pixels have a known depth, fewer than the 41 particles"});
  depth[1][2][3] = std::numeric_limits<float>::quiet_NaN();
  expect_error([&] { sample_pixels(depth, 3, 0, "a frame"); }, {"camera 1 in row 2 and column 3 is nan"});
  depth[1][2][3] = -1;
  expect_error([&] { sample_pixels(depth, 3, 0, "a frame"); }, "is -1");
}

TEST(ParticleData, BatchesAreWhatTheCamerasSee) {
  const ParticleData data(kEpisodes, kSmall);
  const ParticleBatch batch = data.batch({{0, 3}, {2, 9}}, {.rollout = 2, .rays = 5}, 1);
  EXPECT_EQ(batch.images.sizes(), (std::vector<std::int64_t>{2, 2, 2, 3, 16, 16}));
  EXPECT_EQ(batch.positions.sizes(), (std::vector<std::int64_t>{2, 120, 3}));
  EXPECT_EQ(batch.past_positions.sizes(), (std::vector<std::int64_t>{2, 30, 3}));
  EXPECT_EQ(batch.robot.sizes(), (std::vector<std::int64_t>{2, 4, 12, 3}));
  EXPECT_EQ(batch.grips.sizes(), (std::vector<std::int64_t>{2, 4, 12}));
  EXPECT_EQ(batch.origins.sizes(), (std::vector<std::int64_t>{2, 2, 5, 3}));
  const RgbdMoment now = data.frames().moment(2, 10);
  EXPECT_TRUE(batch.images[1][1].equal(now.colour.permute({0, 3, 1, 2}).to(at::kFloat) / 255));
  const at::Tensor points = unproject(now.depth, now.intrinsics, now.poses).view({-1, 3});
  EXPECT_TRUE(batch.positions[1].equal(points.index_select(0, batch.pixels[1])));
  EXPECT_TRUE(batch.shapes[1].equal(now.segments.view({-1}).to(at::kLong).index_select(0, batch.pixels[1])));
  EXPECT_GE(batch.shapes.min().item<std::int64_t>(), 0);
  // Seen frames as they were measured, later ones as they are commanded.
  const RobotPoints robot = robot_points(data.states(2), sample_robot_surface(*data.frames().robot(2), 6));
  EXPECT_TRUE(batch.robot[1].narrow(0, 0, 2).equal(robot.measured.narrow(0, 9, 2)));
  EXPECT_TRUE(batch.robot[1].narrow(0, 2, 2).equal(robot.commanded.narrow(0, 11, 2)));
}

// A ray's colour is that of the pixel it goes through, in the frame that is predicted.
TEST(ParticleData, RaysHaveTheColoursOfPredictedFrames) {
  const ParticleData data(kEpisodes, kSmall);
  const ParticleBatch batch = data.batch({{1, 4}}, {.rollout = 3, .rays = 8}, 5);
  for (std::int64_t step = 0; step < 3; ++step) {
    const RgbdMoment moment = data.frames().moment(1, 6 + step);
    const CameraRays rays = camera_rays(moment.intrinsics, moment.poses, 16, 16);
    for (std::int64_t ray = 0; ray < 8; ++ray) {
      const at::Tensor off = (rays.directions - batch.directions[0][step][ray]).norm(2, {-1}) +
                             (rays.origins - batch.origins[0][step][ray]).norm(2, {-1});
      const std::int64_t pixel = off.view({-1}).argmin().item<std::int64_t>();
      EXPECT_TRUE(batch.colours[0][step][ray].equal(moment.colour.view({-1, 3})[pixel].to(at::kFloat) / 255));
    }
  }
  // Without a prediction, those of the last frame that is seen.
  const ParticleBatch still = data.batch({{1, 4}}, {.rollout = 0, .rays = 8}, 5);
  EXPECT_EQ(still.colours.sizes(), (std::vector<std::int64_t>{1, 1, 8, 3}));
  EXPECT_EQ(still.robot.size(1), 2);
}

TEST(ParticleData, KnowsWhereParticlesGo) {
  const ParticleData data(kEpisodes, kSmall);
  const ParticleBatch batch = data.batch({{0, 3}, {3, 9}}, {.rollout = 2, .rays = 0, .truth = true}, 1);
  const ParticleBatch seen = data.batch({{0, 3}, {3, 9}}, {.rollout = 2, .rays = 5}, 1);
  EXPECT_FALSE(seen.truth.defined());
  EXPECT_TRUE(batch.positions.equal(seen.positions));  // rays are drawn apart
  EXPECT_EQ(batch.colours.sizes(), (std::vector<std::int64_t>{2, 2, 0, 3}));
  ASSERT_EQ(batch.truth.sizes(), (std::vector<std::int64_t>{2, 2, 120, 3}));
  const at::Tensor expected = carry_points(data.states(3), batch.positions[1], batch.shapes[1], 10, 12);
  EXPECT_TRUE(batch.truth[1][1].equal(expected));
  for (std::int64_t b = 0; b < 2; ++b) {
    const at::Tensor parts = data.states(b == 0 ? 0 : 3).shape_part.index_select(0, batch.shapes[b]);
    for (const ParticleGroup group : {ParticleGroup::table, ParticleGroup::arm, ParticleGroup::grain}) {
      at::Tensor own = parts == static_cast<std::int64_t>(group == ParticleGroup::table ? ScenePart::table
                                                                                        : ScenePart::grain);
      if (group == ParticleGroup::arm)
        own = (parts > static_cast<std::int64_t>(ScenePart::table))
                  .logical_and(parts < static_cast<std::int64_t>(ScenePart::can));
      EXPECT_TRUE(own.equal(batch.groups[b] == static_cast<std::int64_t>(group)));
    }
    const at::Tensor distance = (batch.truth[b][1] - batch.positions[b]).norm(2, {-1});
    const at::Tensor still = batch.groups[b] == static_cast<std::int64_t>(ParticleGroup::table);
    EXPECT_LT(distance.masked_select(still).max().item<double>(), 1e-6);
    EXPECT_GT(distance.masked_select(still.logical_not()).max().item<double>(), kLeastMove);
  }
}

TEST(ParticleData, BatchesDoNotDependOnThreads) {
  const int before = num_threads();
  std::vector<ParticleBatch> batches;
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    const ParticleData data(kEpisodes, kSmall);
    batches.push_back(data.batch({{3, 0}, {0, 7}}, {.rollout = 1, .rays = 9}, 11));
  }
  set_num_threads(before);
  EXPECT_TRUE(batches[0].positions.equal(batches[1].positions));
  EXPECT_TRUE(batches[0].colours.equal(batches[1].colours));
  EXPECT_TRUE(batches[0].images.equal(batches[1].images));
}

TEST(ParticleData, SaysWhatIsWrong) {
  const ParticleData data(kEpisodes, kSmall);
  expect_error([&] { data.windows(0, 23); }, {"'sweep-000000' has 24 frames", "rollout of 23 needs more"});
  expect_error([&] { data.batch({{0, 22}}, {.rollout = 1}, 0); }, "0 to 21, got 22");
  // As many particles as the frame with the fewest known pixels has, and one more.
  std::int64_t fewest = 600;
  for (std::int64_t episode = 0; episode < data.episodes(); ++episode) {
    for (std::int64_t frame = 1; frame < data.frames().frames(episode); ++frame)
      fewest = std::min(fewest,
                        known_depth(data.frames().moment(episode, frame).depth).sum().item<std::int64_t>());
  }
  ParticleDataOptions many = kSmall;
  many.particles = fewest;
  EXPECT_NO_THROW(ParticleData(kEpisodes, many));
  ++many.particles;
  const std::string pixels =
      fmt::format("{} pixels have a known depth, fewer than the {} particles", fewest, many.particles);
  expect_error([&] { ParticleData(kEpisodes, many); }, {"frame ", pixels.c_str()});
  // A recorded sequence has no robot.
  const TemporaryFolder recorded;
  write_rgbd_intrinsics(recorded.path().string(), {20, 20, 8, 8});
  RgbdImage image;
  image.width = image.height = 16;
  image.pose = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
  image.colour.assign(16 * 16 * 3, 9);
  image.depth.assign(16 * 16, 1);
  write_rgbd_frame(recorded.path().string(), 0, image);
  expect_error([&] { ParticleData(recorded.path().string(), kSmall); },
               {"was recorded by a camera", "topomask simulate robot"});
}

// Copies the episodes, with one of them changed.
void spoil(const std::string& folder, const std::function<void(RobotEpisode&)>& change) {
  fs::copy(kEpisodes, folder, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  RobotEpisode episode = read_robot_episode(kEpisodes + "/lift-can-000000.safetensors");
  change(episode);
  std::ofstream(folder + "/lift-can-000000.safetensors", std::ios::binary) << format_robot_episode(episode);
}

TEST(ParticleData, RefusesEpisodesThatDoNotFit) {
  const TemporaryFolder cut, blind;
  spoil(cut.path().string(), [](RobotEpisode& episode) {
    const auto shorten = [&](std::vector<float>& values) { values.resize(values.size() / 24 * 10); };
    episode.frames = 10;
    for (auto* values : {&episode.body_position, &episode.body_rotation, &episode.commanded_position,
                         &episode.commanded_rotation, &episode.joint_position, &episode.joint_velocity,
                         &episode.joint_command, &episode.grip, &episode.grip_command})
      shorten(*values);
  });
  expect_error([&] { ParticleData(cut.path().string(), kSmall); },
               {"lift-can-000000", "has 10 frames", "has 24"});
  spoil(blind.path().string(), [](RobotEpisode& episode) { episode.cameras.pop_back(); });
  expect_error([&] { ParticleData(blind.path().string(), kSmall); },
               {"lift-can-000000", "has 1 cameras", "has 2"});
}

TEST(ParticleData, FingerprintTellsEpisodesApart) {
  const TemporaryFolder other;
  spoil(other.path().string(), [](RobotEpisode& episode) { episode.body_position[5] += .01f; });
  EXPECT_EQ(ParticleData(kEpisodes, kSmall).fingerprint(), ParticleData(kEpisodes, kSmall).fingerprint());
  EXPECT_NE(ParticleData(kEpisodes, kSmall).fingerprint(),
            ParticleData(other.path().string(), kSmall).fingerprint());
}

}  // namespace
}  // namespace topomask
