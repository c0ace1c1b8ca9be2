#include "report/pictures.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/arange.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <vector>

#include "core/check.h"
#include "draw/picture.h"
#include "report/encoding.h"
#include "topomask/runs.h"
#include "topomask/safetensors.h"

namespace topomask::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kLikeliest = 3;
// Of one example in a page. A run keeps 24: these are at most 18 MB of RGB before compression.
constexpr std::int64_t kExampleFrames = 16, kExamplePixels = std::int64_t{1} << 18;

struct RunFile {
  std::string path;
  SafetensorsFile content;

  // `sizes` are those of the tensor, -1 where any will do; `dtype` is Undefined for any kind of number.
  const at::Tensor& tensor(const std::string& name, const std::vector<std::int64_t>& sizes,
                           at::ScalarType dtype = at::ScalarType::Undefined) const {
    const auto found = content.tensors.find(name);
    check(found != content.tensors.end(), "{}: has no tensor '{}'", path, name);
    const at::Tensor& tensor = found->second;
    const bool same = std::equal(sizes.begin(), sizes.end(), tensor.sizes().begin(), tensor.sizes().end(),
                                 [](std::int64_t want, std::int64_t got) { return want < 0 || want == got; });
    check(same, "{}: '{}' has shape [{}]; expected [{}]", path, name, fmt::join(tensor.sizes(), ", "),
          fmt::join(sizes, ", "));
    check(dtype == at::ScalarType::Undefined || tensor.scalar_type() == dtype, "{}: '{}' is {}; expected {}",
          path, name, c10::toString(tensor.scalar_type()), c10::toString(dtype));
    return tensor;
  }

  // [K, C, H, W] or [K, T, C, H, W] bytes.
  const at::Tensor& images() const {
    const auto found = content.tensors.find("images");
    const bool clips = found != content.tensors.end() && found->second.dim() == 5;
    return tensor("images", std::vector<std::int64_t>(clips ? 5 : 4, -1), at::kByte);
  }
};

std::optional<RunFile> read_if_there(const std::string& folder, const char* name) {
  const std::string path = (fs::path(folder) / name).string();
  if (!fs::exists(path)) return std::nullopt;
  return RunFile{path, read_safetensors(path)};
}

// A byte for the square root of each magnitude: entries far from the diagonal are small and still tell
// something. Where some entries are negative, byte 128 is 0.
Json encode_mask(const float* values, std::size_t count) {
  const auto [low, high] = std::minmax_element(values, values + count);
  const bool is_signed = *low < 0;
  const float largest = std::max({*high, -*low, 1e-30f});
  std::string bytes(count, '\0');
  for (std::size_t i = 0; i < count; ++i) {
    const float root = std::copysign(std::sqrt(std::abs(values[i]) / largest), values[i]);
    bytes[i] = static_cast<char>(is_signed ? 128 + std::lround(127 * root) : std::lround(255 * root));
  }
  return {{"max", largest}, {"signed", is_signed}, {"bytes", encode_base64(deflate_bytes(bytes))}};
}

// |used - exact|^2 / |exact|^2
double squared_error(const float* used, const float* exact, std::size_t count) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < count; ++i) {
    difference += std::pow(static_cast<double>(used[i]) - exact[i], 2);
    norm += std::pow(static_cast<double>(exact[i]), 2);
  }
  return difference / std::max(norm, 1e-300);
}

// `count` of `all`, the first and the last among them.
std::vector<std::int64_t> spread_evenly(const std::vector<std::int64_t>& all, std::size_t count) {
  if (count >= all.size()) return all;
  if (count == 1) return {all.front()};
  std::vector<std::int64_t> chosen;
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(all[i * (all.size() - 1) / (count - 1)]);
  return chosen;
}

std::string layer_key(std::int64_t layer, const char* what) {
  return fmt::format("layer.{}.{}", layer, what);
}

