#include "robot/cpu/script.h"

#include <algorithm>
#include <numeric>

#include "core/random.h"

namespace topomask::robot {
namespace {

// A particle moves by at most 0.25 m per frame (paper, appendix C). The hand's peak stays clearly below,
// since links and what the hand holds may swing further than its point.
constexpr double kFastest = .4;      // m/s
constexpr double kJerkPeak = 1.875;  // peak over mean speed of a motion of minimum jerk
constexpr double kOpen = .048, kClosed = .004;
constexpr std::uint32_t kScriptPurpose = 0x726f626f;  // keeps these numbers apart from those of graphs

// A statement draws more than once only in braces or in a list of declarations, which go from left to right.
// Operands and arguments of a call are evaluated in an order that the compiler chooses.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : stream_(seed, kScriptPurpose) {}
  double between(double low, double high) { return low + (high - low) * stream_.next_double(); }
  bool chance(double probability) { return stream_.next_double() < probability; }
  double sign() { return chance(.5) ? 1 : -1; }
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(stream_.next_below(bound)); }

 private:
  RandomStream stream_;
};

// A heap: discs of a lattice, one above the other and each smaller than the one below; grains take random
// cells of as many layers as they need. Never two in one place.
std::vector<Place> heap_of_grains(Dice& dice, Vec middle, double radius) {
  constexpr double kPitch = 2.15 * kGrainRadius, kJitter = .05 * kGrainRadius;
  std::vector<Vec> cells;
  for (int layer = 0; static_cast<int>(cells.size()) < kGrains * 5 / 4; ++layer) {
    const double reach = std::max(radius - .4 * layer * kPitch, kPitch);
    const int steps = static_cast<int>(reach / kPitch);
    for (int i = -steps; i <= steps; ++i) {
      for (int j = -steps; j <= steps; ++j) {
        const Vec cell{i * kPitch, j * kPitch, kGrainRadius + layer * kPitch + .001};
        if (std::hypot(cell.x, cell.y) <= reach) cells.push_back(cell);
      }
    }
  }
  std::vector<Place> grains;
  for (int k = 0; k < kGrains; ++k) {
    const auto i = static_cast<std::size_t>(k), chosen = i + dice.below(cells.size() - i);
    std::swap(cells[i], cells[chosen]);
    const double dx = dice.between(-kJitter, kJitter), dy = dice.between(-kJitter, kJitter);
    grains.push_back({middle + cells[i] + Vec{dx, dy, 0}, 0});
  }
  return grains;
}

// The right hand holds the pan, open towards +y and its front edge on the table. The left one sweeps the heap
// into it with two strokes of the brush, then the pan is lifted and tipped back.
Script sweep_script(Dice& dice) {
  Script script;
  constexpr double kQuarter = M_PI / 2, kNoseDown = -.07;
  const Vec heap{dice.between(.35, .41), dice.between(0, .05), 0};
  script.objects = heap_of_grains(dice, heap, dice.between(.045, .06));
  const Vec pan{heap.x + dice.between(-.008, .008), heap.y - dice.between(.20, .22), .0055};
  const double high = dice.between(.09, .13), from = heap.y + dice.between(.12, .14), to = pan.y + .035;

  HandPlan& right = script.hands[1];
  right.begin({{pan.x, pan.y - dice.between(.02, .06), dice.between(.10, .16)}, kQuarter});
  right.move({pan, kQuarter, kNoseDown}, 1.4);

  HandPlan& left = script.hands[0];
  left.begin({{heap.x + dice.between(-.05, .05), from + dice.between(0, .05), high + .05}, -kQuarter});
  left.move({{heap.x + dice.between(-.02, .02), from, .03}, -kQuarter}, 1.4);
  constexpr int kStrokes = 2;
  for (int stroke = 0; stroke < kStrokes; ++stroke) {
    const double x = pan.x + dice.between(-.006, .006), yaw = -kQuarter + dice.between(-.05, .05);
    left.move({{x, from, .003}, yaw}, .6);
    left.move({{x, to, .0065}, yaw}, dice.between(2.0, 2.4));
    left.move({{x, to + .03, high}, -kQuarter}, .6);
    if (stroke + 1 < kStrokes) left.move({{x, from, .03}, -kQuarter}, 1.5);
  }
  right.wait_until(left.time());
  left.move({{heap.x + .02, from + .06, high + .06}, -kQuarter}, 1.2);
  right.move({{pan.x, pan.y - .02, dice.between(.08, .13)}, kQuarter, .15}, 1.4);
  return script;
}

