// Kinematics against the poses that MuJoCo computed, and plans against their own limits.
#include "robot/cpu/arm.h"

#include <gtest/gtest.h>

#include <random>

#include "robot/cpu/script.h"
#include "stored.h"
#include "support/expect_error.h"

namespace topomask::testing {
namespace {

using namespace robot;

double turn_between(const float* a, const float* b) {  // of two quaternions
  const double product =
      std::abs(double{a[0]} * b[0] + double{a[1]} * b[1] + double{a[2]} * b[2] + double{a[3]} * b[3]);
  return 2 * std::acos(std::min(1., product));
}

TEST(Arm, ForwardKinematicsIsThatOfTheSimulator) {
  for (const RobotTask task : kTasks) {
    const RobotEpisode& episode = stored_episode(task);
    for (std::size_t frame = 0; frame < static_cast<std::size_t>(episode.frames); ++frame) {
      const RobotPose pose =
          robot_forward(&episode.joint_position[14 * frame], &episode.grip[2 * frame], episode.robot_bodies);
      ASSERT_EQ(pose.position.size(), 3u * static_cast<std::size_t>(episode.robot_bodies));
      for (std::size_t body = 0; body < static_cast<std::size_t>(episode.robot_bodies); ++body) {
        const std::size_t there = frame * static_cast<std::size_t>(episode.bodies) + body + 1;
        // Two fingers share one stored opening; they differ by what they press against.
        const bool finger = episode.robot_bodies == 20 && body % 10 >= 8;
        for (std::size_t k = 0; k < 3; ++k)
          ASSERT_NEAR(pose.position[3 * body + k], episode.body_position[3 * there + k], finger ? .02 : 2e-6);
        ASSERT_LT(turn_between(&pose.rotation[4 * body], &episode.body_rotation[4 * there]), 2e-3);
      }
    }
  }
}

TEST(Arm, QuaternionsAndRotationsAreInverse) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (int i = 0; i < 200; ++i) {
    double q[4] = {normal(random), normal(random), normal(random), normal(random)};
    if (i < 4) std::fill(q, q + 4, 0.), q[i] = 1;  // half turns, where w is 0
    const double length = std::sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
    const auto back = quaternion_of(rotation_of(q));
    double product = 0;
    for (std::size_t k = 0; k < 4; ++k) product += back[k] * q[k] / length;
    EXPECT_NEAR(std::abs(product), 1, 1e-12);
    EXPECT_GE(back[0], 0);
  }
}

TEST(Arm, ReachPutsTheToolWhereItShallBe) {
  struct Case {
    int arm;
    Tool tool;
    HandPose pose;
  };
  // As the tasks hold them.
  const Case cases[] = {{0, Tool::gripper, {{.4, .1, .15}, .2, .1, -.2}},
                        {1, Tool::gripper, {{.4, -.1, .15}, -.2, -.1, .2}},
                        {0, Tool::brush, {{.38, .1, .003}, -M_PI / 2, 0, 0}},
                        {1, Tool::pan, {{.38, -.18, .006}, M_PI / 2, -.07, 0}}};
  for (const auto& [arm, tool, pose] : cases) {
    Joints joints = kHome;
    joints[0] = arm == 0 ? -.4 : .4;
    const double error = reach(arm, tool, pose, 200, joints);
    const Pose<double> hand = arm_bodies(arm, joints).back();
    EXPECT_NEAR(length(hand.place(tool_point(tool)) - pose.at), error, 1e-12);
    EXPECT_LT(error, 2e-3);
    // Damping and the pull of the null space leave a few degrees.
    const Rot wanted = hand_rotation(pose);
    EXPECT_GT(dot(hand.rotation.x, wanted.x), std::cos(.12));
    EXPECT_GT(dot(hand.rotation.z, wanted.z), std::cos(.12));
    for (std::size_t i = 0; i < joints.size(); ++i) {
      EXPECT_GE(joints[i], kLinks[i].low);
      EXPECT_LE(joints[i], kLinks[i].high);
    }
  }
  Joints joints = kHome;
  EXPECT_GT(reach(0, Tool::gripper, {{2, 0, 1}}, 100, joints), .5);  // two metres away
}

TEST(Arm, ClearanceIsTheDistanceOfTheArms) {
  Joints left = kHome, right = kHome;
  // Stretched upwards: two vertical columns at the distance of the bases, as wide as the palms.
  left.fill(0);
  right.fill(0);
  EXPECT_NEAR(clearance(left, right), .54 - .05 - .05, 1e-9);
  left[0] = -M_PI / 2;  // both bend towards the other and meet
  right[0] = M_PI / 2;
  left[1] = right[1] = .6;
  EXPECT_LT(clearance(left, right), 0);
}

TEST(Arm, ForwardRefusesOtherNumbersOfBodies) {
  const float joints[14] = {}, grips[2] = {};
  expect_error([&] { robot_forward(joints, grips, 17); },
               "robot_bodies must be 16 (tools) or 20 (grippers), got 17");
}

TEST(Script, IsAFunctionOfTheSeedAndVaries) {
  for (const RobotTask task : kTasks) {
    const Script a = draw_script(task, 5), b = draw_script(task, 5), c = draw_script(task, 6);
    ASSERT_EQ(a.objects.size(), task == RobotTask::sweep ? kGrains : 3u);
    EXPECT_EQ(a.objects[0].at.x, b.objects[0].at.x);
    EXPECT_NE(a.objects[0].at.x, c.objects[0].at.x);
    EXPECT_EQ(a.hands[0].at(3.3).at.x, b.hands[0].at(3.3).at.x);
  }
}

TEST(Script, GrainsDoNotOverlapAndStandAboveTheTable) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Script script = draw_script(RobotTask::sweep, seed);
    for (std::size_t i = 0; i < script.objects.size(); ++i) {
      EXPECT_GE(script.objects[i].at.z, kGrainRadius);
      for (std::size_t j = 0; j < i; ++j)
        ASSERT_GT(length(script.objects[i].at - script.objects[j].at), 2 * kGrainRadius) << seed;
    }
  }
}

