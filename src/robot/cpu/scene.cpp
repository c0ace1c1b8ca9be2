#include "robot/cpu/scene.h"

#include <fmt/format.h>

#include <string_view>

namespace topomask::robot {
namespace {

constexpr std::string_view kSides[kRobotArms] = {"left", "right"};

// What touches what, as bits: objects and the table touch everything; links of one arm touch those of the
// other; tools and fingers touch objects alone (the bristles of a brush give way to the pan).
constexpr std::string_view kHead = R"(<mujoco model='topomask robot'>
<compiler angle='radian' autolimits='true'/>
<option timestep='{}' integrator='implicitfast' cone='pyramidal' solver='Newton' iterations='20'/>
<size memory='64M'/>
<default>
<default class='left_link'><geom contype='2' conaffinity='5' density='800'/></default>
<default class='right_link'><geom contype='4' conaffinity='3' density='800'/></default>
<default class='tool'><geom contype='8' conaffinity='1' density='400' friction='.6 .005 .0001'/></default>
<default class='finger'>
<geom contype='8' conaffinity='1' density='1500' friction='1.6 .02 .0005' condim='4' solref='.01 1'/>
<joint armature='.05' damping='6'/>
</default>
<default class='arm'><joint armature='.1' damping='6'/></default>
<default class='object'><geom contype='1' conaffinity='1' condim='4' friction='.8 .01 .0005'/></default>
<default class='grain'><geom contype='1' conaffinity='1' condim='3' friction='.6 .01 .001' density='600'/></default>
</default>
<worldbody>
<geom name='floor' class='object' type='plane' pos='0 0 -.75' size='0 0 1'/>
<geom name='table' class='object' type='box' pos='.38 0 -.02' size='.28 .36 .02' {} rgba='.72 .58 .42 1'/>
)";
// Rolling friction ends what would else roll off the table. Grains are many and need none.
constexpr std::string_view kRollingFriction = "condim='6' friction='.8 .01 .002'";

// Tools are fixed to the last link, whose z points out of the hand.
constexpr std::string_view kBrush = R"(
<geom name='brush_handle' class='tool' type='capsule' fromto='0 0 .03 0 0 .10' size='.012' rgba='.25 .2 .2 1'/>
<geom name='brush_back' class='tool' type='box' pos='0 0 .105' size='.018 .078 .012' rgba='.12 .28 .75 1'/>
<geom name='brush_bristles' class='tool' type='box' pos='0 0 .1325' size='.013 .075 .0155' rgba='.92 .85 .3 1'/>
<geom name='brush_wing0' class='tool' type='box' pos='.027 .077 .1315' size='.030 .003 .0145' rgba='.12 .28 .75 1'/>
<geom name='brush_wing1' class='tool' type='box' pos='.027 -.077 .1315' size='.030 .003 .0145' rgba='.12 .28 .75 1'/>
)";
// Open towards the hand's x; the handle stands at its back, so that the brush has room.
constexpr std::string_view kPan = R"(
<geom name='pan_handle' class='tool' type='capsule' fromto='0 0 .03 0 0 .095' size='.012' rgba='.25 .2 .2 1'/>
<geom name='pan_post' class='tool' type='box' pos='.007 0 .113' size='.012 .016 .022' rgba='.62 .08 .08 1'/>
<geom name='pan_plate' class='tool' type='box' pos='.09 0 .1345' size='.07 .09 .0015' rgba='.85 .15 .12 1'/>
<geom name='pan_back' class='tool' type='box' pos='.019 0 .1185' size='.003 .09 .0175' rgba='.7 .1 .1 1'/>
<geom name='pan_wall0' class='tool' type='box' pos='.085 .089 .121' size='.065 .003 .015' rgba='.7 .1 .1 1'/>
<geom name='pan_wall1' class='tool' type='box' pos='.085 -.089 .121' size='.065 .003 .015' rgba='.7 .1 .1 1'/>
)";

