// The HTML report as a file; tests/report looks at it in a browser.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "report/encoding.h"
#include "run_program.h"
#include "topomask/particle_training.h"
#include "topomask/safetensors.h"

namespace topomask::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kTiny = {"--data",          "strokes:16,train=32,val=32",
                                        "--layers",        "1",
                                        "--embedding",     "16",
                                        "--mlp",           "16",
                                        "--batch",         "16",
                                        "--epochs",        "2",
                                        "--warmup-epochs", "1",
                                        "--threads",       "1"};

std::vector<std::string> with_tiny(std::vector<std::string> words) {
  words.insert(words.end(), kTiny.begin(), kTiny.end());
  return words;
}

// The JSON block of a page, as a browser finds it: up to the first </script.
nlohmann::json data_of(const std::string& page) {
  const std::string mark = "<script type=\"application/json\" id=\"report-data\">";
  const std::size_t begin = page.find(mark) + mark.size();
  return nlohmann::json::parse(page.substr(begin, page.find("</script", begin) - begin));
}

// The `count` numbers of a mask, as the page reads them.
std::vector<double> values_of(const nlohmann::json& mask, std::size_t count) {
  std::string packed;
  std::uint32_t group = 0;
  int bits = 0;
  for (const char digit : mask["bytes"].get<std::string>()) {
    if (digit == '=') break;
    static const std::string kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    group = group << 6 | static_cast<std::uint32_t>(kDigits.find(digit));
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    packed += static_cast<char>(group >> bits & 255);
  }
  std::vector<std::uint8_t> bytes(count);
  uLongf size = count;
  EXPECT_EQ(uncompress(bytes.data(), &size, reinterpret_cast<const Bytef*>(packed.data()), packed.size()),
            Z_OK);
  EXPECT_EQ(size, count);
  std::vector<double> values;
  for (const std::uint8_t byte : bytes) {
    const double root = mask["signed"] ? (byte - 128) / 127.0 : byte / 255.0;
    values.push_back(mask["max"].get<double>() * root * std::abs(root));
  }
  return values;
}

std::vector<double> metric(const std::string& run, const char* key) {
  std::istringstream lines(read_whole_file(run + "/metrics.jsonl"));
  std::vector<double> values;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (json["kind"] == "epoch") values.push_back(json[key]);
  }
  return values;
}

TEST(Report, HoldsWhatTheRunsLeft) {
  const TemporaryDirectory folder;
  const std::string out = folder.path("table");
  run_json(with_tiny({"experiment", "image-table", "--variants", "linear,grf,power-series", "--seeds", "0-1",
                      "--out", out}));
  const std::string page = read_whole_file(out + "/report.html");
  const nlohmann::json report = data_of(page);
  EXPECT_EQ(report["config"], read_whole_file(out + "/config.toml"));
  EXPECT_EQ(report["classes"].size(), 3u);
  ASSERT_EQ(report["variants"].size(), 3u);
  const nlohmann::json results = nlohmann::json::parse(read_whole_file(out + "/results.json"));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(report["variants"][i]["accuracy_mean"], results["variants"][i]["accuracy_mean"]);
    EXPECT_EQ(report["variants"][i]["predictions"].size(), report["examples"].size());
  }
  const nlohmann::json &linear = report["variants"][0], &series = report["variants"][1],
                       &grf = report["variants"][2];
  ASSERT_EQ(grf["variant"], "grf");

  // Two numbers a and b have the mean (a + b) / 2 and the standard error |a - b| / 2.
  const std::vector<double> a = metric(out + "/grf/seed-0", "loss"), b = metric(out + "/grf/seed-1", "loss");
  const nlohmann::json& curve = grf["curves"]["loss"];
  EXPECT_EQ(curve["epoch"], nlohmann::json({1, 2}));
  for (std::size_t epoch = 0; epoch < 2; ++epoch) {
    EXPECT_NEAR(curve["mean"][epoch].get<double>(), (a[epoch] + b[epoch]) / 2, 1e-12);
    EXPECT_NEAR(curve["se"][epoch].get<double>(), std::abs(a[epoch] - b[epoch]) / 2, 1e-12);
  }

  EXPECT_TRUE(linear["masks"].is_null());
  EXPECT_TRUE(linear["modulation"].empty());
  ASSERT_EQ(grf["modulation"].size(), 2u);
  EXPECT_EQ(grf["modulation"][1]["layers"],
            nlohmann::json::parse(read_whole_file(out + "/grf/seed-1/result.json"))["f"]);
  const nlohmann::json& head = grf["masks"]["layers"][0]["heads"][0];
  EXPECT_TRUE(head.contains("exact"));
  EXPECT_EQ(head["used"]["signed"], false);
  EXPECT_EQ(grf["masks"]["layers"][0]["attention"], "grf");
  EXPECT_GT(head["error"].get<double>(), 0);
  EXPECT_EQ(grf["masks"]["walks"], 20);
  EXPECT_FALSE(series["masks"]["layers"][0]["heads"][0].contains("exact"));  // it is the exact one

  for (const auto& prediction : grf["predictions"]) {
    ASSERT_EQ(prediction["top"].size(), 3u);
    EXPECT_GE(prediction["top"][0][1].get<double>(), prediction["top"][1][1].get<double>());
  }
  EXPECT_THAT(report["examples"][0]["image"].get<std::string>(),
              HasSubstr("data:image/png;base64,iVBORw0KGgo"));
  EXPECT_EQ(report["example_frames"], 1);
  EXPECT_FALSE(report.contains("examples_cut"));
}

