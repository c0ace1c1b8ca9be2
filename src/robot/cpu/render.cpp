// Frames by casting rays. Each shape meets the rays in a rectangle of pixels around its bounding sphere;
// shadows are rays to a lamp, which meet the shapes in their tile of a grid around it. No libraries and no
// GPU. A frame has the same bytes on any thread; another processor or C library may round tan, pow and atan2
// differently.
#include <algorithm>
#include <limits>

#include "core/check.h"
#include "robot/cpu/checks.h"
#include "robot/cpu/vectors.h"
#include "topomask/robot.h"

namespace topomask {
namespace {

using namespace robot;
using V = Vector<float>;

constexpr float kNothing = std::numeric_limits<float>::infinity();
constexpr float kNearest = 1e-4f;  // hits nearer than this are the surface that the ray starts on
constexpr V kLamp{.75f, .35f, 1.7f};

struct Solid {
  ShapeKind kind;
  SurfacePattern pattern;
  V centre;
  Rotation<float> axes;
  V size, colour;
  float bound;  // radius of a sphere around it
};

float bound_of(const RobotShape& shape) {
  const auto& s = shape.size;
  switch (shape.kind) {
    case ShapeKind::sphere:
      return s[0];
    case ShapeKind::capsule:
      return s[0] + s[1];
    case ShapeKind::cylinder:
      return std::hypot(s[0], s[1]);
    default:
      return std::sqrt(s[0] * s[0] + s[1] * s[1] + s[2] * s[2]);
  }
}

std::vector<Solid> solids_at(const RobotEpisode& episode, int frame) {
  std::vector<Solid> solids;
  const std::size_t row = static_cast<std::size_t>(frame) * static_cast<std::size_t>(episode.bodies);
  for (const RobotShape& shape : episode.shapes) {
    const std::size_t body = row + static_cast<std::size_t>(shape.body);
    const float* p = &episode.body_position[3 * body];
    const Pose<float> pose = Pose<float>{{p[0], p[1], p[2]}, rotation_of(&episode.body_rotation[4 * body])} *
                             Pose<float>{{shape.position[0], shape.position[1], shape.position[2]},
                                         rotation_of(shape.rotation.data())};
    solids.push_back({shape.kind, shape.pattern, pose.position, pose.rotation,
                      V{shape.size[0], shape.size[1], shape.size[2]},
                      V{shape.colour[0], shape.colour[1], shape.colour[2]}, 1.0001f * bound_of(shape)});
  }
  return solids;
}

// --- Where rays meet solids --------------------------------------------------------------------------------
// Origin and direction in the solid's frame; the result counts in lengths of the direction, which is not of
// unit length.

float meet_sphere(V o, V d, float radius) {
  const float a = dot(d, d), b = dot(o, d), c = dot(o, o) - radius * radius, q = b * b - a * c;
  if (q < 0) return kNothing;
  const float root = std::sqrt(q), first = (-b - root) / a, second = (-b + root) / a;
  return first > kNearest ? first : second > kNearest ? second : kNothing;
}

float meet_box(V o, V d, V half) {
  float enter = -kNothing, leave = kNothing;
  const auto slab = [&](float from, float along, float size) {
    if (along == 0) {
      if (std::abs(from) > size) leave = -kNothing;
      return;
    }
    const float inverse = 1 / along, near = (-std::copysign(size, along) - from) * inverse,
                far = (std::copysign(size, along) - from) * inverse;
    enter = std::max(enter, near);
    leave = std::min(leave, far);
  };
  slab(o.x, d.x, half.x);
  slab(o.y, d.y, half.y);
  slab(o.z, d.z, half.z);
  if (enter > leave || leave <= kNearest) return kNothing;
  return enter > kNearest ? enter : leave;
}

// A cylinder around z, with flat ends or round caps beyond them.
float meet_tube(V o, V d, float radius, float half, bool round) {
  float best = kNothing;
  const float a = d.x * d.x + d.y * d.y, b = o.x * d.x + o.y * d.y,
              c = o.x * o.x + o.y * o.y - radius * radius;
  const float q = b * b - a * c;
  if (q < 0) return kNothing;  // the caps are no wider
  if (a > 0) {
    const float root = std::sqrt(q);
    for (const float t : {(-b - root) / a, (-b + root) / a}) {
      if (t > kNearest && std::abs(o.z + t * d.z) <= half) {
        best = t;
        break;
      }
    }
  }
  for (const float end : {half, -half}) {
    if (round) {
      const float t = meet_sphere({o.x, o.y, o.z - end}, d, radius);
      if (t < best && (o.z + t * d.z - end) * end >= 0) best = t;
    } else if (d.z != 0) {
      const float t = (end - o.z) / d.z, x = o.x + t * d.x, y = o.y + t * d.y;
      if (t > kNearest && t < best && x * x + y * y <= radius * radius) best = t;
    }
  }
  return best;
}

float meet(const Solid& solid, V o, V d) {
  switch (solid.kind) {
    case ShapeKind::sphere:
      return meet_sphere(o, d, solid.size.x);
    case ShapeKind::capsule:
      return meet_tube(o, d, solid.size.x, solid.size.y, true);
    case ShapeKind::cylinder:
      return meet_tube(o, d, solid.size.x, solid.size.y, false);
    default:
      return meet_box(o, d, solid.size);
  }
}

// The direction outwards at a point of the surface, both in the solid's frame.
V outwards(const Solid& solid, V p) {
  switch (solid.kind) {
    case ShapeKind::sphere:
      return unit(p);
    case ShapeKind::capsule:
      return unit(V{p.x, p.y, p.z - std::clamp(p.z, -solid.size.y, solid.size.y)});
    case ShapeKind::cylinder: {
      const float over = std::abs(p.z) - solid.size.y, beyond = std::hypot(p.x, p.y) - solid.size.x;
      if (over > beyond) return {0, 0, std::copysign(1.f, p.z)};
      return unit(V{p.x, p.y, 0});
    }
    default: {
      const float x = std::abs(p.x) - solid.size.x, y = std::abs(p.y) - solid.size.y,
                  z = std::abs(p.z) - solid.size.z;
      if (x > y && x > z) return {std::copysign(1.f, p.x), 0, 0};
      return y > z ? V{0, std::copysign(1.f, p.y), 0} : V{0, 0, std::copysign(1.f, p.z)};
    }
  }
}

// Patterns let one see how things turn and move; the table's is faint, since it is the largest part of a
// frame and never moves.
V paint(const Solid& solid, V p) {
  switch (solid.pattern) {
    case SurfacePattern::squares: {
      constexpr float kSquare = .12f;
      const bool odd =
          ((static_cast<int>(std::floor(p.x / kSquare)) + static_cast<int>(std::floor(p.y / kSquare))) & 1) !=
          0;
      return (odd ? .93f : 1.05f) * solid.colour;
    }
    case SurfacePattern::label: {  // a white band with a blue field
      const float height = std::abs(p.z) / solid.size.y;
      if (height < .22f && std::abs(std::atan2(p.y, p.x)) < .9f) return {.1f, .15f, .5f};
      return height < .38f ? V{.92f, .9f, .86f} : solid.colour;
    }
    case SurfacePattern::edges: {
      const float x = std::abs(p.x) / solid.size.x, y = std::abs(p.y) / solid.size.y,
                  z = std::abs(p.z) / solid.size.z;
      const float edge = std::max({std::min(x, y), std::min(y, z), std::min(x, z)});
      return edge > .86f ? .55f * solid.colour : solid.colour;
    }
    default:
      return solid.colour;
  }
}

// --- What can be seen --------------------------------------------------------------------------------------

// The slopes u / z of the rays that meet a sphere at (u, z) in the plane: low to high.
struct Slopes {
  float low, high;
};
Slopes slopes_of(float u, float z, float radius) {
  const float square = u * u + z * z - radius * radius;
  if (square <= 0) return {-kNothing, kNothing};
  const float root = std::sqrt(square);
  // tan(angle -+ aperture); where a tangent points backwards there is no bound.
  const float low = z * root + u * radius, high = z * root - u * radius;
  return {low > 0 ? (u * root - z * radius) / low : -kNothing,
          high > 0 ? (u * root + z * radius) / high : kNothing};
}

struct Range {
  int first, last;
};
// Cells from `origin` on, `scale` to the unit of slope, that slopes fall into; cut to 0..count-1.
Range cells(Slopes slopes, float origin, float scale, int count) {
  const auto cell = [&](float slope) {
    return static_cast<int>(std::clamp(std::floor(origin + scale * slope), -1.f, static_cast<float>(count)));
  };
  return {std::max(cell(slopes.low), 0), std::min(cell(slopes.high), count - 1)};
}

// A pinhole camera with samples x samples rays in each pixel.
struct Rays {
  int width, height, samples;
  float focal, centre_x, centre_y;
  V eye;
  Rotation<float> axes;