void add_gripper(std::string& text, std::string_view side) {
  text += fmt::format(
      "<geom name='{0}_palm' class='{0}_link' type='box' pos='0 0 .035' size='.022 .055 .014' "
      "rgba='.2 .2 .22 1'/>\n",
      side);
  for (int finger = 0; finger < kFingers; ++finger) {
    const int sign = finger == 0 ? 1 : -1;
    text += fmt::format(
        "<body name='{0}_finger{1}' pos='{2} {3} {4}' gravcomp='1'>\n"
        "<joint name='{0}_slide{1}' class='finger' type='slide' axis='0 {5} 0' range='.002 .05'/>\n"
        "<geom name='{0}_finger{1}' class='finger' type='box' pos='0 {6} .035' size='.013 .006 .037' "
        "rgba='.2 .2 .22 1'/>\n"
        "<geom name='{0}_pad{1}' class='finger' type='box' pos='0 0 .055' size='.012 .003 .016' "
        "rgba='.05 .05 .05 1'/>\n</body>\n",
        side, finger, kFingerRoot.x, kFingerRoot.y, kFingerRoot.z, sign, sign * .006);
  }
}

void add_arm(std::string& text, RobotTask task, std::size_t arm) {
  const std::string_view side = kSides[arm];
  const Vec& base = kBases[arm];
  text += fmt::format(
      "<body name='{0}_base' pos='{1} {2} {3}' gravcomp='1'>\n"
      "<geom name='{0}_base' class='{0}_link' type='cylinder' pos='0 0 -.05' size='.06 .15' "
      "rgba='.25 .25 .28 1'/>\n",
      side, base.x, base.y, base.z);
  for (std::size_t i = 0; i < kLinks.size(); ++i) {
    const Link& link = kLinks[i];
    text += fmt::format(
        "<body name='{0}_link{1}' pos='0 0 {2}' gravcomp='1'>\n"
        "<joint name='{0}_joint{1}' class='arm' axis='{3} {4} {5}' range='{6} {7}'/>\n"
        "<geom name='{0}_link{1}' class='{0}_link' type='capsule' fromto='0 0 0 0 0 {8}' size='{9}' "
        "rgba='{10}'/>\n",
        side, i + 1, link.offset, link.axis.x, link.axis.y, link.axis.z, link.low, link.high, link.length,
        link.radius, i % 2 == 0 ? ".82 .83 .85 1" : ".95 .45 .1 1");
  }
  switch (tool_of(task, static_cast<int>(arm))) {
    case Tool::gripper:
      add_gripper(text, side);
      break;
    case Tool::brush:
      text += kBrush;
      break;
    case Tool::pan:
      text += kPan;
  }
  for (int body = 0; body < kArmBodies; ++body) text += "</body>";
  text += "\n";
}

void add_grains(std::string& text) {
  constexpr std::string_view kColours[] = {".55 .33 .13 1", ".30 .21 .14 1", ".80 .62 .28 1",
                                           ".42 .45 .20 1"};
  for (std::size_t i = 0; i < kGrains; ++i) {
    text += fmt::format(
        "<body name='grain{0}' pos='0 0 1'><joint type='free' damping='2e-5'/>"
        "<geom name='grain{0}' class='grain' type='sphere' size='{1}' rgba='{2}'/></body>\n",
        i, kGrainRadius, kColours[i % 4]);
  }
}

void add_objects(std::string& text, const Sizes& sizes) {
  text += fmt::format(
      "<body name='can' pos='0 0 1'><freejoint/>\n"
      "<geom name='can' class='object' type='cylinder' size='{0} {1}' density='500' rgba='.8 .1 .12 1'/>\n"
      "<geom name='can_top' class='object' type='cylinder' pos='0 0 {2}' size='{3} .001' density='1' "
      "contype='0' "
      "conaffinity='0' rgba='.85 .85 .88 1'/>\n</body>\n"
      "<body name='block' pos='0 0 2'><freejoint/>\n"
      "<geom name='block' class='object' type='box' size='{4} {4} {4}' density='400' rgba='.12 .65 .2 "
      "1'/></body>\n"
      "<body name='carton' pos='0 0 3'><freejoint/>\n"
      "<geom name='carton' class='object' type='box' size='.05 .035 .045' density='200' rgba='.75 .65 .5 1'/>"
      "</body>\n",
      sizes.can_radius, sizes.can_half_height, sizes.can_half_height + .001, .92 * sizes.can_radius,
      sizes.block_half);
}

