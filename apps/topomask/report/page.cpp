#include "report/page.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "io/files.h"
#include "report/assets.h"
#include "report/data.h"
#include "report/particles.h"

namespace topomask::cli {
namespace {

// JSON that may stand inside <script>: no class name or path can end the element or open a comment in it.
std::string script_safe(const nlohmann::ordered_json& json) {
  const std::string text =
      json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);  // names need not be UTF-8
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      safe += "\\u003c";  // outside of strings JSON has none
    } else {
      safe += c;
    }
  }
  return safe;
}

// Calls `found` with what stands before each {{mark}}, the mark's name and what follows it; returns the rest.
template <class Found>
std::string_view for_each_mark(std::string_view text, const Found& found) {
  for (std::size_t at = text.find("{{"); at != text.npos; at = text.find("{{")) {
    const std::size_t end = text.find("}}", at);
    const std::string_view before = text.substr(0, at), name = text.substr(at + 2, end - at - 2);
    text.remove_prefix(end + 2);
    found(before, name, text);
  }
  return text;
}

// `content` holds lines of {{mark}}text for the marks of page.html.
std::string fill_page(std::string_view content, std::string_view script,
                      const nlohmann::ordered_json& report) {
  const std::string data = script_safe(report);
  std::map<std::string_view, std::string_view> parts = {{"style", assets::kStyle},
                                                        {"data", data},
                                                        {"chart_library", assets::kChartLibrary},
                                                        {"script", script}};
  for_each_mark(content, [&](std::string_view, std::string_view name, std::string_view text) {
    parts[name] = text.substr(0, std::min(text.find("\n{{"), text.size() - 1));
  });
  // From left to right, so that nothing is looked for in what was filled in.
  std::string page;
  const std::string_view rest =
      for_each_mark(assets::kPage, [&](std::string_view before, std::string_view name, std::string_view) {
        page.append(before).append(parts.at(name));
      });
  return page.append(rest);
}

}  // namespace

std::string write_report(const std::string& folder, std::string path) {
  if (path.empty()) path = (std::filesystem::path(folder) / kReportFile).string();
  write_file(path, holds_particle_runs(folder)
                       ? fill_page(assets::kParticleContent, assets::kParticleScript,
                                   particle_page_data(read_particle_report(folder)))
                       : fill_page(assets::kImageContent, assets::kImageScript, collect_report(folder)));
  return path;
}

}  // namespace topomask::cli
