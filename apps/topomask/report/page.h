// A report as one HTML file that needs nothing else: style, scripts, Chart.js and data stand inside it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace topomask::cli {

inline constexpr const char* kReportFile = "report.html";

// What report/data.h collects, as a page; what report/particles.h collects, as another.
std::string render_page(const nlohmann::ordered_json& report);
std::string render_particle_page(const nlohmann::ordered_json& report);

// Collects the finished runs of an experiment's folder, or of a run's, and writes them to `path` (empty:
// FOLDER/report.html). Returns the path.
std::string write_report(const std::string& folder, std::string path = "");

}  // namespace topomask::cli
