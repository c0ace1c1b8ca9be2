// The planner's constants: files of them, and what they make of counts.
#include "topomask/cost_model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "core/parallel.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "topomask/attention.h"
#include "topomask/graph_builders.h"
#include "topomask/grf_mask.h"

namespace topomask {
namespace {

using testing::expect_error;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

std::string whole(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Rates that differ in every field, from the first on.
DeviceRates numbered(double first) {
  DeviceRates rates;
  for (const RateField& field : rate_fields()) rates.*field.member = first++;
  return rates;
}

void expect_equal(const DeviceRates& a, const DeviceRates& b) {
  for (const RateField& field : rate_fields()) EXPECT_EQ(a.*field.member, b.*field.member) << field.name;
}

TEST(Calibration, IsReadAsItWasStored) {
  const TemporaryFolder folder;
  const std::string path = folder / "deep/in/calibration.json";
  EXPECT_TRUE(read_calibration(path).devices.empty());
  EXPECT_EQ(read_calibration(path).problem, "");  // no file is no problem
  store_calibration(path, "one", numbered(1));
  store_calibration(path, "two", numbered(100.5));
  store_calibration(path, "one", numbered(3));
  const Calibration found = read_calibration(path);
  EXPECT_EQ(found.problem, "");
  ASSERT_EQ(found.devices.size(), 2u);
  expect_equal(found.devices.at("one"), numbered(3));
  expect_equal(found.devices.at("two"), numbered(100.5));
  expect_error([] { store_calibration("", "one", numbered(1)); }, "TOPOMASK_CALIBRATION names one");
  expect_error([&] { store_calibration(folder / "deep", "one", numbered(1)); }, "deep");
}

// Whatever is in the file: a sentence, and no device.
TEST(Calibration, WhatCannotBeUsedIsAProblemAndNoError) {
  const TemporaryFolder folder;
  const std::string path = folder / "calibration.json";
  store_calibration(path, "one", numbered(1));
  const std::string good = whole(path);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  for (const std::string& bad :
       {std::string(), std::string("{"), std::string("[1, 2]"), good.substr(0, good.size() / 2),
        std::string("\0\xff\x01", 3), changed("\"format\": 1", "\"format\": 2"),
        changed("\"version\": \"", "\"version\": \"0.0-"), changed("\"mask\": 3.0", "\"mask\": -3.0"),
        changed("\"mask\": 3.0", "\"mask\": \"fast\""), changed("\"mask\": 3.0", "\"mask\": null"),
        changed("\"mask\"", "\"maks\"")}) {
    folder.write("calibration.json", bad);
    const Calibration found = read_calibration(path);
    EXPECT_TRUE(found.devices.empty()) << bad;
    EXPECT_THAT(found.problem, HasSubstr("topomask calibrate")) << bad;
    EXPECT_EQ(found.problem.find('\n'), std::string::npos) << found.problem;
  }
  EXPECT_THAT(read_calibration(folder.path().string()).problem, HasSubstr("is not used"));
  // A new measurement replaces what was there.
  store_calibration(path, "one", numbered(2));
  expect_equal(read_calibration(path).devices.at("one"), numbered(2));
}

TEST(Calibration, LiesInTheCacheFolderUnlessToldOtherwise) {
  const auto with = [](const char* own, const char* cache, const char* home) {
    const std::pair<const char*, const char*> variables[] = {
        {"TOPOMASK_CALIBRATION", own}, {"XDG_CACHE_HOME", cache}, {"HOME", home}};
    std::vector<std::pair<std::string, std::optional<std::string>>> before;
    for (const auto& [name, value] : variables) {
      const char* old = std::getenv(name);
      before.emplace_back(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
      value == nullptr ? unsetenv(name) : setenv(name, value, 1);
    }
    const std::string path = calibration_path();
    for (const auto& [name, value] : before)
      value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
    return path;
  };
  EXPECT_EQ(with(nullptr, "/cache", "/home/me"), "/cache/topomask/calibration.json");
  EXPECT_EQ(with(nullptr, nullptr, "/home/me"), "/home/me/.cache/topomask/calibration.json");
  EXPECT_EQ(with(nullptr, "not/absolute", "/home/me"), "/home/me/.cache/topomask/calibration.json");
  EXPECT_EQ(with("/own.json", "/cache", "/home/me"), "/own.json");
  EXPECT_EQ(with("off", "/cache", "/home/me"), "");
  EXPECT_EQ(with(nullptr, nullptr, nullptr), "");
}

const PlanCandidate& candidate(const AttentionPlan& plan, Engine engine) {
  for (const PlanCandidate& c : plan.candidates) {
    if (c.engine == engine) return c;
  }
  throw std::out_of_range("engine");
}

MaskProfile hub_profile() {
  MaskProfile mask;
  mask.name = "hubs";
  mask.num_nodes = 10000;
  mask.heads = 2;
  mask.entries = 1000000;
  mask.sparse_factors = true;
  mask.left_entries = mask.right_entries = 100000;
  mask.multiply_adds_per_column = 200000;
  mask.bytes_per_column = 2400000;
  mask.value_multiply_adds = 5e9;
  return mask;
}

TEST(CostModel, NewValuesCountWhereTheMaskLearns) {
  const MaskProfile mask = hub_profile();
  AttentionShape shape;
  shape.num_nodes = mask.num_nodes;
  shape.heads = 2;
  DeviceRates rates = DeviceRates::built_in(c10::DeviceType::CPU);
  rates.values = 2e9;
  const AttentionPlan fixed = plan_attention(mask, shape, {}, rates);
  shape.learning = true;
  const AttentionPlan learned = plan_attention(mask, shape, {}, rates);
  // Two heads have two sets of values; the feature engine needs none of them.
  const double work = 2 * (5e9 + 10 * 1e6);  // ten for each value
  const double seconds = work / rates.values / num_threads();
  EXPECT_EQ(candidate(fixed, Engine::mask).value_multiply_adds, 0);
  EXPECT_EQ(candidate(learned, Engine::mask).value_multiply_adds, work);
  EXPECT_NEAR(candidate(learned, Engine::mask).predicted_cost - candidate(fixed, Engine::mask).predicted_cost,
              seconds, 1e-9);
  EXPECT_NEAR(
      candidate(learned, Engine::dense).predicted_cost - candidate(fixed, Engine::dense).predicted_cost,
      seconds, 1e-9);
  EXPECT_EQ(candidate(learned, Engine::feature).predicted_cost,
            candidate(fixed, Engine::feature).predicted_cost);
  EXPECT_EQ(fixed.engine, Engine::mask);
  EXPECT_EQ(learned.engine, Engine::feature);
  // A GPU keeps no values.
  shape.learning = false;
  shape.device = c10::DeviceType::CUDA;
  EXPECT_EQ(candidate(plan_attention(mask, shape, {}), Engine::mask).value_multiply_adds, work);
}

TEST(CostModel, AMaskLearnsWhereItsParametersDo) {
  const Graph graph = normalise(grid_graph({8, 8}), Normalisation::symmetric);
  AttentionShape shape;
  shape.num_nodes = 64;
  const auto new_values = [&](const Mask& mask) {
    return candidate(plan_attention(mask, shape, {}), Engine::mask).value_multiply_adds > 0;
  };
  const at::Tensor f = at::ones({4});
  EXPECT_FALSE(new_values(GrfMask(graph, {}, f)));
  const GrfMask learned(graph, {}, f.clone().requires_grad_());
  EXPECT_TRUE(new_values(learned));
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(new_values(learned));
}

TEST(CostModel, RatesArePerThreadOnACpu) {
  const int before = num_threads();
  const MaskProfile mask = hub_profile();
  AttentionShape shape;
  shape.num_nodes = mask.num_nodes;
  DeviceRates rates = numbered(1e6);
  rates.call = 0.25;
  set_num_threads(1);
  const AttentionPlan one = plan_attention(mask, shape, {}, rates);
  set_num_threads(2);
  const AttentionPlan two = plan_attention(mask, shape, {}, rates);
  set_num_threads(before);
  for (const Engine engine : {Engine::mask, Engine::feature, Engine::dense}) {
    EXPECT_GT(candidate(two, engine).predicted_cost, rates.call);
    EXPECT_LT(candidate(two, engine).predicted_cost, candidate(one, engine).predicted_cost);
  }
  EXPECT_EQ(one.engine, two.engine);
}

TEST(CostModel, FeaturesByColumnsAreCountedFromTheFactors) {
  MaskProfile mask = hub_profile();
  AttentionShape shape;
  shape.batch = 3;
  shape.heads = 2;
  shape.num_nodes = mask.num_nodes;
  shape.d = 32;
  shape.d_v = 16;
  const auto work = [&] { return candidate(plan_attention(mask, shape, {}), Engine::feature).multiply_adds; };
  mask.value_multiply_adds = 1e9;  // hubs: by state
  EXPECT_EQ(work(), 3.0 * 2 * 200000 * 32 * 17);
  mask.value_multiply_adds = 1e5;  // short columns: by pair
  EXPECT_EQ(work(), 3.0 * 2 * 1e5 * (32 + 17));
  mask.pattern_per_head = true;  // entries are then those of both heads
  EXPECT_EQ(work(), 3.0 * 1e5 * (32 + 17));
}

}  // namespace
}  // namespace topomask