// Rows and columns of the picture in a data URI, from its header.
std::pair<unsigned, unsigned> size_of_png(const std::string& uri) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned> bytes;
  const std::size_t begin = uri.find(',') + 1;
  for (std::size_t i = begin; i < begin + 32; i += 4) {
    unsigned group = 0;
    for (std::size_t k = 0; k < 4; ++k) group = group << 6 | static_cast<unsigned>(digits.find(uri[i + k]));
    for (const int shift : {16, 8, 0}) bytes.push_back(group >> shift & 255);
  }
  const auto number = [&](std::size_t at) {
    return bytes[at] << 24 | bytes[at + 1] << 16 | bytes[at + 2] << 8 | bytes[at + 3];
  };
  return {number(20), number(16)};
}

// Longer clips and larger pictures do not make a larger page, which says what it leaves out.
TEST(Report, CutsLargeExamples) {
  const TemporaryDirectory folder;
  const std::string run = folder.path("run");
  std::vector<std::string> words = with_tiny({"train", "vivit", "--attention", "linear", "--out", run});
  std::replace(words.begin(), words.end(), kTiny[1], std::string("motion:12,frames=4,train=16,val=8"));
  run_json(words);
  SafetensorsFile examples = read_safetensors(run + "/examples.safetensors");
  const std::int64_t count = examples.tensors.at("images").size(0);
  const auto report_of = [&](const at::Tensor& images) {
    examples.tensors["images"] = images;
    write_safetensors(run + "/examples.safetensors", examples);
    run_json({"report", run});
    return data_of(read_whole_file(run + "/report.html"));
  };
  const auto noise = [](std::vector<std::int64_t> sizes) {
    return at::randint(256, sizes, at::TensorOptions().dtype(at::kByte));
  };
  const nlohmann::json small = report_of(noise({count, 4, 1, 12, 12}));
  EXPECT_EQ(small["example_frames"], 4);
  EXPECT_FALSE(small.contains("examples_cut"));
  EXPECT_EQ(size_of_png(small["examples"][0]["image"]), std::pair(12u, 4 * 12u));

  const nlohmann::json large = report_of(noise({count, 40, 3, 150, 301}));
  EXPECT_EQ(large["example_frames"], 16);
  EXPECT_EQ(large["examples_cut"],
            "To keep this page small, each clip is shown with 16 of its 40 frames and 75 x 151 of its 150 x "
            "301 pixels.");
  // 16 * 75 * 151 is below 2^18.
  EXPECT_EQ(size_of_png(large["examples"][0]["image"]), std::pair(75u, 16 * 151u));
  EXPECT_EQ(large["examples"].size(), static_cast<std::size_t>(count));
  EXPECT_LT(fs::file_size(run + "/report.html"), fs::file_size(run + "/examples.safetensors") / 4);

  const nlohmann::json long_clips = report_of(noise({count, 17, 1, 12, 12}));
  EXPECT_EQ(long_clips["examples_cut"],
            "To keep this page small, each clip is shown with 16 of its 17 frames.");
  const nlohmann::json images = report_of(noise({count, 3, 1024, 1024}));
  EXPECT_EQ(images["examples_cut"],
            "To keep this page small, each image is shown with 512 x 512 of its 1024 x 1024 pixels.");
  EXPECT_EQ(size_of_png(images["examples"][0]["image"]), std::pair(512u, 512u));
}

