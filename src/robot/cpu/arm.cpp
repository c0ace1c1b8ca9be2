#include "robot/cpu/arm.h"

#include <algorithm>

#include "core/check.h"

namespace topomask::robot {
namespace {

Rot about(Vec axis, double angle) {  // an axis of the frame, or its opposite
  if (axis.z != 0) return about_z(axis.z * angle);
  return axis.y != 0 ? about_y(axis.y * angle) : about_x(axis.x * angle);
}

// The least distance of the segments a..b and c..d (Ericson, Real-Time Collision Detection, 5.1.9).
double segment_distance(Vec a, Vec b, Vec c, Vec d) {
  const Vec u = b - a, v = d - c, w = a - c;
  const double uu = dot(u, u), vv = dot(v, v), uv = dot(u, v), uw = dot(u, w), vw = dot(v, w);
  const double denominator = uu * vv - uv * uv;
  double s = denominator > 1e-12 ? std::clamp((uv * vw - uw * vv) / denominator, 0., 1.) : 0;
  double t = (uv * s + vw) / vv;
  if (t < 0 || t > 1) {
    t = std::clamp(t, 0., 1.);
    s = std::clamp((uv * t - uw) / uu, 0., 1.);
  }
  return length(w + s * u - t * v);
}

constexpr double kHandLength = .13, kHandRadius = .05;  // palm, fingers and tools, roughly

}  // namespace

std::array<Pose<double>, kArmBodies> arm_bodies(int arm, const Joints& joints) {
  std::array<Pose<double>, kArmBodies> bodies;
  bodies[0] = {kBases[static_cast<std::size_t>(arm)], {}};
  for (std::size_t i = 0; i < kLinks.size(); ++i) {
    const Link& link = kLinks[i];
    bodies[i + 1] = bodies[i] * Pose<double>{{0, 0, link.offset}, about(link.axis, joints[i])};
  }
  return bodies;
}

Rot hand_rotation(const HandPose& pose) {
  return about_z(pose.yaw) * about_x(M_PI) * about_y(pose.tilt) * about_x(pose.roll);
}

double reach(int arm, Tool tool, const HandPose& pose, int iterations, Joints& joints) {
  constexpr std::size_t kRows = 6;
  constexpr double kDamping = 1e-3, kTurnWeight = .5, kLargestMove = .1, kLargestStep = .3, kMargin = .02;
  constexpr Joints kPull{0, .02, .3, .02, .1, .02, .02};
  const Rot target = hand_rotation(pose);
  for (int iteration = 0;; ++iteration) {
    const auto bodies = arm_bodies(arm, joints);
    const Vec point = bodies.back().place(tool_point(tool)), move = pose.at - point;
    if (iteration == iterations) return length(move);
    // The turn that is missing: half the sum of the cross products of the axes.
    const Rot& now = bodies.back().rotation;
    const Vec turn = .5 * (cross(now.x, target.x) + cross(now.y, target.y) + cross(now.z, target.z));
    const auto limited = [&](double x) { return std::clamp(x, -kLargestMove, kLargestMove); };
    const double error[kRows] = {limited(move.x),      limited(move.y),      limited(move.z),
                                 kTurnWeight * turn.x, kTurnWeight * turn.y, kTurnWeight * turn.z};
    double jacobian[kRows][kRobotJoints], pull[kRobotJoints];
    for (std::size_t i = 0; i < kRobotJoints; ++i) {
      const Vec axis = bodies[i + 1].rotation.turn(kLinks[i].axis);
      const Vec speed = cross(axis, point - bodies[i + 1].position);
      const double column[kRows] = {
          speed.x, speed.y, speed.z, kTurnWeight * axis.x, kTurnWeight * axis.y, kTurnWeight * axis.z};
      for (std::size_t r = 0; r < kRows; ++r) jacobian[r][i] = column[r];
      pull[i] = kPull[i] * (kHome[i] - joints[i]);
    }
    // step = pull + Jt (J Jt + damping)^-1 (error - J pull); elimination needs no pivots, the matrix is
    // positive definite.
    double system[kRows][kRows + 1];
    for (std::size_t r = 0; r < kRows; ++r) {
      system[r][kRows] = error[r];
      for (std::size_t i = 0; i < kRobotJoints; ++i) system[r][kRows] -= jacobian[r][i] * pull[i];
      for (std::size_t k = 0; k < kRows; ++k) {
        system[r][k] = r == k ? kDamping : 0;
        for (std::size_t i = 0; i < kRobotJoints; ++i) system[r][k] += jacobian[r][i] * jacobian[k][i];
      }
    }
    for (std::size_t k = 0; k < kRows; ++k) {
      for (std::size_t r = k + 1; r < kRows; ++r) {
        const double factor = system[r][k] / system[k][k];
        for (std::size_t c = k; c <= kRows; ++c) system[r][c] -= factor * system[k][c];
      }
    }
    double solution[kRows];
    for (std::size_t k = kRows; k-- > 0;) {
      solution[k] = system[k][kRows];
      for (std::size_t c = k + 1; c < kRows; ++c) solution[k] -= system[k][c] * solution[c];
      solution[k] /= system[k][k];
    }
    for (std::size_t i = 0; i < kRobotJoints; ++i) {
      double step = pull[i];
      for (std::size_t r = 0; r < kRows; ++r) step += jacobian[r][i] * solution[r];
      joints[i] = std::clamp(joints[i] + std::clamp(step, -kLargestStep, kLargestStep),
                             kLinks[i].low + kMargin, kLinks[i].high - kMargin);
    }
  }
}

double clearance(const Joints& left, const Joints& right) {
  const std::array<std::array<Pose<double>, kArmBodies>, 2> bodies{arm_bodies(0, left), arm_bodies(1, right)};
  struct Capsule {
    Vec from, to;
    double radius;
  };
  const auto capsule = [&](std::size_t arm,
                           std::size_t link) -> Capsule {  // the hand counts as an eighth link
    if (link == kLinks.size()) {
      const Pose<double>& last = bodies[arm].back();
      return {last.position, last.place({0, 0, kHandLength}), kHandRadius};
    }
    const Pose<double>& body = bodies[arm][link + 1];
    return {body.position, body.place({0, 0, kLinks[link].length}), kLinks[link].radius};
  };
  double least = 1e9;
  for (std::size_t a = 1; a <= kLinks.size(); ++a) {
    for (std::size_t b = 1; b <= kLinks.size(); ++b) {
      const Capsule one = capsule(0, a), other = capsule(1, b);
      least = std::min(least,
                       segment_distance(one.from, one.to, other.from, other.to) - one.radius - other.radius);
    }
  }
  return least;
}

}  // namespace topomask::robot