TEST(Script, HandsNeverMoveFasterThanParticlesCanFollow) {
  for (const RobotTask task : kTasks) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const Script script = draw_script(task, seed);
      for (const HandPlan& hand : script.hands) {
        for (double t = 0; t < 12; t += .1)
          ASSERT_LT(length(hand.at(t + .5).at - hand.at(t).at), .21)
              << word_of(task) << " " << seed << " at " << t;
      }
    }
  }
}

TEST(Script, PlansKeepToTheirPosesOrAreRefused) {
  const Script script = draw_script(RobotTask::lift_can, 3);
  const std::vector<Command> commands = plan_commands(RobotTask::lift_can, script, 12.5);
  ASSERT_EQ(commands.size(), 626u);
  for (std::size_t step = 0; step < commands.size(); step += 25) {
    for (int arm = 0; arm < kRobotArms; ++arm) {
      const auto a = static_cast<std::size_t>(arm);
      const Vec point = arm_bodies(arm, commands[step].joints[a]).back().place(tool_point(Tool::gripper));
      EXPECT_LT(length(point - script.hands[a].at(static_cast<double>(step) * kControlSeconds).at), .006);
    }
  }
  Script out_of_reach = script;
  out_of_reach.hands[0].begin({{1.5, 0, .2}});
  EXPECT_TRUE(plan_commands(RobotTask::lift_can, out_of_reach, 1).empty());
  Script crossing = script;  // both hands at one place
  for (HandPlan& hand : crossing.hands) hand.begin({{.4, 0, .2}});
  EXPECT_TRUE(plan_commands(RobotTask::lift_can, crossing, 1).empty());
}

}  // namespace
}  // namespace topomask::testing