// Of one run, and with standard errors of an experiment.
TEST(Report, HoldsEveryScoreOfParticles) {
  const TemporaryDirectory folder;
  nlohmann::json row = {{"step", 1}}, means = row;
  double value = .5;
  for (const StepScore& score : step_scores()) {
    row[score.name] = ++value;
    means[std::string(score.name) + "_mean"] = value;
    means[std::string(score.name) + "_se"] = value / 8;
  }
  const nlohmann::json rows = nlohmann::json::array({row});
  const nlohmann::json rollout = {{"model", rows}, {"copy", rows}, {"oracle", rows}, {"step_seconds", .1}};
  fs::create_directories(folder.path("run"));
  folder.write(
      "run/result.json",
      nlohmann::json{{"model", "particles"}, {"local", "grf"}, {"seed", 4}, {"rollout", rollout}}.dump());
  const nlohmann::json steps = {{"steps", nlohmann::json::array({means})}};
  nlohmann::json variant = {{"variant", "grf"}, {"seeds", {0, 1}}};
  variant.update(steps);
  fs::create_directories(folder.path("table"));
  folder.write("table/results.json", nlohmann::json{{"experiment", "particle-table"},
                                                    {"variants", nlohmann::json::array({variant})},
                                                    {"runs", nlohmann::json::array()},
                                                    {"copy", {{"steps", rows}}},
                                                    {"oracle", steps}}
                                         .dump());
  std::string page;
  for (const bool table : {false, true}) {
    const std::string own = folder.path(table ? "table" : "run");
    run_json({"report", own});
    page = read_whole_file(own + "/report.html");
    const nlohmann::json report = data_of(page);
    for (const StepScore& score : step_scores()) {
      const nlohmann::json alone = {row[score.name], nullptr},
                           expected = {row[score.name],
                                       table ? means[std::string(score.name) + "_se"] : nullptr};
      EXPECT_EQ(report["variants"][0]["steps"][0][score.name], expected) << score.name;
      EXPECT_EQ(report["copy"]["steps"][0][score.name], alone) << score.name;
      EXPECT_EQ(report["oracle"]["steps"][0][score.name], expected) << score.name;
    }
  }
  // The page has a title for each, and shows it as tables in the shell do.
  const std::string mark = "const stepMetrics = {\n";
  const std::size_t begin = page.find(mark) + mark.size();
  std::istringstream lines(page.substr(begin, page.find("};", begin) - begin));
  std::size_t titles = 0;
  for (std::string line; std::getline(lines, line); ++titles) {
    const auto scores = step_scores();
    const auto score = std::find_if(scores.begin(), scores.end(), [&](const StepScore& one) {
      return line.starts_with(fmt::format("  {}: ['", one.name));
    });
    ASSERT_NE(score, scores.end()) << line;
    EXPECT_THAT(line, HasSubstr(fmt::format("', {:g}, {}, ", score->shown_factor, score->digits)));
  }
  EXPECT_EQ(titles, step_scores().size());
}

