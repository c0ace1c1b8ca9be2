// Vectors, rotations and rigid poses of three dimensions, for planning (double) and for casting rays (float).
#pragma once

#include <array>
#include <cmath>

namespace topomask::robot {

template <class Real>
struct Vector {
  Real x = 0, y = 0, z = 0;

  friend Vector operator+(Vector a, Vector b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
  friend Vector operator-(Vector a, Vector b) { return {a.x - b.x, a.y - b.y, a.z - b.z}; }
  friend Vector operator-(Vector a) { return {-a.x, -a.y, -a.z}; }
  friend Vector operator*(Real s, Vector a) { return {s * a.x, s * a.y, s * a.z}; }
  friend Real dot(Vector a, Vector b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
  friend Vector cross(Vector a, Vector b) {
    return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
  }
  friend Real length(Vector a) { return std::sqrt(dot(a, a)); }
  friend Vector unit(Vector a) { return (1 / length(a)) * a; }
};

// A rotation by its columns: the axes of the rotated frame.
template <class Real>
struct Rotation {
  Vector<Real> x{1, 0, 0}, y{0, 1, 0}, z{0, 0, 1};

  Vector<Real> turn(Vector<Real> v) const { return v.x * x + v.y * y + v.z * z; }
  Vector<Real> turn_back(Vector<Real> v) const { return {dot(x, v), dot(y, v), dot(z, v)}; }
  friend Rotation operator*(const Rotation& a, const Rotation& b) {
    return {a.turn(b.x), a.turn(b.y), a.turn(b.z)};
  }
};

template <class Real>
struct Pose {
  Vector<Real> position;
  Rotation<Real> rotation;

  Vector<Real> place(Vector<Real> v) const { return position + rotation.turn(v); }
  friend Pose operator*(const Pose& a, const Pose& b) {
    return {a.place(b.position), a.rotation * b.rotation};
  }
};

using Vec = Vector<double>;
using Rot = Rotation<double>;

inline Rot about_x(double angle) {
  const double c = std::cos(angle), s = std::sin(angle);
  return {{1, 0, 0}, {0, c, s}, {0, -s, c}};
}
inline Rot about_y(double angle) {
  const double c = std::cos(angle), s = std::sin(angle);
  return {{c, 0, -s}, {0, 1, 0}, {s, 0, c}};
}
inline Rot about_z(double angle) {
  const double c = std::cos(angle), s = std::sin(angle);
  return {{c, s, 0}, {-s, c, 0}, {0, 0, 1}};
}

// Quaternions are w x y z; they need not be of unit length.
template <class Real>
Rotation<Real> rotation_of(const Real* q) {
  const Real n = 2 / (q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
  const Real w = q[0], x = q[1], y = q[2], z = q[3];
  return {{1 - n * (y * y + z * z), n * (x * y + w * z), n * (x * z - w * y)},
          {n * (x * y - w * z), 1 - n * (x * x + z * z), n * (y * z + w * x)},
          {n * (x * z + w * y), n * (y * z - w * x), 1 - n * (x * x + y * y)}};
}

// With w >= 0.
inline std::array<double, 4> quaternion_of(const Rot& r) {
  // The largest of the four components is found first, so that nothing small is divided by.
  const double xx = r.x.x, yy = r.y.y, zz = r.z.z;
  const double squares[4] = {1 + xx + yy + zz, 1 + xx - yy - zz, 1 - xx + yy - zz, 1 - xx - yy + zz};
  int largest = 0;
  for (int i = 1; i < 4; ++i) {
    if (squares[i] > squares[largest]) largest = i;
  }
  const double root = std::sqrt(squares[largest]), half = root / 2, part = 0.5 / root;
  std::array<double, 4> q{};
  switch (largest) {
    case 0:
      q = {half, part * (r.y.z - r.z.y), part * (r.z.x - r.x.z), part * (r.x.y - r.y.x)};
      break;
    case 1:
      q = {part * (r.y.z - r.z.y), half, part * (r.x.y + r.y.x), part * (r.z.x + r.x.z)};
      break;
    case 2:
      q = {part * (r.z.x - r.x.z), part * (r.x.y + r.y.x), half, part * (r.y.z + r.z.y)};
      break;
    default:
      q = {part * (r.x.y - r.y.x), part * (r.z.x + r.x.z), part * (r.y.z + r.z.y), half};
  }
  if (q[0] < 0) {
    for (double& component : q) component = -component;
  }
  return q;
}

}  // namespace topomask::robot