namespace topomask {

RobotPose robot_forward(const float* joints, const float* grips, int robot_bodies) {
  using namespace robot;
  check(robot_bodies == kRobotArms * kArmBodies || robot_bodies == kRobotArms * (kArmBodies + kFingers),
        "robot_forward: robot_bodies must be 16 (tools) or 20 (grippers), got {}", robot_bodies);
  const bool fingers = robot_bodies > kRobotArms * kArmBodies;
  RobotPose result;
  const auto add = [&](const topomask::robot::Pose<double>& pose) {
    for (const double x : {pose.position.x, pose.position.y, pose.position.z})
      result.position.push_back(static_cast<float>(x));
    for (const double x : quaternion_of(pose.rotation)) result.rotation.push_back(static_cast<float>(x));
  };
  for (int arm = 0; arm < kRobotArms; ++arm) {
    Joints values;
    std::copy_n(joints + arm * kRobotJoints, kRobotJoints, values.begin());
    const auto bodies = arm_bodies(arm, values);
    for (const auto& body : bodies) add(body);
    for (int finger = 0; fingers && finger < kFingers; ++finger) {
      const double slide = finger == 0 ? grips[arm] : -grips[arm];
      add(bodies.back() * topomask::robot::Pose<double>{kFingerRoot + Vec{0, slide, 0}, {}});
    }
  }
  return result;
}

}  // namespace topomask
