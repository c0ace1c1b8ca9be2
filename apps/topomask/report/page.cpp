#include "report/page.h"

#include <filesystem>
#include <string_view>
#include <utility>

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

std::string fill_page(std::string_view form, std::string_view script, const nlohmann::ordered_json& report) {
  const std::string data = script_safe(report);
  const std::pair<std::string_view, std::string_view> parts[] = {{"{{style}}", assets::kStyle},
                                                                 {"{{data}}", data},
                                                                 {"{{chart_library}}", assets::kChartLibrary},
                                                                 {"{{script}}", script}};
  // In the order of the template and from left to right, so that nothing is looked for in what was filled in.
  std::string page;
  std::string_view rest = form;
  for (const auto& [mark, text] : parts) {
    const std::size_t at = rest.find(mark);
    page.append(rest.substr(0, at)).append(text);
    rest.remove_prefix(at + mark.size());
  }
  return page.append(rest);
}

}  // namespace

std::string render_page(const nlohmann::ordered_json& report) {
  return fill_page(assets::kPage, assets::kScript, report);
}

std::string render_particle_page(const nlohmann::ordered_json& report) {
  return fill_page(assets::kParticlePage, assets::kParticleScript, report);
}

std::string write_report(const std::string& folder, std::string path) {
  if (path.empty()) path = (std::filesystem::path(folder) / kReportFile).string();
  write_file(path, holds_particle_runs(folder)
                       ? render_particle_page(particle_page_data(read_particle_report(folder)))
                       : render_page(collect_report(folder)));
  return path;
}

}  // namespace topomask::cli
