// Every mistake is one sentence on stderr, nothing on stdout, and exit status 2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "run_program.h"

namespace topomask::testing {
namespace {

struct BadFile {
  std::string name, content, message_part;
};

class BadFiles : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadFiles, AreOneSentence) {
  const TemporaryDirectory scratch;
  const std::string file = scratch.write(GetParam().name, GetParam().content);
  expect_rejected({"graph", "--graph", file}, GetParam().message_part);
}

const std::string kMatrixHeader = "%%MatrixMarket matrix coordinate real general\n";
const std::string kBinary("\x00\x01\xfe\xff\x7f\x45\x00\x10\x80\x00", 10);

INSTANTIATE_TEST_SUITE_P(
    Kinds, BadFiles,
    ::testing::Values(
        BadFile{"truncated.mtx", kMatrixHeader + "3 3 4\n1 2 1.0\n2 3 1.0\n", "truncated.mtx"},
        BadFile{"truncated.npz", std::string("PK\x03\x04\x14\x00", 6), "truncated.npz"},
        BadFile{"truncated.txt.gz", std::string("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x4b", 11),
                "truncated.txt.gz"},
        BadFile{"binary.txt", kBinary, "binary.txt"}, BadFile{"binary.npz", kBinary, "binary.npz"},
        BadFile{"empty.txt", "", "empty.txt"}, BadFile{"empty.mtx", "", "empty.mtx"},
        BadFile{"empty.npz", "", "empty.npz"},
        BadFile{"huge.mtx", kMatrixHeader + "99999999999 99999999999 99999999999\n", "huge.mtx"},
        BadFile{"huge.ply",
                "ply\nformat binary_little_endian 1.0\nelement vertex 9000000000000\n"
                "property float x\nend_header\n",
                "huge.ply"},
        BadFile{"negative.txt", "0 1\n-1 2\n", "negative.txt"},
        BadFile{"negative.mtx", kMatrixHeader + "3 3 1\n-1 2 1.0\n", "negative.mtx"},
        BadFile{"nan.mtx", kMatrixHeader + "3 3 1\n1 2 nan\n", "nan.mtx"},
        BadFile{"nan.txt", "0 1 nan\n1 2 1\n", "nan.txt"},
        BadFile{"rectangle.mtx", kMatrixHeader + "3 4 1\n1 2 1.0\n", "square"},
        BadFile{"edges.mtz", "0 1\n", "did you mean"}),
    [](const auto& test) {
      std::string name = test.param.name;
      std::replace(name.begin(), name.end(), '.', '_');
      return name;
    });

TEST(BadArguments, MissingFile) {
  expect_rejected({"graph", "--graph", "/nonexistent/graph.mtx"}, "/nonexistent/graph.mtx");
}

TEST(BadArguments, ValuesOfAnotherType) {
  expect_rejected({"simulate", "robot", "--out", "x", "--episodes", "nan"},
                  "--episodes: expected a whole number, got 'nan'");
  expect_rejected({"simulate", "robot", "--out", "x", "--frames", "99999999999999999999"},
                  "--frames: 99999999999999999999 is too large");
  expect_rejected({"graph", "--graph", "karate", "--p-halt", "much"},
                  "--p-halt: expected a number, got 'much'");
}

TEST(BadArguments, OptionsOfAttentionWithoutEffect) {
  const std::vector<std::string> attend = {"attend", "--graph", "path:4", "--print-plan", "--q",
                                           "q.npy",  "--k",     "k.npy",  "--v",          "v.npy"};
  const auto rejected = [&](std::vector<std::string> more, const std::string& message) {
    more.insert(more.begin(), attend.begin(), attend.end());
    expect_rejected(more, message);
  };
  rejected({"--kind", "softmax", "--feature-map", "favor"},
           "--feature-map: has no effect; it is for --kind linear");
  rejected({"--num-features", "3"}, "--num-features: has no effect; it is for --feature-map favor");
  rejected({"--feature-map", "elu1", "--epsilon", "1"},
           "--epsilon: has no effect; it is for --feature-map relu and squared-relu");
}

// The process works in a folder of its own while this lives.
class InScratchFolder {
 public:
  InScratchFolder() : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(scratch_.path(""));
  }
  ~InScratchFolder() { std::filesystem::current_path(before_); }
  InScratchFolder(const InScratchFolder&) = delete;
  InScratchFolder& operator=(const InScratchFolder&) = delete;