void add_motors(std::string& text, bool grippers) {
  for (const std::string_view side : kSides) {
    for (std::size_t i = 1; i <= kLinks.size(); ++i) {
      const bool strong = i <= 4;
      text += fmt::format(
          "<position name='{0}_motor{1}' joint='{0}_joint{1}' kp='{2}' kv='{3}' forcerange='-{4} {4}'/>\n",
          side, i, strong ? 800 : 300, strong ? 60 : 20, strong ? 150 : 50);
    }
    for (int finger = 0; grippers && finger < kFingers; ++finger) {
      text += fmt::format(
          "<position name='{0}_grip{1}' joint='{0}_slide{1}' kp='1500' kv='20' forcerange='-25 25'/>\n", side,
          finger);
    }
  }
}

}  // namespace

std::string scene_mjcf(RobotTask task, const Sizes& sizes) {
  std::string text =
      fmt::format(fmt::runtime(kHead), kTimeStep, task == RobotTask::sweep ? "" : kRollingFriction);
  for (std::size_t arm = 0; arm < kRobotArms; ++arm) add_arm(text, task, arm);
  if (task == RobotTask::sweep) {
    add_grains(text);
  } else {
    add_objects(text, sizes);
  }
  text += "</worldbody>\n<actuator>\n";
  add_motors(text, task != RobotTask::sweep);
  return text + "</actuator>\n</mujoco>\n";
}

ScenePart part_named(const std::string& shape) {
  constexpr std::pair<std::string_view, ScenePart> kParts[] = {
      {"left_", ScenePart::left_arm}, {"right_", ScenePart::right_arm}, {"brush_", ScenePart::brush},
      {"pan_", ScenePart::pan},       {"can", ScenePart::can},          {"block", ScenePart::block},
      {"carton", ScenePart::carton},  {"grain", ScenePart::grain},
  };
  for (const auto& [prefix, part] : kParts) {
    if (shape.starts_with(prefix)) return part;
  }
  return ScenePart::table;
}

SurfacePattern pattern_named(const std::string& shape) {
  if (shape == "table") return SurfacePattern::squares;
  if (shape == "can") return SurfacePattern::label;
  return shape == "block" || shape == "carton" ? SurfacePattern::edges : SurfacePattern::plain;
}

std::vector<RobotCamera> make_cameras(int count) {
  constexpr Vec kTarget{.34, 0, .13};
  constexpr double kSpread = .5667, kDistance = .7823, kHeight = .62;  // the ends are at (1, +-.42, .62)
  constexpr double kFieldOfView = 46 * M_PI / 180;
  std::vector<RobotCamera> cameras;
  for (int i = 0; i < count; ++i) {
    const double angle = count == 1 ? 0 : kSpread * (1 - 2. * i / (count - 1));
    const Vec eye{kTarget.x + kDistance * std::cos(angle), kDistance * std::sin(angle), kHeight};
    const Vec forward = unit(kTarget - eye), right = unit(cross(forward, {0, 0, 1})),
              down = cross(forward, right);
    RobotCamera camera;
    const auto f = [](double x) { return static_cast<float>(x); };
    camera.position = {f(eye.x), f(eye.y), f(eye.z)};
    camera.rotation = {f(right.x),   f(down.x),  f(forward.x), f(right.y),  f(down.y),
                       f(forward.y), f(right.z), f(down.z),    f(forward.z)};
    camera.field_of_view = f(kFieldOfView);
    cameras.push_back(camera);
  }
  return cameras;
}

}  // namespace topomask::robot
