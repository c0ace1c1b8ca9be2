#include "options/step_table.h"

#include <fmt/format.h>

#include "table.h"
#include "topomask/particle_training.h"

namespace topomask::cli {

std::string format_rollout_scores(const nlohmann::ordered_json& scores) {
  const auto text = [](const nlohmann::ordered_json& row, const char* key, double scale, int digits) {
    const nlohmann::ordered_json value = row.value(key, nlohmann::ordered_json());
    return value.is_null() ? std::string("-") : fmt::format("{:.{}f}", scale * value.get<double>(), digits);
  };
  std::vector<std::string> header = {"", "step"};
  for (const StepScore& score : step_scores()) header.push_back(score.column);
  Table table(header);
  for (const char* name : {"model", "copy", "oracle"}) {
    for (const nlohmann::ordered_json& row : scores[name]) {
      std::vector<std::string> cells = {name, std::to_string(row["step"].get<std::int64_t>())};
      for (const StepScore& score : step_scores())
        cells.push_back(text(row, score.name, score.shown_factor, score.digits));
      table.add_row(cells);
    }
  }
  return table.to_string();
}

}  // namespace topomask::cli
