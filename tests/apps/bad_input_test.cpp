// Every mistake is one sentence on stderr, nothing on stdout, and exit status 2.
#include <gtest/gtest.h>

#include <algorithm>

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

TEST(BadArguments, HaltingProbability) {
  for (const std::string p_halt : {"-0.1", "1.5", "nan"}) {
    expect_rejected({"kernel-error", "--walks", "4", "--p-halt", p_halt}, "halt");
  }
  expect_rejected({"graph", "--graph", "karate", "--p-halt", "2"}, "halt");
  expect_rejected({"bench", "walks", "--graph", "path:4", "--p-halt", "2"}, "halt");
  expect_rejected({"plan", "--p-halt", "2"}, "halt");
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
  expect_rejected({"kernel-error", "--seed", "abc"}, "--seed");
  expect_rejected({"kernel-error", "--length", "survival:1,0.5,0.7"});
  expect_rejected({"kernel-error", "--length", "survival:0.5,0.25"});
  expect_rejected({"bench", "walks", "--graph", "path:4", "--repeats", "0"}, "--repeats");
  expect_rejected({"bench", "walks", "--graph", "grid:0x4"}, "at least 1 for an extent");
  expect_rejected({"plan", "--error", "-1"}, "error");
  expect_rejected({"plan", "--confidence", "1.5"}, "confidence");
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

TEST(BadArguments, PlacesThatCannotBeWritten) {
  expect_rejected({"features", "--graph", "karate", "--out", "/nonexistent/phi.npz"}, "/nonexistent/phi.npz");
  expect_rejected({"graph", "--graph", "karate", "--out-ids", "/nonexistent/ids"}, "/nonexistent/ids");
  expect_rejected({"demo", "--out", "/dev/null/demo"}, "/dev/null/demo");
}

}  // namespace
}  // namespace topomask::testing
