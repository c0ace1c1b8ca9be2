// Files of a data set that somebody damaged or made up: one sentence each, whatever is wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/files.h"
#include "io/safetensors_header.h"
#include "stored.h"
#include "support/expect_error.h"

namespace topomask::testing {
namespace {

using nlohmann::json;

// An episode's file in parts, which may be changed one by one.
struct StatesFile {
  struct Part {
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::string bytes;
  };
  std::map<std::string, Part> parts;
  std::map<std::string, std::string> notes;

  explicit StatesFile(const std::string& content) {
    const SafetensorsHeader header = parse_safetensors(content, "stored");
    std::uint64_t size = 0;
    for (const auto& [name, entry] : header.entries) size = std::max(size, entry.end);
    const std::string data = content.substr(content.size() - size);
    for (const auto& [name, entry] : header.entries)
      parts[name] = {entry.dtype, entry.shape, data.substr(entry.begin, entry.end - entry.begin)};
    notes = header.metadata;
  }
  std::string bytes() const {
    SafetensorsHeader header;
    header.metadata = notes;
    std::string data;
    for (const auto& [name, part] : parts) {
      header.entries[name] = {part.dtype, part.shape, data.size(), data.size() + part.bytes.size()};
      data += part.bytes;
    }
    return format_safetensors_header(header) + data;
  }
  template <class Value>
  void put(const std::string& name, std::size_t index, Value value) {
    std::string& bytes = parts.at(name).bytes;
    ASSERT_LE((index + 1) * sizeof value, bytes.size()) << name;
    std::memcpy(&bytes[index * sizeof value], &value, sizeof value);
  }
};

const StatesFile& stored_file() {
  static const StatesFile file(format_robot_episode(stored_episode(RobotTask::lift_can)));
  return file;
}

void expect_refused(const std::function<void(StatesFile&)>& change,
                    std::initializer_list<const char*> parts) {
  StatesFile file = stored_file();
  change(file);
  expect_error([&] { parse_robot_episode(file.bytes(), "made.safetensors"); }, parts);
}

TEST(HostileStates, AreTakenAsTheyWere) {
  const RobotEpisode episode = parse_robot_episode(stored_file().bytes(), "same");
  EXPECT_EQ(format_robot_episode(episode), format_robot_episode(stored_episode(RobotTask::lift_can)));
}

TEST(HostileStates, CutAnywhere) {
  const std::string good = format_robot_episode(stored_episode(RobotTask::lift_can));
  for (std::size_t size = 0; size < good.size(); size += size < 64 ? 1 : 211)
    expect_error([&] { parse_robot_episode(std::string_view(good).substr(0, size), "made.safetensors"); },
                 "made.safetensors");
  expect_error([&] { parse_robot_episode(good + '\0', "made.safetensors"); }, "made.safetensors");
}

// As many bytes as before, but of another type, another shape, or under another name.
TEST(HostileStates, TensorsOfOtherKinds) {
  for (const auto& [name, part] : stored_file().parts) {
    SCOPED_TRACE(name);
    const std::string key = name;
    const std::string other = part.dtype == "F32" ? "I32" : part.dtype == "I32" ? "F32" : "I8";
    expect_refused([&](StatesFile& file) { file.parts[key].dtype = other; },
                   {"made.safetensors", "expected tensor", key.c_str(), other.c_str()});
    expect_refused([&](StatesFile& file) { file.parts[key].shape.push_back(1); },
                   {"expected tensor", key.c_str()});
    expect_refused([&](StatesFile& file) { file.parts[key].shape.insert(file.parts[key].shape.begin(), 1); },
                   {"made.safetensors"});
    expect_refused([&](StatesFile& file) { file.parts.erase(key); }, {key.c_str(), "is missing"});
    expect_refused(
        [&](StatesFile& file) {
          file.parts[key].bytes.clear();
          file.parts[key].shape.assign(file.parts[key].shape.size(), 0);
        },
        {"made.safetensors"});
  }
  expect_refused([](StatesFile& file) { file.parts["body.position"].shape = {}; }, {"body.position"});
}

// Shapes that promise more than there is, or that no memory could hold.
TEST(HostileStates, HugeCounts) {
  for (const std::int64_t count : {std::int64_t{1} << 20, (std::int64_t{1} << 20) + 1, std::int64_t{1} << 31,
                                   std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::max()}) {
    for (const auto& [name, part] : stored_file().parts) {
      for (std::size_t axis = 0; axis < part.shape.size(); ++axis) {
        SCOPED_TRACE(name);
        const std::string key = name;
        expect_refused([&](StatesFile& file) { file.parts[key].shape[axis] = count; }, {"made.safetensors"});
        // Beside a zero, the bytes would be right.
        expect_refused(
            [&](StatesFile& file) {
              StatesFile::Part& changed = file.parts[key];
              changed.bytes.clear();
              changed.shape.assign(changed.shape.size(), 0);
              changed.shape[axis] = count;
              if (changed.shape.size() == 1) changed.shape.push_back(0);
            },
            {"made.safetensors"});
      }
    }
  }
  expect_refused(
      [](StatesFile& file) {
        file.parts["body.position"].shape = {0, (std::int64_t{1} << 20) + 1, 3};
        file.parts["body.position"].bytes.clear();
      },
      {"tensor 'body.position' is too large"});
}

TEST(HostileStates, NumbersThatCannotBe) {
  for (const float number : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity(), 1e30f, -2000.f}) {
    for (const auto& [name, part] : stored_file().parts) {
      if (part.dtype != "F32") continue;
      SCOPED_TRACE(name);
      const std::string key = name;
      const std::size_t count = part.bytes.size() / sizeof number;
      for (const std::size_t index : {std::size_t{0}, count / 2, count - 1})
        expect_refused([&](StatesFile& file) { file.put(key, index, number); }, {"made.safetensors"});
    }
  }
  expect_refused([](StatesFile& file) { file.put("body.rotation", 4, 0.f); },
                 {"a quaternion whose length is not 1"});
  expect_refused([](StatesFile& file) { file.put("shape.rotation", 0, 2.f); }, {"a shape has sizes, a pose"});
  expect_refused([](StatesFile& file) { file.put("shape.size", 0, 0.f); }, {"a shape has sizes"});
  expect_refused([](StatesFile& file) { file.put("camera.field_of_view", 0, 0.f); }, {"a camera has a pose"});
  for (const std::int32_t body :
       {-1, 24, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min()})
    expect_refused([&](StatesFile& file) { file.put("shape.body", 2, body); },
                   {"a shape belongs to body", "of 24"});
  for (const char* name : {"shape.kind", "shape.part", "shape.pattern"})
    for (const std::uint8_t value : {std::uint8_t{9}, std::uint8_t{255}})
      expect_refused([&](StatesFile& file) { file.put(name, 1, value); }, {"a shape is of an unknown kind"});
}

TEST(HostileStates, NotesThatCannotBe) {
  const auto noted = [](const char* key, const char* value) {
    return [=](StatesFile& file) { file.notes[key] = value; };
  };
  for (const char* key : {"number", "seed", "attempts", "measure"}) {
    for (const char* value : {"", "x", "1 ", "0x10", "1e999", "99999999999999999999"}) {
      if (key == std::string("measure") && value == std::string("99999999999999999999")) continue;
      expect_refused(noted(key, value), {"made.safetensors", "expected a number as", key});
    }
    expect_refused([&](StatesFile& file) { file.notes.erase(key); }, {"expected a number as", key, "got ''"});
  }
  expect_refused(noted("seed", "-1"), {"expected a number as 'seed'"});
  expect_refused(noted("attempts", "9999999999"), {"expected a number as 'attempts'"});
  for (const char* value : {"nan", "inf", "-inf"})
    expect_refused(noted("measure", value), {"the measure is not a finite number"});
  expect_refused(noted("task", "sweep\nlift-can"), {"unknown task 'sweep\\x0alift-can'"});
  expect_refused(noted("task", std::string(5000, 'x').c_str()), {"unknown task 'xxx", "...'"});
  expect_refused(noted("format", "two\nlines"), {"is no episode of the robot", "got 'two\\x0alines'"});
  expect_refused([](StatesFile& file) { file.notes.clear(); }, {"is no episode of the robot", "got ''"});
}

const json& stored_index() {
  static const json index = json::parse(read_file(kStates + "/index.json"));
  return index;
}

void expect_index_refused(const std::string& text, std::initializer_list<const char*> parts = {"made.json"}) {
  expect_error(
      [&] {
        try {
          robot::parse_robot_index(text, "made.json");
        } catch (const Error& error) {
          EXPECT_LT(std::string(error.what()).size(), 400u);
          throw;
        }
      },
      parts);
}

TEST(HostileIndex, CutAnywhere) {
  const std::string good = read_file(kStates + "/index.json");
  ASSERT_TRUE(good.ends_with("}\n"));
  for (std::size_t size = 0; size + 1 < good.size(); ++size) expect_index_refused(good.substr(0, size));
  expect_index_refused(good + "}");
  expect_index_refused(good.substr(0, 40) + '\0' + good.substr(40));
  expect_index_refused(good.substr(0, 40) + "\xff" + good.substr(40), {"it is not JSON"});
  expect_index_refused(std::string(100000, '['), {"it is not JSON"});
  expect_index_refused(std::string(100000, '[') + std::string(100000, ']'),
                       {"is no index of robot episodes"});
}

// Values of every other kind, in place of each value.
TEST(HostileIndex, ValuesOfOtherKinds) {
  const json candidates = json::array({nullptr, "text", "", true, -1, 1.5, 1e300, 18446744073709551615u,
                                       json::array(), json::object(), json::array({1, 2}),
                                       std::string(100000, 'x'), json(std::vector<int>(10000, 7))});
  const auto may_be = [](const std::string& key, const json& value) {
    if (key == "complete" || key == "success") return value.is_boolean();
    if (key == "measure") return value.is_number();
    if (key == "seed") return value.is_number_unsigned();
    return key == "episodes" && value == json::array();
  };
  for (const auto& [key, ignored] : stored_index().items()) {
    if (key == "seconds_per_frame") continue;  // is for people
    json missing = stored_index();
    missing.erase(key);
    expect_index_refused(missing.dump());
    for (const json& candidate : candidates) {
      if (may_be(key, candidate)) continue;
      SCOPED_TRACE(key);
      json changed = stored_index();
      changed[key] = candidate;
      expect_index_refused(changed.dump());
    }
  }
  for (const auto& [key, ignored] : stored_index()["episodes"][0].items()) {
    json missing = stored_index();
    missing["episodes"][1].erase(key);
    expect_index_refused(missing.dump(), {"made.json", key.c_str(), "is missing"});
    for (const json& candidate : candidates) {
      if (may_be(key, candidate)) continue;
      SCOPED_TRACE(key);
      json changed = stored_index();
      changed["episodes"][1][key] = candidate;
      expect_index_refused(changed.dump());
    }
  }
  for (const json& candidate : candidates) {
    json changed = stored_index();
    changed["episodes"][2] = candidate;
    expect_index_refused(changed.dump());
  }
}

TEST(HostileIndex, CountsThatCannotBe) {
  const auto with = [](const char* key, std::uint64_t count) {
    json changed = stored_index();
    changed[key] = count;
    return changed.dump();
  };
  expect_index_refused(with("frames", 1001), {"frames must be 2 to 1000, got 1001"});
  expect_index_refused(with("cameras", 9), {"cameras must be 1 to 8, got 9"});
  expect_index_refused(with("cameras", 0), {"cameras must be 1 to 8, got 0"});
  expect_index_refused(with("size", 4097), {"size must be 8 to 4096, got 4097"});
  expect_index_refused(with("frames", std::uint64_t{1} << 31),
                       {"expected a whole number from 0 as 'frames', got 2147483648"});
  // The same episode a thousand times would be read as often.
  json repeated = stored_index();
  for (int i = 0; i < 1000; ++i) repeated["episodes"].push_back(repeated["episodes"][0]);
  expect_index_refused(repeated.dump(), {"lists 'sweep-000000.safetensors' twice"});
}

TEST(HostileIndex, FilesElsewhere) {
  for (const char* file :
       {"", ".", "..", "../sweep-000000.safetensors", "/etc/passwd", "a/sweep-000000.safetensors",
        "./sweep-000000.safetensors", "sweep-000001.safetensors", "sweep-000000.safetensors\n"}) {
    json changed = stored_index();
    changed["episodes"][0]["file"] = file;
    expect_index_refused(changed.dump(),
                         {"expected a file of its folder, 'sweep-000000.safetensors' for this episode"});
  }
  json changed = stored_index();
  changed["episodes"][0]["task"] = "two\nlines";
  expect_index_refused(changed.dump(), {"unknown task 'two\\x0alines'"});
}

}  // namespace
}  // namespace topomask::testing