TEST(Report, KeepsTheSignsOfAMask) {
  const TemporaryDirectory folder;
  run_json(
      with_tiny({"train", "vit", "--attention", "ad-hoc", "--no-absolute", "--out", folder.path("run")}));
  const std::string path = folder.path("run/masks.safetensors");
  SafetensorsFile masks = read_safetensors(path);
  at::Tensor& used = masks.tensors.at("layer.0.used");  // [heads, N, N]
  at::Tensor values = at::linspace(-1, 3, used.numel()).view(used.sizes());
  values[1].abs_();
  used = values.to(at::kHalf);
  write_safetensors(path, masks);
  ASSERT_EQ(run_program({"report", folder.path("run"), "--quiet"}).status, 0);
  const nlohmann::json layer =
      data_of(read_whole_file(folder.path("run/report.html")))["variants"][0]["masks"]["layers"][0];
  EXPECT_EQ(layer["attention"], "ad-hoc");
  EXPECT_TRUE(layer["heads"][0].contains("exact"));  // what these walks estimate
  for (std::int64_t head = 0; head < 2; ++head) {
    const nlohmann::json& shown = layer["heads"][static_cast<std::size_t>(head)]["used"];
    EXPECT_EQ(shown["signed"], head == 0);
    const at::Tensor expected = values[head].flatten();
    const std::vector<double> got = values_of(shown, static_cast<std::size_t>(expected.numel()));
    const double step =
        shown["max"].get<double>() / (head == 0 ? 127 : 255);  // half a step of the root, twice
    for (std::int64_t i = 0; i < expected.numel(); ++i)
      ASSERT_NEAR(got[static_cast<std::size_t>(i)], expected[i].item<double>(), 1.3 * step)
          << head << ", " << i;
  }
}

TEST(Report, RefersToNothingOutside) {
  const TemporaryDirectory folder;
  run_json(with_tiny({"train", "vit", "--attention", "linear", "--out", folder.path("run")}));
  const nlohmann::json said = run_json({"report", folder.path("run"), "--out", folder.path("page.html")});
  EXPECT_EQ(said["report"], folder.path("page.html"));
  const std::string page = read_whole_file(folder.path("page.html"));
  EXPECT_EQ(said["bytes"], page.size());
  for (const char* reference : {"src=\"http", "href=\"http", "url(http", "@import", "{{"})
    EXPECT_THAT(page, Not(HasSubstr(reference)));
  EXPECT_EQ(data_of(page)["variants"][0]["variant"], "linear");
  EXPECT_TRUE(data_of(page)["variants"][0]["curves"]["accuracy"]["se"].is_null());  // one run
}

TEST(Report, NamesCannotEndTheData) {
  const TemporaryDirectory folder;
  run_json(with_tiny({"train", "vit", "--attention", "linear", "--out", folder.path("run")}));
  const std::string path = folder.path("run/result.json");
  nlohmann::ordered_json result = nlohmann::ordered_json::parse(read_whole_file(path));
  const nlohmann::json names = {"</script><script>alert(1)</script>", "<!--<script>",
                                "{{script}} \"quoted\" \\ ü"};
  result["classes"] = names;
  std::ofstream(path) << result.dump();
  ASSERT_EQ(run_program({"report", folder.path("run"), "--quiet"}).status, 0);
  const std::string page = read_whole_file(folder.path("run/report.html"));
  EXPECT_THAT(page, Not(HasSubstr("alert(1)</script>")));
  EXPECT_THAT(page, Not(HasSubstr("<!--<script>")));
  EXPECT_EQ(data_of(page)["classes"], names);
}

TEST(Report, SaysWhatIsMissing) {
  const TemporaryDirectory folder;
  expect_rejected({"report", folder.path("nowhere")}, "is not a folder");
  expect_rejected({"report", folder.path("")}, "holds no finished run");
  fs::create_directories(folder.path("run"));
  folder.write("run/result.json", "[1, 2");
  expect_rejected({"report", folder.path("run")}, "is not a JSON object");
}

TEST(ReportEncoding, Base64) {
  EXPECT_EQ(cli::encode_base64(""), "");
  EXPECT_EQ(cli::encode_base64("f"), "Zg==");
  EXPECT_EQ(cli::encode_base64("fo"), "Zm8=");
  EXPECT_EQ(cli::encode_base64("foo"), "Zm9v");
  EXPECT_EQ(cli::encode_base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(cli::encode_base64(std::string("\xff\xfe\x00", 3)), "//4A");
}

}  // namespace
}  // namespace topomask::testing
