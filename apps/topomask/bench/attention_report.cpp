#include "bench/attention_report.h"

#include <fmt/format.h>

#include "bench/machine.h"
#include "bench/timing.h"
#include "core/parallel.h"
#include "options/attention_options.h"
#include "program_version.h"
#include "table.h"

namespace topomask::cli {

using Json = nlohmann::ordered_json;

double AttentionReport::median(const std::string& name, bool backward) const {
  for (const BenchRow& row : rows) {
    if (row.name == name && row.backward == backward && !row.seconds.empty()) {
      return summarise_times(row.seconds).median;
    }
  }
  return std::nan("");
}

Json AttentionReport::ratios() const {
  Json json = Json::object();
  const auto put = [](Json& target, const std::string& name, double ratio) {
    if (std::isfinite(ratio)) target[name] = ratio;
  };
  for (const bool backward : {false, true}) {
    Json pass = Json::object();
    const double ours = median("grf-auto", backward);
    put(pass, "grf-auto/linear", ours / median("linear", backward));
    for (const char* peer : {"softmax", "literal", "unfused"}) {
      put(pass, fmt::format("{}/grf-auto", peer), median(peer, backward) / ours);
    }
    json[backward ? "forward+backward" : "forward"] = std::move(pass);
  }
  Json both = Json::object();
  for (const BenchRow& row : rows) {
    if (row.backward) put(both, row.name, median(row.name, true) / median(row.name, false));
  }
  json["forward+backward/forward"] = std::move(both);
  if (!refresh.empty()) {
    put(json, "refresh/grf-mask", summarise_times(refresh).median / median("grf-mask", false));
  }
  return json;
}

Json AttentionReport::to_json() const {
  Json json = {{"results", Json::array()}};
  for (const BenchRow& row : rows) {
    Json result = {{"name", row.name}, {"pass", row.pass()}};
    if (!row.reason.empty()) {
      result["reason"] = row.reason;
    } else {
      const Timing timing = summarise_times(row.seconds);
      result["seconds_median"] = timing.median;
      result["seconds_spread"] = timing.spread;
      result["repeats"] = row.seconds.size();
      result["peak_bytes"] = row.peak_bytes < 0 ? Json() : Json(row.peak_bytes);
      result["setup_seconds"] = row.setup_seconds;
      if (row.has_modulation) result["difference"] = row.difference;
      limits.add_to(result, row.work, timing.median);
    }
    json["results"].push_back(std::move(result));
  }
  json["limits"] = limits.to_json();
  json["plan"] = plan_json(plan);
  json["ratios"] = ratios();
  json["refresh_seconds"] = refresh.empty() ? Json() : Json(summarise_times(refresh).median);
  if (!memory.steps.empty()) {
    Json steps = Json::array();
    for (const MemoryStep& step : memory.steps)
      steps.push_back({{"name", step.name}, {"lasting", step.lasting}, {"peak", step.peak}});
    json["memory"] = {{"predicted_peak", memory.peak},
                      {"measured_peak", peak_bytes},
                      {"source", memory_source},
                      {"steps", std::move(steps)}};
  }
  json["setting"] = setting;
  json["setting"]["spread"] = "largest - smallest";
  json["setting"]["peak"] = "memory added by the first run: resident, or held by torch on a GPU";
  json["machine"] = {{"version", program_version()}, {"threads", num_threads()}, {"cpu", cpu_model()}};
  return json;
}

std::string AttentionReport::yardstick() const {
  for (const BenchRow& row : rows) {
    if (row.reason.empty()) return row.name;
  }
  return "grf-auto";
}

void AttentionReport::print() const {
  const std::string yardstick = this->yardstick();
  Table table({"attention", "pass", "median", "spread", "peak memory", "set-up", "times " + yardstick,
               "of bytes/s", "of FLOP/s"});
  std::string left_out;
  for (const BenchRow& row : rows) {
    if (!row.reason.empty()) {
      left_out += fmt::format("not run: {}, {}: {}\n", row.name, row.pass(), row.reason);
      continue;
    }
    const Timing timing = summarise_times(row.seconds);
    const double times = timing.median / median(yardstick, row.backward);
    table.add_row({row.name, row.pass(), format_seconds(timing.median), format_seconds(timing.spread),
                   row.peak_bytes < 0 ? "?" : format_bytes(static_cast<double>(row.peak_bytes)),
                   format_seconds(row.setup_seconds),
                   std::isfinite(times) ? fmt::format("{:.2f}", times) : "",
                   limits.bytes_share(row.work, timing.median), limits.flops_share(row.work, timing.median)});
  }
  table.print();
  fmt::print("{}\n{}\n{}", limits.to_string(setting["dtype"].get<std::string>()), left_out, plan.to_string());
  if (!refresh.empty()) {
    const double seconds = summarise_times(refresh).median, share = seconds / median("grf-mask", false);
    fmt::print("new values of Phi and M for another f: {}{}\n", format_seconds(seconds),
               std::isfinite(share) ? fmt::format(", {:.2f} of grf-mask forward", share) : "");
  }
  if (!memory.steps.empty()) {
    fmt::print("memory of the whole: predicted {}, measured {} ({})\n{}", format_bytes(memory.peak),
               format_bytes(static_cast<double>(peak_bytes)), memory_source, memory.to_string());
  }
  fmt::print("{}\n{} thread(s), {}, topomask {}\n", in_words(setting), num_threads(), cpu_model(),
             program_version());
}

}  // namespace topomask::cli
