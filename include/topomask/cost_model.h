// The rates of a device, with which plan_attention turns counts into seconds.
//
// There are built-in rates for a CPU and for a GPU. `topomask calibrate` measures those of a machine and
// stores them in a file in the user's cache folder, which every later plan reads, from C++, Python and the
// shell.
#pragma once

#include <c10/core/Device.h>

#include <map>
#include <span>
#include <string>

namespace topomask {

struct DeviceRates {
  // Multiply-adds per second; on a CPU those of one thread.
  double dense = 0;              // the dense engine: products of matrices
  double dense_half = 0;         // the same for 16-bit numbers, where a GPU keeps scores on chip
  double mask = 0;               // the mask engine: rows of k and v fetched for every nonzero of M
  double feature = 0;            // the feature engine: the mask applied to columns
  double feature_by_column = 0;  // the same for sparse factors: products of gathered rows, column by column
  double feature_by_column_half = 0;  // the same for bfloat16, on a GPU's tensor cores
  double factors = 0;                 // the feature engine with factors of low rank
  double values = 0;                  // new values of M = Phi Psi^T
  // Bytes per second; on a CPU those of one thread.
  double bandwidth = 0;      // read or written in order
  double far_bandwidth = 0;  // fetched in rows that lie anywhere
  double cache = 0;          // bytes, on a CPU those near one thread: what fits costs neither of the two
  // Seconds.
  double launch = 0;        // to hand one kernel to the device
  double column_start = 0;  // to begin a column of Phi
  double call = 0;          // of a whole call of the mask engine, however small

  static const DeviceRates& built_in(c10::DeviceType type);
};

// The numbers by name, as they stand in the file.
struct RateField {
  const char* name;
  double DeviceRates::*member;
};
std::span<const RateField> rate_fields();

// Those that plans are made with: measured on this device, or built in. Found at the first use, then kept. A
// file that cannot be used is told of once, as a warning of torch, and the built-in numbers serve.
const DeviceRates& rates_of(c10::Device device);

// A file of measured rates.
struct Calibration {
  std::map<std::string, DeviceRates> devices;  // by calibration_key
  std::string problem;  // one sentence where there is a file that cannot be used; `devices` is empty then
};
// Where it is: $TOPOMASK_CALIBRATION, else topomask/calibration.json in $XDG_CACHE_HOME or ~/.cache. "": no
// file is to be used, because the variable says "off" or there is no home.
std::string calibration_path();
// Never throws. A missing file is not a problem; a file of another version of the library is.
Calibration read_calibration(const std::string& path);
// Adds a device to the file, or replaces it; what cannot be used is dropped. Readers never see half a file.
void store_calibration(const std::string& path, const std::string& key, const DeviceRates& rates);
// "NVIDIA H200"; for a CPU its model.
std::string calibration_key(c10::Device device);

}  // namespace topomask