 private:
  TemporaryDirectory scratch_;
  std::filesystem::path before_;
};

// A file may be called like an option: the message still means the file.
TEST(BadArguments, FilesCalledLikeOptions) {
  const InScratchFolder scratch;
  const std::vector<std::string> partition = {"partition", "--graph", "path:8", "--parts",
                                              "2",         "--out",   "parts"};
  EXPECT_EQ(run_program(partition).status, 0);
  expect_rejected(partition, "topomask: parts: holds a partition already");
  expect_rejected({"simulate", "robot", "--out", "frames", "--frames", "0"}, "topomask: --frames must be");
}

TEST(BadArguments, TwoResultsInOneFile) {
  const InScratchFolder scratch;
  const std::vector<std::string> features = {"features", "--graph", "path:4", "--out", "p.npz"};
  const auto rejected = [&](const char* flag, const std::string& file, const std::string& message) {
    std::vector<std::string> arguments = features;
    arguments.insert(arguments.end(), {flag, file});
    expect_rejected(arguments, message);
  };
  rejected("--out-keys", "./p.npz", "--out-keys: expected another file than --out, got './p.npz' for both");
  rejected("--out-keys", std::filesystem::current_path() / "p.npz", "--out-keys: expected another file");
  rejected("--out-ids", "p.npz", "--out-ids: expected another file than --out");
  EXPECT_FALSE(std::filesystem::exists("p.npz"));
}

TEST(BadArguments, HaltingProbability) {
  for (const std::string p_halt : {"-0.1", "1.5", "nan"}) {
    expect_rejected({"kernel-error", "--walks", "4", "--p-halt", p_halt}, "halt");
  }
  expect_rejected({"graph", "--graph", "karate", "--p-halt", "2"}, "halt");
  expect_rejected({"bench", "walks", "--graph", "path:4", "--p-halt", "2"}, "halt");
  expect_rejected({"plan", "--p-halt", "2"}, "halt");
}

TEST(BadArguments, NumbersOfTraining) {
  for (const std::string limit : {"nan", "-5"})
    for (const std::string kind : {"vit", "vivit", "particles"})
      expect_rejected({"train", kind, "--time-limit", limit},
                      "--time-limit: expected 0 seconds or more, got " + limit);
  expect_rejected({"experiment", "image-table", "--time-limit", "nan"}, "--time-limit: expected 0 seconds");
  expect_rejected({"train", "vit", "--checkpoint-seconds", "nan"},
                  "checkpoint-seconds must be 0 or more, got nan");
  expect_rejected({"train", "vit", "--learning-rate", "inf"},
                  "learning-rate must be positive and finite, got inf");
  expect_rejected({"train", "vit", "--initial-positions", "inf"},
                  "initial-positions must be finite, got inf");
  expect_rejected({"train", "vit", "--mask-every", "99999999999"}, "expected a whole number below 2^31");
  for (const std::string option : {"--batch", "--windows", "--rollout"})
    for (const std::string number : {"0", "-1"})
      expect_rejected({"eval", "--checkpoint", "a.safetensors", option, number},
                      option + ": expected 1 or more, got " + number);
}