  float slope_x(int column) const { return (pixel(column) - centre_x) / focal; }
  float slope_y(int row) const { return (pixel(row) - centre_y) / focal; }
  // Whole numbers are the middles of pixels.
  float pixel(int sample) const {
    return (static_cast<float>(sample) + .5f) / static_cast<float>(samples) - .5f;
  }
  int columns() const { return width * samples; }
  int rows() const { return height * samples; }
  // Depth along the optical axis is the length of a ray in units of this.
  V direction(int row, int column) const { return axes.turn({slope_x(column), slope_y(row), 1}); }
};

struct Hits {
  std::vector<float> depth;         // [rows, columns]
  std::vector<std::int16_t> solid;  // [rows, columns], -1: none
};

Hits cast(const std::vector<Solid>& solids, const Rays& rays, float farthest) {
  const std::size_t count = static_cast<std::size_t>(rays.columns()) * static_cast<std::size_t>(rays.rows());
  Hits hits{std::vector<float>(count, farthest), std::vector<std::int16_t>(count, -1)};
  for (std::size_t s = 0; s < solids.size(); ++s) {
    const Solid& solid = solids[s];
    const V seen = rays.axes.turn_back(solid.centre - rays.eye);
    if (seen.z + solid.bound <= 0) continue;
    const float scale = rays.focal * static_cast<float>(rays.samples);
    const auto origin = [&](float centre) { return (centre + .5f) * static_cast<float>(rays.samples); };
    const Range x =
        cells(slopes_of(seen.x, seen.z, solid.bound), origin(rays.centre_x), scale, rays.columns());
    const Range y = cells(slopes_of(seen.y, seen.z, solid.bound), origin(rays.centre_y), scale, rays.rows());
    // In the solid's frame a ray is linear in its slopes.
    const V from = solid.axes.turn_back(rays.eye - solid.centre);
    const V right = solid.axes.turn_back(rays.axes.x), down = solid.axes.turn_back(rays.axes.y),
            forward = solid.axes.turn_back(rays.axes.z);
    for (int row = y.first; row <= y.last; ++row) {
      const V start = forward + rays.slope_y(row) * down;
      const std::size_t begin = static_cast<std::size_t>(row) * static_cast<std::size_t>(rays.columns());
      for (int column = x.first; column <= x.last; ++column) {
        const float depth = meet(solid, from, start + rays.slope_x(column) * right);
        const std::size_t i = begin + static_cast<std::size_t>(column);
        if (depth < hits.depth[i]) {
          hits.depth[i] = depth;
          hits.solid[i] = static_cast<std::int16_t>(s);
        }
      }
    }
  }
  return hits;
}

// Which solids can stand between the lamp and a point: a grid over the slopes of rays downwards from the
// lamp.
class Shadows {
 public:
  explicit Shadows(const std::vector<Solid>& solids) : solids_(solids), tiles_(kTiles * kTiles) {
    for (std::size_t s = 0; s < solids.size(); ++s) {
      const Solid& solid = solids[s];
      if (solid.pattern == SurfacePattern::squares) continue;  // the table lies below everything
      const V seen = solid.centre - kLamp;
      if (seen.z >= solid.bound) continue;  // above the lamp
      const Range x = cells(slopes_of(seen.x, -seen.z, solid.bound), kOrigin, kScale, kTiles),
                  y = cells(slopes_of(seen.y, -seen.z, solid.bound), kOrigin, kScale, kTiles);
      for (int row = y.first; row <= y.last; ++row) {
        for (int column = x.first; column <= x.last; ++column) tile(row, column).push_back(s);
      }
    }
  }