// "[2, 4, 4]" for the tokens of a mask on a grid of three dimensions.
Json parse_grid(const std::string& text, std::int64_t tokens, const std::string& path) {
  const Json grid = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::int64_t count = 1;
  bool valid = grid.is_array() && !grid.empty() && grid.size() <= 3;
  for (const Json& extent : grid) {
    valid = valid && extent.is_number_unsigned() &&
            extent.get<std::uint64_t>() <= static_cast<std::uint64_t>(tokens);
    if (valid) count *= extent.get<std::int64_t>();
  }
  check(valid && count == tokens, "{}: '{}' is no grid of {} tokens", path, text, tokens);
  return grid;
}

// How many frames of an example a page holds, and at which size.
struct ExampleSize {
  std::int64_t frames, height, width;

  ExampleSize(std::int64_t all_frames, std::int64_t all_rows, std::int64_t all_columns)
      : frames(std::min(all_frames, kExampleFrames)), height(all_rows), width(all_columns) {
    for (std::int64_t scale = 2; frames * height * width > kExamplePixels; ++scale)
      height = (all_rows + scale - 1) / scale, width = (all_columns + scale - 1) / scale;
  }

  // [T, C, H, W] bytes. Frames are taken at equal distances, pixels are means.
  at::Tensor fit(const at::Tensor& clip) const {
    at::Tensor fitting = clip;
    if (frames < clip.size(0))
      fitting = clip.index_select(0, at::arange(frames, at::kLong).mul(clip.size(0)).floor_divide(frames));
    if (height == clip.size(2) && width == clip.size(3)) return fitting;
    return at::adaptive_avg_pool2d(fitting.to(at::kFloat), {height, width}).round().to(at::kByte);
  }

  std::string describe_cut(const at::Tensor& images, bool clips) const {
    std::vector<std::string> parts;
    if (frames < images.size(1)) parts.push_back(fmt::format("{} of its {} frames", frames, images.size(1)));
    if (height < images.size(3) || width < images.size(4))
      parts.push_back(
          fmt::format("{} x {} of its {} x {} pixels", height, width, images.size(3), images.size(4)));
    if (parts.empty()) return "";
    return fmt::format("To keep this page small, each {} is shown with {}.", clips ? "clip" : "image",
                       fmt::join(parts, " and "));
  }
};

// [T, C, H, W] bytes to a data URI with all frames side by side; of images that are neither grey nor RGB the
// first channel.
std::string encode_frames(const at::Tensor& clip) {
  const at::Tensor image = clip.permute({1, 2, 0, 3}).flatten(2);  // [C, H, T W]
  const int channels = image.size(0) == 3 ? 3 : 1;
  const at::Tensor pixels = image.slice(0, 0, channels).permute({1, 2, 0}).contiguous();
  return "data:image/png;base64," +
         encode_base64(encode_png(pixels.const_data_ptr<std::uint8_t>(), static_cast<int>(image.size(2)),
                                  static_cast<int>(image.size(1)), channels));
}

}  // namespace