TEST(BadArguments, NumberOfWalks) {
  expect_rejected({"kernel-error", "--walks", "0"}, "walks");
  expect_rejected({"kernel-error", "--walks", "4,-2"}, "walks");
  expect_rejected({"kernel-error", "--walks", "4,x"}, "'x'");
  expect_rejected({"kernel-error", "--walks", "4,"}, "--walks");
  expect_rejected({"kernel-error", "--walks", "3", "--coupling", "antithetic"}, "even");
  expect_rejected({"kernel-error", "--walks", "2,3", "--coupling", "both"}, "even");
  expect_rejected({"features", "--graph", "karate", "--out", "/dev/null", "--walks", "0"}, "walks");
  expect_rejected({"bench", "walks", "--graph", "path:4", "--walks", "0"}, "walks");
}

TEST(BadArguments, OtherNumbers) {
  expect_rejected({"kernel-error", "--max-hops", "-1"}, "hops");
  expect_rejected({"kernel-error", "--max-hops", "40000"}, "hops");
  expect_rejected({"kernel-error", "--trials", "0"}, "--trials");
  expect_rejected({"kernel-error", "--threads", "0"}, "threads");
  for (const std::string seed : {"abc", "-1", "18446744073709551616", "1.5"})
    expect_rejected({"kernel-error", "--seed=" + seed}, "--seed: expected a whole number between 0 and");
  expect_rejected({"kernel-error", "--length", "survival:1,0.5,0.7"});
  expect_rejected({"kernel-error", "--length", "survival:0.5,0.25"});
  expect_rejected({"bench", "walks", "--graph", "path:4", "--repeats", "0"}, "--repeats");
  expect_rejected({"bench", "walks", "--graph", "grid:0x4"}, "sizes of at least 1, got '0x4'");
  expect_rejected({"plan", "--error", "-1"}, "error");
  expect_rejected({"plan", "--confidence", "1.5"}, "confidence");
  expect_rejected({"plan", "--ranks", "2", "--link-bandwidth", "0"}, "more than 0 bytes per second");
  expect_rejected({"bench", "distributed", "--graph", "path:4"}, "--ranks: expected the number of ranks");
  for (const std::string ranks : {"0", "-1", "257"}) {
    expect_rejected({"bench", "distributed", "--graph", "path:4", "--ranks", ranks},
                    "--ranks: expected 1 to 256, got " + ranks);
    expect_rejected({"features", "--graph", "path:4", "--out", "/dev/null", "--ranks", ranks},
                    "--ranks: expected 1 to 256, got " + ranks);
    for (const std::string model : {"vit", "vivit", "particles"})
      expect_rejected({"train", model, "--ranks", ranks}, "--ranks: expected 1 to 256, got " + ranks);
  }
  for (const std::string ranks : {"0", "-1"})
    expect_rejected({"plan", "--ranks", ranks}, "--ranks: expected at least 1, got " + ranks);
  expect_rejected({"plan", "--ranks", "4097"}, "ranks must be from 1 to 4096, got 4097");
  expect_rejected({"plan", "--ranks", "1", "--heads", "9223372036854775807"}, "must be 1 to 1048576");
  for (const std::string number : {"inf", "nan", "-1"})
    expect_rejected({"plan", "--ranks", "2", "--link-bandwidth", number}, "more than 0 bytes per second");
  // Of an accuracy: ranks would ignore them.
  for (const std::vector<std::string>& option : std::vector<std::vector<std::string>>{
           {"--error", "0.1"}, {"--confidence", "0.9"}, {"--for", "all-entries"}, {"--kernel", "diffusion"}})
    expect_rejected({"plan", "--ranks", "2", option[0], option[1]}, "excludes");
}

