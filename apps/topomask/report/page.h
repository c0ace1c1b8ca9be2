// A report as one HTML file that needs nothing else: style, scripts, Chart.js and data stand inside it.
#pragma once

#include <string>

namespace topomask::cli {

inline constexpr const char* kReportFile = "report.html";

// Collects the finished runs of an experiment's folder, or of a run's, and writes them to `path` (empty:
// FOLDER/report.html). Returns the path.
std::string write_report(const std::string& folder, std::string path = "");

}  // namespace topomask::cli