Json collect_masks(const std::string& run_folder, std::size_t max_bytes) {
  const std::optional<RunFile> file = read_if_there(run_folder, kMasksFile);
  if (!file) return nullptr;
  const VitSettings settings = VitSettings::from({}, (fs::path(run_folder) / kConfigFile).string());
  std::vector<std::int64_t> layers;
  std::size_t bytes = 0;
  for (std::int64_t layer = 0; layer < settings.model.total_layers(); ++layer) {
    if (!file->content.tensors.contains(layer_key(layer, "used"))) continue;  // of a stack without masks
    layers.push_back(layer);
    for (const char* what : {"used", "exact"}) {
      const auto found = file->content.tensors.find(layer_key(layer, what));
      if (found != file->content.tensors.end()) bytes += static_cast<std::size_t>(found->second.numel());
    }
  }
  if (layers.empty()) return nullptr;
  const std::size_t fitting = max_bytes / std::max<std::size_t>(bytes / layers.size(), 1);
  if (fitting == 0) return nullptr;

  Json all = Json::array();
  for (const std::int64_t layer : spread_evenly(layers, fitting)) {
    const at::Tensor used =
        file->tensor(layer_key(layer, "used"), {-1, -1, -1}).to(at::kFloat).contiguous();  // [H, N, N]
    check(used.numel() > 0, "{}: '{}' is empty", file->path, layer_key(layer, "used"));
    const AttentionVariant attention = settings.model.attention_of(layer);
    at::Tensor exact;
    // Earlier versions wrote one for power series too, which nothing estimates.
    if (attention != AttentionVariant::power_series &&
        file->content.tensors.contains(layer_key(layer, "exact")))
      exact = file->tensor(layer_key(layer, "exact"), used.sizes().vec()).to(at::kFloat).contiguous();
    const auto count = static_cast<std::size_t>(used.size(1) * used.size(2));
    Json heads = Json::array();
    for (std::int64_t head = 0; head < used.size(0); ++head) {
      const float* own = used.const_data_ptr<float>() + head * used.stride(0);
      Json entry = {{"used", encode_mask(own, count)}};
      if (exact.defined()) {
        const float* target = exact.const_data_ptr<float>() + head * exact.stride(0);
        entry["exact"] = encode_mask(target, count);
        entry["error"] = squared_error(own, target, count);
      }
      heads.push_back(std::move(entry));
    }
    Json entry = {
        {"layer", layer}, {"attention", attention_variant_name(attention)}, {"heads", std::move(heads)}};
    if (const auto grid = file->content.metadata.find(layer_key(layer, "grid"));
        grid != file->content.metadata.end())
      entry["grid"] = parse_grid(grid->second, used.size(1), file->path);
    all.push_back(std::move(entry));
  }
  return {{"walks", settings.model.mask.num_walks}, {"layers", std::move(all)}};
}

Examples collect_examples(const std::string& run_folder) {
  Examples examples;
  const std::optional<RunFile> file = read_if_there(run_folder, kExamplesFile);
  if (!file) return examples;
  const bool clips = file->images().dim() == 5;
  const at::Tensor images = clips ? file->images() : file->images().unsqueeze(1);  // [K, T, C, H, W]
  check(images.numel() > 0 || images.size(0) == 0, "{}: 'images' are empty", file->path);
  const at::Tensor labels = file->tensor("labels", {images.size(0)}, at::kLong),
                   indices = file->tensor("indices", {images.size(0)}, at::kLong);
  const ExampleSize size(images.size(1), images.size(3), images.size(4));
  for (std::int64_t i = 0; i < images.size(0); ++i)
    examples.list.push_back({{"index", indices[i].item<std::int64_t>()},
                             {"label", labels[i].item<std::int64_t>()},
                             {"image", encode_frames(size.fit(images[i]))}});
  examples.frames = size.frames;
  examples.cut = size.describe_cut(images, clips);
  return examples;
}

Json collect_predictions(const std::string& run_folder, const Json& examples) {
  const std::optional<RunFile> file = read_if_there(run_folder, kExamplesFile);
  if (!file || examples.empty()) return nullptr;
  const at::Tensor indices = file->tensor("indices", {-1}, at::kLong);
  const at::Tensor probabilities =
      file->tensor("probabilities", {indices.size(0), -1}).to(at::kFloat).contiguous();
  if (static_cast<std::size_t>(indices.size(0)) != examples.size()) return nullptr;
  Json predictions = Json::array();
  for (std::int64_t i = 0; i < indices.size(0); ++i) {
    if (examples[static_cast<std::size_t>(i)]["index"] != indices[i].item<std::int64_t>()) return nullptr;
    const float* row = probabilities.const_data_ptr<float>() + i * probabilities.size(1);
    std::vector<std::size_t> order(static_cast<std::size_t>(probabilities.size(1)));
    std::iota(order.begin(), order.end(), std::size_t{0});
    const std::size_t kept = std::min(kLikeliest, order.size());
    const auto comes_first = [&](std::size_t a, std::size_t b) {
      return row[a] > row[b] || (std::isnan(row[b]) && !std::isnan(row[a]));
    };
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                      comes_first);
    Json top = Json::array();
    for (std::size_t k = 0; k < kept; ++k) top.push_back({order[k], row[order[k]]});
    predictions.push_back({{"top", std::move(top)}});
  }
  return predictions;
}

}  // namespace topomask::cli