// The library names its arguments, the program the flags that set them.
TEST(BadArguments, MessagesNameTheFlag) {
  expect_rejected({"kernel-error", "--p-halt", "2"}, "topomask: --p-halt must be between 0 and 1, got");
  expect_rejected({"kernel-error", "--walks", "0"}, "topomask: --walks must be between 1 and");
  expect_rejected({"kernel-error", "--length", "survival:0.5,0.25"},
                  "topomask: --length: the survival function");
  expect_rejected({"kernel-error", "--threads", "0"}, "topomask: --threads must be at least 1");
  expect_rejected({"plan", "--error", "-1"}, "topomask: --error must be positive, got");
  expect_rejected({"plan", "--m", "0"}, "topomask: --m: expected at least 1");
  expect_rejected({"experiment", "image-table", "--variants", "grfx"},
                  "topomask: --variants: unknown value 'grfx'");
  expect_rejected({"train", "vit", "--print-config", "--epochs", "0"},
                  "topomask: --epochs must be 1 or more");
  const std::vector<std::string> attend = {"attend", "--graph", "path:4", "--print-plan", "--q",
                                           "q.npy",  "--k",     "k.npy",  "--v",          "v.npy"};
  const auto reject = [&](std::vector<std::string> flags, const std::string& message) {
    flags.insert(flags.begin(), attend.begin(), attend.end());
    expect_rejected(flags, "topomask: " + message);
  };
  reject({"--p-halt", "x"}, "--p-halt: ");
  reject({"--f", "1,2,nan"}, "--f: expected a number, got 'nan'");
  reject({"--key-init", "1,inf"}, "--key-init: expected a number, got 'inf'");
  reject({"--f", "1,1,1,1,1,1,1,1,1,1,1,1"}, "--f: expected at most 11 numbers (hops 0 to 10), got 12");
  reject({"--mask", "neighbours", "--hops", "-1"}, "--hops must be at least 0, got -1");
}

TEST(BadArguments, FilesThatUnpackToTooMuch) {
  const TemporaryDirectory scratch;
  const std::string file = scratch.write("edges.txt", "0 1\n1 2\n2 3\n");
  expect_rejected({"graph", "--graph", file, "--max-file-size", "8"}, "max_file_size");
  expect_rejected({"graph", "--graph", file, "--max-file-size", "8XB"}, "max-file-size");
  EXPECT_EQ(run_json({"graph", "--graph", file, "--max-file-size", "1KB"})["nodes"], 4);
}

TEST(BadArguments, GraphsWithoutNodes) {
  const TemporaryDirectory scratch;
  const std::string file =
      scratch.write("nothing.mtx", "%%MatrixMarket matrix coordinate pattern general\n0 0 0\n");
  const ProgramResult result = run_program({"bench", "walks", "--graph", file});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("warning: " + file), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("has no nodes"), std::string::npos) << result.err;
}

// What can be read but is hardly meant is said on stderr; the result and the status stay as they are.
TEST(Warnings, GoToStderr) {
  const TemporaryDirectory scratch;
  const std::string file = scratch.write("cloud.obj", "v 0 0 0\nv 1 0 0\n");
  for (const std::string flag : {"--json", "--quiet"}) {
    const ProgramResult result = run_program({"graph", "--graph", file, flag});
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.err, "topomask: warning: " + file + ": 2 nodes and no edges (knn:" + file +
                              " joins near vertices)\n");
    EXPECT_EQ(result.out.empty(), flag == "--quiet");
  }
}

TEST(BadArguments, UnknownNamesSuggestTheNearest) {
  expect_rejected({"grpah", "--graph", "karate"}, "did you mean 'graph'?");
  expect_rejected({"graph", "--grap", "karate"}, "did you mean '--graph'?");
  expect_rejected({"graph", "--graph", "karate", "--normalize", "none"}, "did you mean '--normalise'?");
  expect_rejected({"graph", "--graph", "karate", "--normalise", "symetric"}, "did you mean 'symmetric'?");
  expect_rejected({"graph", "--graph", "grd:4x4"}, "did you mean 'grid");
  expect_rejected({"graph", "--graph", "karate", "--kernel", "difusion:sigma2=1"},
                  "did you mean 'diffusion'?");
  expect_rejected({"kernel-error", "--coupling", "repeling"}, "did you mean 'repelling'?");
  expect_rejected({"kernel-error", "--ensembles", "asymetric"}, "did you mean 'asymmetric'?");
  expect_rejected({"kernel-error", "--length", "geometrc"}, "did you mean 'geometric'?");
  expect_rejected({"bench", "walk"}, "did you mean 'walks'?");
}