// Closed fingers beside the block, then along the table.
void push_block(Dice& dice, HandPlan& hand, const HandPose& rest, Vec block, double half, double side) {
  const double heading = dice.between(-.7, .7) - side * M_PI / 2;
  const double length = dice.between(.12, .20), gap = half * 1.5 + .035;
  const Vec along{std::cos(heading), std::sin(heading), 0};
  const auto beside = [&](double distance, double z) {
    return HandPose{Vec{block.x, block.y, z} + distance * along, heading, 0, 0, kClosed};
  };
  hand.begin({rest.at, heading * .5, 0, 0, kClosed});
  hand.move(beside(-gap, .12), dice.between(1.0, 1.6));
  hand.move(beside(-gap, .022), 1.2);
  hand.move(beside(length - gap, .022), dice.between(2.8, 4.5));
  hand.move(beside(length - gap - .05, .15), 1.2);
  hand.move({rest.at, heading * .5, 0, 0, kClosed}, 2);
}

Script object_script(RobotTask task, Dice& dice) {
  Script script;
  Sizes& sizes = script.sizes;
  sizes = {dice.between(.029, .035), dice.between(.045, .06), dice.between(.026, .034)};
  const bool is_block = task == RobotTask::move_block;

  // The object of the task lies near the middle, the others beside it.
  const Vec object{dice.between(.36, .46), dice.between(-.10, .10), 0};
  const double turn = dice.between(-.6, .6);
  const bool nearer = dice.chance(.8);  // of the arms
  const std::size_t arm = (object.y > 0) == nearer ? 0 : 1;
  const double side = arm == 0 ? 1 : -1;
  const Vec beside{dice.between(.34, .46), -side * dice.between(.20, .28), 0};
  const Vec behind{dice.between(.56, .60), dice.between(-.14, .14), 0};
  const double other_turn = dice.between(-.7, .7), carton_turn = dice.between(-.7, .7);
  const auto standing = [](Vec at, double half_height, double yaw) {
    return Place{{at.x, at.y, half_height + .001}, yaw};
  };
  script.objects = {standing(is_block ? beside : object, sizes.can_half_height, is_block ? other_turn : turn),
                    standing(is_block ? object : beside, sizes.block_half, is_block ? turn : other_turn),
                    standing(behind, .045, carton_turn)};

  // The other hand wanders over its own side.
  HandPlan& idle = script.hands[1 - arm];
  const auto somewhere = [&] {
    const Vec at{dice.between(.34, .46), -side * dice.between(.24, .36), dice.between(.16, .30)};
    const double yaw = dice.between(-.6, .6), tilt = dice.between(-.2, .2);
    return HandPose{at, yaw, tilt, 0, dice.between(.01, .045)};
  };
  idle.begin(somewhere());
  while (idle.time() < (kRobotFrames - 1) * kRobotFrameSeconds) {
    const double seconds = dice.between(1.5, 3.0);
    idle.move(somewhere(), seconds);
  }

  HandPlan& hand = script.hands[arm];
  const Vec rest_at{dice.between(.34, .42), side * dice.between(.16, .28), dice.between(.16, .24)};
  const HandPose rest{rest_at, 0, 0, 0, kOpen};
  if (is_block && dice.chance(.5)) {
    push_block(dice, hand, rest, object, sizes.block_half, side);
    return script;
  }

  const double yaw = is_block ? turn : dice.between(-.5, .5);
  const double grasp = is_block ? std::max(.03, sizes.block_half) : dice.between(.055, .075);
  const auto above = [&](Vec at, double rise, double angle, double grip) {
    return HandPose{{at.x, at.y, grasp + rise}, angle, 0, 0, grip};
  };
  HandPose first = rest;
  first.yaw = yaw * .5;
  hand.begin(first);
  const double approach_seconds = dice.between(1.0, 1.6), approach_rise = dice.between(.09, .12);
  hand.move(above(object, approach_rise, yaw, kOpen), approach_seconds);
  hand.move(above(object, 0, yaw, kOpen), 1);
  hand.move(above(object, 0, yaw, kClosed), .8);

  const double lift = dice.between(.10, .18), direction = dice.between(0, 2 * M_PI),
               far = dice.between(.08, .16);
  const auto moved = [&](double way) {
    return Vec{std::clamp(object.x + way * std::cos(direction), .30, .48),
               std::clamp(object.y + way * std::sin(direction), -.16, .16), 0};
  };
  const bool cut_short = length(moved(far) - object) < .07;  // by the rim of what the hand can reach
  const Vec aside = moved(cut_short ? -far : far);
  if (task == RobotTask::move_block) {
    hand.move(above(object, dice.between(.05, .10), yaw, kClosed), 1.2);
    const double end_yaw = yaw + dice.between(-.5, .5);
    hand.move(above(aside, .06, end_yaw, kClosed), dice.between(1.5, 2.5));
    hand.move(above(aside, .002, end_yaw, kClosed), 1.2);
    hand.move(above(aside, .002, end_yaw, kOpen), .6);
    hand.move(above(aside, .13, end_yaw, kOpen), 1);
    hand.move(rest, 2);
  } else if (task == RobotTask::lift_can) {
    hand.move(above(object, lift, yaw, kClosed), dice.between(1.5, 2.2));
    for (const Vec& at : {aside, object}) {
      const double turned = dice.between(-.6, .6), higher = dice.between(-.03, .05);
      HandPose pose = above(at, lift + higher, yaw + turned, kClosed);
      pose.tilt = dice.between(-.3, .3);
      pose.roll = dice.between(-.5, .5);
      hand.move(pose, dice.between(1.5, 2.5));
    }
    hand.move(above(aside, lift, yaw, kClosed), 2.5);
  } else {
    hand.move(above(object, lift, yaw, kClosed), dice.between(1.2, 1.8));
    HandPose pose = above(aside, lift, yaw, kClosed);
    const double sign = dice.sign();
    pose.roll = sign * dice.between(.1, .9);
    hand.move(pose, dice.between(.9, 1.5));
    hand.wait(dice.between(.3, .6));
    pose.grip = kOpen;
    hand.move(pose, .25);
    hand.wait(1);
    hand.move(rest, 2);
  }
  return script;
}

}  // namespace

