#include "io/safetensors_header.h"

#include "support/expect_edges.h"

namespace topomask {
namespace {

using namespace topomask::testing;

std::string file_of(const std::string& json, std::size_t data_bytes) {
  std::string content;
  for (int byte = 0; byte < 8; ++byte) content += static_cast<char>(json.size() >> (8 * byte) & 0xFF);
  return content + json + std::string(data_bytes, 'x');
}

std::string entry(const char* dtype, const char* shape, const char* offsets) {
  return std::string(R"({"dtype":")") + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}";
}

void rejects(const std::string& json, std::size_t data_bytes, std::initializer_list<const char*> parts) {
  expect_rejected(parse_safetensors, file_of(json, data_bytes), parts);
}

TEST(safetensors_header, reads_entries_and_metadata) {
  const auto header = parse_safetensors(
      file_of("{\"__metadata__\":{\"format\":\"pt\"},\"a\":" + entry("F32", "[2,3]", "[2,26]") + ",\"b\":" +
                  entry("BF16", "[]", "[0,2]") + ",\"none\":" + entry("F64", "[0,4]", "[26,26]") + "}   ",
              26),
      "file");
  EXPECT_EQ(header.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  ASSERT_EQ(header.entries.size(), 3u);
  EXPECT_EQ(header.entries.at("a").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(header.entries.at("a").begin, 2u);
  EXPECT_EQ(header.entries.at("b").dtype, "BF16");
  EXPECT_TRUE(header.entries.at("b").shape.empty());
}

TEST(safetensors_header, what_is_written_is_read_again) {
  SafetensorsHeader header;
  header.entries["layer.0.\"weight\"\n"] = {"F32", {2}, 0, 8};
  header.entries["ü"] = {"U8", {1, 3}, 8, 11};
  header.metadata["note"] = "two\nlines";
  const std::string text = format_safetensors_header(header);
  EXPECT_EQ(text.size() % 8, 0u);
  const auto again = parse_safetensors(text + std::string(11, 'x'), "file");
  EXPECT_EQ(again.metadata, header.metadata);
  ASSERT_EQ(again.entries.size(), 2u);
  EXPECT_EQ(again.entries.at("ü").end, 11u);
  expect_error([] { format_safetensors_header({{}, {{"note", "\xFF"}}}); }, {"UTF-8"});
  expect_error(
      [] {
        format_safetensors_header({{{"__metadata__", {"U8", {0}, 0, 0}}}, {}});
      },
      {"__metadata__"});
}

TEST(safetensors_header, rejects_files_that_are_none) {
  expect_rejected(parse_safetensors, "", {"0 bytes"});
  expect_rejected(parse_safetensors, "1234567", {"7 bytes"});
  expect_rejected(parse_safetensors, binary_garbage(), {"announce a header"});
  expect_rejected(parse_safetensors, std::string(8, '\xFF'), {"18446744073709551615"});
  expect_rejected(parse_safetensors, std::string(8, '\0'), {"JSON"});
  rejects("[]", 0, {"JSON object"});
  rejects("{", 0, {"JSON object"});
  rejects("{}", 1, {"0 bytes", "1 bytes"});
  rejects(std::string(5000, '[') + std::string(5000, ']'), 0, {"nested"});
  rejects(R"({"a":1})", 0, {"'a'"});
  rejects(R"({"a":{"dtype":"F32"}})", 0, {"'a'", "data_offsets"});
  rejects(R"({"__metadata__":{"k":1}})", 0, {"'k'"});
  rejects("{\"\\u0007\":" + entry("F31", "[0]", "[0,0]") + "}", 0, {"'?'", "'F31'"});
}

TEST(safetensors_header, rejects_sizes_that_the_file_does_not_hold) {
  const auto one = [](const std::string& tensor) { return "{\"a\":" + tensor + "}"; };
  rejects(one(entry("F32", "[2]", "[0,4]")), 4, {"'a'", "[2]", "4 bytes"});
  rejects(one(entry("F32", "[2]", "[0,8]")), 4, {"bytes 0 to 8", "4 bytes"});
  rejects(one(entry("F32", "[1]", "[4,0]")), 4, {"bytes 4 to 0"});
  rejects(one(entry("F32", "[-1]", "[0,4]")), 4, {"shape"});
  rejects(one(entry("F32", "[1.0]", "[0,4]")), 4, {"shape"});
  rejects(one(entry("F32", "[1]", "[0]")), 4, {"two data_offsets"});
  rejects(one(entry("F32", "[18446744073709551615]", "[0,4]")), 4, {"shape"});
  rejects(one(entry("F32", "[4611686018427387904,4]", "[0,0]")), 0, {"4611686018427387904"});
  rejects(one(entry("F32", "[0,4611686018427387904,4]", "[0,0]")), 0, {"4611686018427387904"});
}

TEST(safetensors_header, rejects_gaps_overlaps_and_doubles) {
  const auto two = [](const char* name, const std::string& a, const std::string& b) {
    return "{\"a\":" + a + ",\"" + name + "\":" + b + "}";
  };
  const std::string first = entry("U8", "[2]", "[0,2]");
  rejects(two("b", first, entry("U8", "[2]", "[1,3]")), 3, {"byte 1"});
  rejects(two("b", first, entry("U8", "[1]", "[3,4]")), 4, {"byte 2"});
  rejects(two("b", first, entry("U8", "[1]", "[2,3]")), 4, {"3 bytes", "4 bytes"});
  rejects(two("a", first, entry("U8", "[0]", "[2,2]")), 2, {"two tensors named 'a'"});
}

}  // namespace
}  // namespace topomask
