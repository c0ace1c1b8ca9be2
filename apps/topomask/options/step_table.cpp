#include "options/step_table.h"

#include <fmt/format.h>

#include "table.h"

namespace topomask::cli {

std::string format_rollout_scores(const nlohmann::ordered_json& scores) {
  const auto text = [](const nlohmann::ordered_json& row, const char* key, double scale, int digits) {
    const nlohmann::ordered_json value = row.value(key, nlohmann::ordered_json());
    return value.is_null() ? std::string("-") : fmt::format("{:.{}f}", scale * value.get<double>(), digits);
  };
  Table table(
      {"", "step", "SSIM", "moving", "PSNR", "moving", "Chamfer mm", "arm mm", "object mm", "grain mm"});
  for (const char* name : {"model", "copy", "oracle"}) {
    for (const nlohmann::ordered_json& row : scores[name])
      table.add_row({name, std::to_string(row["step"].get<std::int64_t>()), text(row, "ssim", 1, 3),
                     text(row, "ssim_moving", 1, 3), text(row, "psnr", 1, 1), text(row, "psnr_moving", 1, 1),
                     text(row, "chamfer", 1000, 1), text(row, "flow_arm", 1000, 1),
                     text(row, "flow_object", 1000, 1), text(row, "flow_grain", 1000, 1)});
  }
  return table.to_string();
}

}  // namespace topomask::cli
