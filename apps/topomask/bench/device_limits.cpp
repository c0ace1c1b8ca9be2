#include "bench/device_limits.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "bench/timing.h"

namespace topomask::cli {
namespace {

// The best of a few runs: what the machine can do, whatever else was running.
double best_seconds(c10::Device device, const std::function<void()>& call) {
  const int calls = device.is_cuda() ? 10 : 1;
  call();
  double best = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < 5; ++repeat) best = std::min(best, seconds_per_call(device, calls, call));
  return best;
}

double share(double amount, double seconds, double limit) {
  return amount / seconds / limit;
}

std::string format_share(double share) {
  return std::isfinite(share) ? fmt::format("{:.1f} %", 100 * share) : "";
}

}  // namespace

double bytes_of(std::initializer_list<at::Tensor> tensors) {
  double bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<double>(tensor.nbytes());
  return bytes;
}

double bytes_of(const WalkFeatures& features) {
  return bytes_of({features.row_ptr, features.col, features.deposit_ptr, features.hop, features.load});
}

nlohmann::ordered_json DeviceLimits::to_json() const {
  return {{"bytes_per_second", bytes_per_second}, {"flops_per_second", flops_per_second}};
}

std::string DeviceLimits::to_string(const std::string& dtype) const {
  return fmt::format("a copy moves {:.3g} GB/s here, a product of matrices in {} does {:.4g} GFLOP/s",
                     bytes_per_second / 1e9, dtype, flops_per_second / 1e9);
}

void DeviceLimits::add_to(nlohmann::ordered_json& result, const Work& work, double seconds) const {
  if (std::isfinite(work.bytes)) {
    result["bytes"] = work.bytes;
    result["of_bytes_per_second"] = share(work.bytes, seconds, bytes_per_second);
  }
  if (std::isfinite(work.flops)) {
    result["flops"] = work.flops;
    result["of_flops_per_second"] = share(work.flops, seconds, flops_per_second);
  }
}

std::string DeviceLimits::bytes_share(const Work& work, double seconds) const {
  return format_share(share(work.bytes, seconds, bytes_per_second));
}

std::string DeviceLimits::flops_share(const Work& work, double seconds) const {
  return format_share(share(work.flops, seconds, flops_per_second));
}

DeviceLimits measure_limits(c10::Device device, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  DeviceLimits limits;
  {
    const std::int64_t elements = std::int64_t{1} << (device.is_cuda() ? 28 : 24);  // 1 GB, 64 MB
    const at::Tensor from = at::zeros({elements}, at::TensorOptions(device).dtype(at::kFloat));
    at::Tensor to = at::empty_like(from);
    const double seconds = best_seconds(device, [&] { to.copy_(from); });
    limits.bytes_per_second = 2 * static_cast<double>(from.nbytes()) / seconds;
  }
  const std::int64_t size = device.is_cuda() ? 8192 : 1024;
  const at::Tensor matrix = at::ones({size, size}, at::TensorOptions(device).dtype(dtype));
  at::Tensor product = at::empty_like(matrix);
  const double seconds = best_seconds(device, [&] { at::mm_out(product, matrix, matrix); });
  limits.flops_per_second = 2 * std::pow(static_cast<double>(size), 3) / seconds;
  return limits;
}

}  // namespace topomask::cli