TEST(BadArguments, MissingOnesAreNamed) {
  expect_rejected({});
  expect_rejected({"bench"});
  expect_rejected({"graph"}, "--graph");
  expect_rejected({"features", "--graph", "karate"}, "--out");
  expect_rejected({"graph", "--graph"}, "--graph");
  expect_rejected({"graph", "karate"}, "karate");
}

// Every option that takes a path: `words` hold "@" where it goes, and "%" for a place that can be written.
struct PathOption {
  std::string name;
  std::vector<std::string> words;
  std::string extension = "";
  bool empty_is_fine = false;
};

std::vector<std::string> with_path(const PathOption& option, const std::string& path,
                                   const TemporaryDirectory& scratch) {
  static int places = 0;
  std::vector<std::string> words = option.words;
  for (std::string& word : words) {
    const std::size_t at = word.find('@');
    if (at != std::string::npos) word.replace(at, 1, path);
    if (word == "%") word = scratch.path("place-" + std::to_string(++places));
  }
  return words;
}

std::string option_name(const ::testing::TestParamInfo<PathOption>& test) {
  return test.param.name;
}

class InputPaths : public ::testing::TestWithParam<PathOption> {};

TEST_P(InputPaths, OddFilesAreOneSentence) {
  const TemporaryDirectory scratch;
  const PathOption& option = GetParam();
  const auto reject = [&](const std::string& path) {
    expect_rejected(with_path(option, path, scratch), path);
  };
  reject(scratch.path("missing" + option.extension));
  const std::string folder = scratch.path("folder" + option.extension);
  std::filesystem::create_directory(folder);
  reject(folder);
  reject(scratch.write("binary" + option.extension, kBinary));
  reject(scratch.write("long" + option.extension, std::string(3000, '\xff')));
  if (!option.empty_is_fine) reject(scratch.write("empty" + option.extension, ""));
}

INSTANTIATE_TEST_SUITE_P(
    All, InputPaths,
    ::testing::Values(
        PathOption{"graph_text", {"graph", "--graph", "@"}, ".txt"},
        PathOption{"graph_npz", {"graph", "--graph", "@"}, ".npz"},
        PathOption{"graph_mtx_gz", {"graph", "--graph", "@"}, ".mtx.gz"},
        PathOption{"graph_ply_xz", {"graph", "--graph", "@"}, ".ply.xz"},
        PathOption{"graph_knn", {"graph", "--graph", "knn:@,3"}, ".npy"},
        PathOption{"features", {"features", "--out", "/dev/null", "--graph", "@"}, ".mtx"},
        PathOption{"plan", {"plan", "--graph", "@"}, ".gml"},
        PathOption{"attend_q",
                   {"attend", "--graph", "path:4", "--print-plan", "--q", "@", "--k", "@", "--v", "@"},
                   ".npy"},
        PathOption{"attend_parameters",
                   {"attend", "--graph", "path:4", "--print-plan", "--parameters", "@", "--q", "@", "--k",
                    "@", "--v", "@"},
                   ".safetensors"},
        PathOption{"bench_attention", {"bench", "attention", "--graph", "@"}, ".obj"},
        PathOption{"train_config", {"train", "vit", "--print-config", "--config", "@"}, ".toml", true},
        PathOption{"table_config",
                   {"experiment", "image-table", "--out", "%", "--config", "@"},
                   ".toml",
                   /*empty_is_fine=*/true},
        PathOption{"train_cifar", {"train", "vit", "--out", "%", "--data", "cifar10:@"}},
        PathOption{"train_idx", {"train", "vit", "--out", "%", "--data", "idx:@"}},
        PathOption{"train_folder", {"train", "vit", "--out", "%", "--data", "folder:@"}},
        PathOption{"eval", {"eval", "--checkpoint", "@"}, ".safetensors"},
        PathOption{"report", {"report", "@"}}),
    option_name);