  // Whether something other than `self`, which is convex and faces the lamp, is between them.
  bool covers(V point, std::size_t self) const {
    const V down = point - kLamp, way = kLamp - point;
    if (down.z >= 0) return false;
    const auto index = [](float slope) {
      return static_cast<int>(std::clamp(std::floor(kOrigin + kScale * slope), 0.f, kTiles - 1.f));
    };
    for (const std::size_t s : tiles_[tile_index(index(down.y / -down.z), index(down.x / -down.z))]) {
      if (s == self) continue;
      const Solid& solid = solids_[s];
      const V from = point - solid.centre;
      const float b = dot(from, way), c = dot(from, from) - solid.bound * solid.bound;
      if (c > 0 && (b > 0 || b * b < c * dot(way, way))) continue;
      if (meet(solid, solid.axes.turn_back(from), solid.axes.turn_back(way)) < 1) return true;
    }
    return false;
  }

 private:
  static constexpr int kTiles = 64;
  static constexpr float kScale = kTiles / 3.f,
                         kOrigin = kTiles / 2.f;  // slopes from -1.5 to 1.5, the rest at the rim

  static std::size_t tile_index(int row, int column) {
    return static_cast<std::size_t>(row * kTiles + column);
  }
  std::vector<std::size_t>& tile(int row, int column) { return tiles_[tile_index(row, column)]; }