void HandPlan::begin(const HandPose& pose) {
  waypoints_ = {{0, pose}};
}

void HandPlan::move(const HandPose& pose, double seconds) {
  const double least = kJerkPeak * length(pose.at - last().at) / kFastest;
  waypoints_.push_back({time() + std::max(seconds, least), pose});
}

void HandPlan::wait(double seconds) {
  waypoints_.push_back({time() + seconds, last()});
}

void HandPlan::wait_until(double until) {
  if (until > time()) waypoints_.push_back({until, last()});
}

HandPose HandPlan::at(double when) const {
  const auto next = std::upper_bound(waypoints_.begin(), waypoints_.end(), when,
                                     [](double t, const Waypoint& waypoint) { return t < waypoint.time; });
  if (next == waypoints_.begin()) return waypoints_.front().pose;
  if (next == waypoints_.end()) return waypoints_.back().pose;
  const Waypoint &a = *(next - 1), &b = *next;
  const double u = (when - a.time) / (b.time - a.time), s = u * u * u * (10 - 15 * u + 6 * u * u);
  const auto mix = [s](double from, double to) { return from + s * (to - from); };
  return {a.pose.at + s * (b.pose.at - a.pose.at), mix(a.pose.yaw, b.pose.yaw), mix(a.pose.tilt, b.pose.tilt),
          mix(a.pose.roll, b.pose.roll), mix(a.pose.grip, b.pose.grip)};
}

Script draw_script(RobotTask task, std::uint64_t seed) {
  Dice dice(seed);
  return task == RobotTask::sweep ? sweep_script(dice) : object_script(task, dice);
}

std::vector<Command> plan_commands(RobotTask task, const Script& script, double seconds) {
  constexpr double kLargestError = .006, kLeastClearance = .01;
  constexpr int kFirstIterations = 100, kIterations = 3;
  Command command{};
  for (int arm = 0; arm < kRobotArms; ++arm) {
    Joints& joints = command.joints[static_cast<std::size_t>(arm)];
    joints = kHome;
    joints[0] = arm == 0 ? -.4 : .4;  // the hand in front of the robot's middle
  }
  std::vector<Command> commands;
  const int count = static_cast<int>(std::lround(seconds / kControlSeconds)) + 1;
  for (int step = 0; step < count; ++step) {
    for (int arm = 0; arm < kRobotArms; ++arm) {
      const auto a = static_cast<std::size_t>(arm);
      const HandPose pose = script.hands[a].at(step * kControlSeconds);
      const double error =
          reach(arm, tool_of(task, arm), pose, step == 0 ? kFirstIterations : kIterations, command.joints[a]);
      if (error > kLargestError) return {};
      command.grips[a] = pose.grip;
    }
    if (step % 5 == 0 && clearance(command.joints[0], command.joints[1]) < kLeastClearance) return {};
    commands.push_back(command);
  }
  return commands;
}

}  // namespace topomask::robot
