#include "topomask/cost_model.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/gpu.h"
#include "io/files.h"
#include "topomask/device.h"

namespace topomask {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;  // of the file

// One core of the CPU and the GPU of docs/performance.md.
constexpr DeviceRates kOneCore = {.dense = 50e9,
                                  .dense_half = 50e9,
                                  .mask = 30e9,
                                  .feature = 12e9,
                                  .feature_by_column = 26e9,
                                  .feature_by_column_half = 26e9,
                                  .factors = 35e9,
                                  .values = 2.6e9,
                                  .bandwidth = 17e9,
                                  .far_bandwidth = 40e9,
                                  .cache = 2e6,
                                  .launch = 0,
                                  .column_start = 1.0e-6,
                                  .call = 15e-6};
// Bytes decide for the feature engine on a GPU; its rate is only for masks that are dense.
constexpr DeviceRates kGpu = {.dense = 15e12,
                              .dense_half = 100e12,
                              .mask = 5e12,
                              .feature = 10e12,
                              .feature_by_column = 5e12,
                              .feature_by_column_half = 60e12,
                              .factors = 10e12,
                              .values = 1e12,
                              .bandwidth = 2.5e12,
                              .far_bandwidth = 1.3e12,
                              .cache = 50e6,
                              .launch = 4e-6,
                              .column_start = 0,
                              .call = 48e-6};

constexpr RateField kFields[] = {{"dense", &DeviceRates::dense},
                                 {"dense_half", &DeviceRates::dense_half},
                                 {"mask", &DeviceRates::mask},
                                 {"feature", &DeviceRates::feature},
                                 {"feature_by_column", &DeviceRates::feature_by_column},
                                 {"feature_by_column_half", &DeviceRates::feature_by_column_half},
                                 {"factors", &DeviceRates::factors},
                                 {"values", &DeviceRates::values},
                                 {"bandwidth", &DeviceRates::bandwidth},
                                 {"far_bandwidth", &DeviceRates::far_bandwidth},
                                 {"cache", &DeviceRates::cache},
                                 {"launch", &DeviceRates::launch},
                                 {"column_start", &DeviceRates::column_start},
                                 {"call", &DeviceRates::call}};

bool is_seconds(const RateField& field) {
  return field.member == &DeviceRates::launch || field.member == &DeviceRates::column_start ||
         field.member == &DeviceRates::call;
}

DeviceRates rates_from(const Json& json) {
  DeviceRates rates;
  for (const RateField& field : kFields) {
    const double number = json.at(field.name).get<double>();
    check(std::isfinite(number) && (is_seconds(field) ? number >= 0 : number > 0), "'{}' is {}", field.name,
          number);
    rates.*field.member = number;
  }
  return rates;
}

Json to_json(const DeviceRates& rates) {
  Json json;
  for (const RateField& field : kFields) json[field.name] = rates.*field.member;
  return json;
}

// Of the file that plans read.
const Calibration& calibration_in_use() {
  static const Calibration calibration = [] {
    Calibration found = read_calibration(calibration_path());
    if (!found.problem.empty()) TORCH_WARN(found.problem);
    return found;
  }();
  return calibration;
}

DeviceRates measured_or_built_in(c10::Device device) {
  const Calibration& known = calibration_in_use();
  if (!known.devices.empty()) {
    const auto own = known.devices.find(calibration_key(device));
    if (own != known.devices.end()) return own->second;
  }
  return DeviceRates::built_in(device.type());
}

}  // namespace

const DeviceRates& DeviceRates::built_in(c10::DeviceType type) {
  return type == c10::DeviceType::CPU ? kOneCore : kGpu;
}

std::span<const RateField> rate_fields() {
  return kFields;
}

const DeviceRates& rates_of(c10::Device device) {
  // Looking up the name of a GPU takes longer than a small attention, so it is done once per GPU.
  if (device.is_cpu()) {
    static const DeviceRates cpu = measured_or_built_in(c10::kCPU);
    return cpu;
  }
  constexpr int kMostGpus = 64;
  static std::array<std::once_flag, kMostGpus> asked;
  static std::array<DeviceRates, kMostGpus> gpus;
  const int index = device.has_index() ? device.index() : 0;
  if (index >= num_gpus() || index >= kMostGpus) return DeviceRates::built_in(device.type());
  std::call_once(asked[index], [&] {
    gpus[index] = measured_or_built_in(c10::Device(device.type(), static_cast<c10::DeviceIndex>(index)));
  });
  return gpus[index];
}

std::string calibration_path() {
  const auto variable = [](const char* name) -> std::string {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  const std::string own = variable("TOPOMASK_CALIBRATION");
  if (own == "off") return "";
  if (!own.empty()) return own;
  std::filesystem::path cache = variable("XDG_CACHE_HOME");
  if (!cache.is_absolute()) {  // as the XDG specification has it
    const std::string home = variable("HOME");
    if (home.empty()) return "";
    cache = std::filesystem::path(home) / ".cache";
  }
  return (cache / "topomask" / "calibration.json").string();
}

Calibration read_calibration(const std::string& path) {
  Calibration calibration;
  std::error_code status;
  if (path.empty() || !std::filesystem::exists(path, status)) return calibration;
  const auto unusable = [&](std::string_view why) {
    calibration.devices.clear();
    calibration.problem = fmt::format(
        "{} is not used, {}: the planner's built-in rates serve until 'topomask calibrate' has run", path,
        why);
    return calibration;
  };
  try {
    const Json file = Json::parse(read_file(path));
    if (file.at("format") != kFormat) return unusable("its format is another");
    const std::string version = file.at("version");
    if (version != TOPOMASK_VERSION)
      return unusable(fmt::format("it is of topomask {} and this is {}", version, TOPOMASK_VERSION));
    for (const auto& [key, rates] : file.at("devices").items()) calibration.devices[key] = rates_from(rates);
  } catch (const nlohmann::json::exception&) {
    return unusable("it is damaged");
  } catch (const std::exception& error) {
    return unusable(error.what());
  }
  return calibration;
}

void store_calibration(const std::string& path, const std::string& key, const DeviceRates& rates) {
  check(!path.empty(), "calibrate: there is no file to write; TOPOMASK_CALIBRATION names one");
  Json file = {{"format", kFormat}, {"version", TOPOMASK_VERSION}, {"devices", Json::object()}};
  for (const auto& [other, known] : read_calibration(path).devices) file["devices"][other] = to_json(known);
  file["devices"][key] = to_json(rates);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code status;
  if (!folder.empty()) std::filesystem::create_directories(folder, status);
  write_file(path, file.dump(1) + "\n");  // throws if it cannot
}

std::string calibration_key(c10::Device device) {
  const std::string name = device.is_cpu() ? cpu_model() : device_name(device);
  return name.empty() ? device.str() : name;
}

}  // namespace topomask