  const std::vector<Solid>& solids_;
  std::vector<std::vector<std::size_t>> tiles_;
};

V shade(const Solid& solid, std::size_t self, V point, V view, const Shadows* shadows) {
  const V local = solid.axes.turn_back(point - solid.centre),
          normal = solid.axes.turn(outwards(solid, local));
  const V to_lamp = unit(kLamp - point);
  float direct = std::max(0.f, dot(normal, to_lamp));
  if (shadows != nullptr && direct > 0 && shadows->covers(point, self)) direct *= .25f;
  const float sky = .5f + .5f * normal.z, head = std::max(0.f, -dot(normal, view));
  const float gloss =
      direct > .3f ? .12f * std::pow(std::max(0.f, dot(normal, unit(to_lamp - view))), 24.f) : 0;
  return (.22f + .12f * sky + .16f * head + .58f * direct) * paint(solid, local) + V{gloss, gloss, gloss};
}

Rays rays_of(const RobotCamera& camera, const RenderOptions& options, int samples) {
  const auto& r = camera.rotation;
  const auto width = static_cast<float>(options.width), height = static_cast<float>(options.height);
  return {options.width,
          options.height,
          samples,
          .5f * height / std::tan(.5f * camera.field_of_view),
          .5f * (width - 1),
          .5f * (height - 1),
          V{camera.position[0], camera.position[1], camera.position[2]},
          {V{r[0], r[3], r[6]}, V{r[1], r[4], r[7]}, V{r[2], r[5], r[8]}}};
}

}  // namespace

RgbdImage render_robot(const RobotEpisode& episode, int frame, int camera, const RenderOptions& options) {
  check(frame >= 0 && frame < episode.frames, "render_robot: frame must be 0 to {}, got {}",
        episode.frames - 1, frame);
  check(camera >= 0 && camera < static_cast<int>(episode.cameras.size()),
        "render_robot: camera must be 0 to {}, got {}", static_cast<int>(episode.cameras.size()) - 1, camera);
  for (const int size : {options.width, options.height})
    check(size >= kLeastPixels && size <= kMostPixels,
          "render_robot: width and height must be {} to {}, got {}", kLeastPixels, kMostPixels, size);
  check(options.samples >= 1 && options.samples <= 8, "render_robot: samples must be 1 to 8, got {}",
        options.samples);
  check(options.farthest > 0, "render_robot: farthest must be above 0, got {}", options.farthest);

  const RobotCamera& from = episode.cameras[static_cast<std::size_t>(camera)];
  const std::vector<Solid> solids = solids_at(episode, frame);
  const Rays rays = rays_of(from, options, 1);
  const auto farthest = static_cast<float>(options.farthest);

  RgbdImage image;
  image.width = options.width;
  image.height = options.height;
  image.intrinsics = {rays.focal, rays.focal, rays.centre_x, rays.centre_y};
  const std::array<float, 9>& r = from.rotation;
  const std::array<float, 3>& p = from.position;
  image.pose = {r[0], r[1], r[2], p[0], r[3], r[4], r[5], p[1], r[6], r[7], r[8], p[2], 0, 0, 0, 1};

  // Depth is that of the pixel's middle; colour is the mean over its samples.
  Hits middle = cast(solids, rays, farthest);
  const bool one = options.samples == 1;
  const Rays fine = rays_of(from, options, options.samples);
  const Hits samples = one ? Hits{} : cast(solids, fine, farthest);
  const Hits& hits = one ? middle : samples;
  const Shadows shadows(solids);
  const auto n = static_cast<std::size_t>(options.samples), width = static_cast<std::size_t>(options.width);
  image.colour.resize(middle.depth.size() * 3);
  std::vector<V> sums(width);
  for (int row = 0; row < options.height; ++row) {
    std::fill(sums.begin(), sums.end(), V{});
    for (int sub = row * options.samples; sub < (row + 1) * options.samples; ++sub) {
      for (int column = 0; column < fine.columns(); ++column) {
        const std::size_t i = static_cast<std::size_t>(sub) * n * width + static_cast<std::size_t>(column);
        V colour{1, 1, 1};
        if (hits.solid[i] >= 0) {
          const auto s = static_cast<std::size_t>(hits.solid[i]);
          const V direction = fine.direction(sub, column), point = fine.eye + hits.depth[i] * direction;
          colour = shade(solids[s], s, point, unit(direction), options.shadows ? &shadows : nullptr);
        }
        V& sum = sums[static_cast<std::size_t>(column) / n];
        sum = sum + colour;
      }
    }
    const float scale = 255.f / static_cast<float>(n * n);
    std::uint8_t* out = &image.colour[static_cast<std::size_t>(row) * width * 3];
    for (const V& sum : sums) {
      for (const float value : {sum.x, sum.y, sum.z})
        *out++ = value > 0 ? static_cast<std::uint8_t>(std::min(value * scale + .5f, 255.f)) : 0;
    }
  }
  for (std::size_t i = 0; i < middle.depth.size(); ++i) {
    if (middle.solid[i] < 0) middle.depth[i] = 0;
  }
  image.depth = std::move(middle.depth);
  image.segment = std::move(middle.solid);
  return image;
}

}  // namespace topomask