class OutputFiles : public ::testing::TestWithParam<PathOption> {};

TEST_P(OutputFiles, OddPlacesAreOneSentence) {
  const TemporaryDirectory scratch;
  const PathOption& option = GetParam();
  const std::string folder = scratch.path("folder"), file = scratch.write("file", "");
  std::filesystem::create_directory(folder);
  for (const std::string& path :
       {folder, scratch.path("missing/file"), file + "/below", std::string("/dev/full")})
    expect_rejected(with_path(option, path, scratch), path);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

INSTANTIATE_TEST_SUITE_P(
    All, OutputFiles,
    ::testing::Values(PathOption{"features", {"features", "--graph", "karate", "--out", "@"}},
                      PathOption{"features_keys",
                                 {"features", "--graph", "karate", "--out", "%", "--ensembles", "independent",
                                  "--out-keys", "@"}},
                      PathOption{"node_ids", {"graph", "--graph", "karate", "--out-ids", "@"}}),
    option_name);

class OutputFolders : public ::testing::TestWithParam<PathOption> {};

TEST_P(OutputFolders, OddPlacesAreOneSentence) {
  const TemporaryDirectory scratch;
  const PathOption& option = GetParam();
  const std::string file = scratch.write("file", "");
  for (const std::string& path : {file, file + "/below", std::string("/dev/null/below")})
    expect_rejected(with_path(option, path, scratch), path);
}

const std::vector<std::string> kTinyRun = {
    "--data", "strokes:16,train=20,val=20", "--layers", "1", "--embedding", "16", "--epochs", "1"};

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

INSTANTIATE_TEST_SUITE_P(
    All, OutputFolders,
    ::testing::Values(PathOption{"demo", {"demo", "--out", "@"}},
                      PathOption{"flops", {"flops", "--largest", "16", "--out", "@"}},
                      PathOption{"train", joined({"train", "vit", "--out", "@"}, kTinyRun)},
                      PathOption{"table", joined({"experiment", "image-table", "--out", "@"}, kTinyRun)}),
    option_name);

// A run's folder as `train vit` leaves it, without the files that a report can do without.
class RunFolder {
 public:
  RunFolder() { write(result_); }

  nlohmann::json result() const { return result_; }
  void write(const nlohmann::json& result) const { scratch_.write("result.json", result.dump()); }
  std::string path(const std::string& name) const { return scratch_.path(name); }
  std::string folder() const { return scratch_.path(""); }

 private:
  TemporaryDirectory scratch_;
  nlohmann::json result_ = {{"attention", "grf"},
                            {"seed", 0},
                            {"data", "strokes"},
                            {"accuracy", 0.5},
                            {"loss", 1.5},
                            {"best_accuracy", 0.5},
                            {"best_epoch", 1},
                            {"steps", 10},
                            {"seconds", 2.5},
                            {"validation_images", 10},
                            {"training_images", 100},
                            {"epochs", 1},
                            {"parameters", 1000},
                            {"epoch_seconds", 1.5},
                            {"images_per_second", 100.0},
                            {"data_share", 0.1},
                            {"device", "cpu"},
                            {"grid", {4, 4}},
                            {"patch", 2},
                            {"layers", 1},
                            {"heads", 1},
                            {"classes", {"a", "b"}},
                            {"modulation", {{{1.0, 0.5}}}}};
};

TEST(BadRunFolder, EveryOddKeyOfAResultIsNamed) {
  const RunFolder run;
  const auto good = run_program({"report", run.folder()});
  ASSERT_EQ(good.status, 0) << good.err;
  const nlohmann::json complete = run.result();
  for (const auto& [key, value] : complete.items()) {
    nlohmann::json result = complete;
    if (key != "data_share" && key != "modulation") {
      result.erase(key);
      run.write(result);
      expect_rejected({"report", run.folder()}, "'" + key + "'");
    }
    // A list of an object is what no key takes.
    result[key] = {{{"odd", nullptr}}};
    run.write(result);
    expect_rejected({"report", run.folder()}, "'" + key + "'");
  }
  for (const char* text : {"", "[]", "{\"accuracy\":", "null"}) {
    std::ofstream(run.path("result.json")) << text;
    expect_rejected({"report", run.folder()}, "result.json");
  }
}

TEST(BadRunFolder, SpoiltLinesOfMetricsAreLeftOut) {
  const RunFolder run;
  std::ofstream(run.path("metrics.jsonl"))
      << "{\"kind\":\"epoch\",\"accuracy\":0.5}\n"
         "{\"kind\":7,\"epoch\":1,\"accuracy\":0.5}\n"
         "{\"kind\":\"epoch\",\"epoch\":\"x\",\"accuracy\":0.5}\n"
         "[1]\n{\"kind\":\"epoch\",\"epoch\":2,\"accuracy\":0.75}\n{\"ki";
  const auto result = run_program({"report", run.folder()});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(read_whole_file(run.path("report.html")),
              ::testing::HasSubstr("{\"epoch\":[2],\"mean\":[0.75]"));
}

TEST(BadRunFolder, OddTensorsAreNamed) {
  const RunFolder run;
  std::ofstream(run.path("config.toml")) << "";
  for (const char* name : {"masks.safetensors", "examples.safetensors"}) {
    std::ofstream(run.path(name)) << kBinary;
    expect_rejected({"report", run.folder()}, name);
    std::filesystem::remove(run.path(name));
  }
  const auto write_tensor = [&](const char* file, const std::string& name, const std::string& type,
                                const std::string& shape, std::size_t bytes) {
    const std::string header = "{\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":[" + shape +
                               "],\"data_offsets\":[0," + std::to_string(bytes) + "]}}";
    const std::uint64_t length = header.size();
    std::ofstream(run.path(file), std::ios::binary)
        << std::string(reinterpret_cast<const char*>(&length), 8) << header << std::string(bytes, '\0');
  };
  write_tensor("masks.safetensors", "layer.0.used", "F32", "4", 16);
  expect_rejected({"report", run.folder()}, "'layer.0.used' has shape [4]");
  std::filesystem::remove(run.path("masks.safetensors"));
  write_tensor("examples.safetensors", "images", "F32", "1,1,2,2", 16);
  expect_rejected({"report", run.folder()}, "'images' is Float");
  write_tensor("examples.safetensors", "images", "U8", "1,1,2,2", 4);
  expect_rejected({"report", run.folder()}, "no tensor 'labels'");
}

// ulimit stands for a full disk: writing ends in the middle of a file.
TEST(FullDisk, LeavesNoHalfFiles) {
  const RunFolder run;
  const std::string command = "trap '' XFSZ; ulimit -f 16; '" TOPOMASK_PROGRAM "' report '" + run.folder() +
                              "' 2> '" + run.path("errors") + "'";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_THAT(read_whole_file(run.path("errors")), ::testing::HasSubstr("cannot write"));
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(run.folder()))
    names.push_back(entry.path().filename().string());
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("result.json", "errors"));
}

TEST(BadArguments, PlacesThatCannotBeWritten) {
  const RunFolder run;
  for (const char* path : {"/nonexistent/page.html", "/dev/full"})
    expect_rejected({"report", run.folder(), "--out", path}, path);
}

TEST(Help, NamesEveryGenerator) {
  const auto result = run_program({"graph", "--help"});
  for (const char* form : {"karate", "torus:N,K", "knn:FILE", "symmetric", "tree:DEPTH[,BRANCHING]"})
    EXPECT_THAT(result.out, ::testing::HasSubstr(form));
}

}  // namespace
}  // namespace topomask::testing
