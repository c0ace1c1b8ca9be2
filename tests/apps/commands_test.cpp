// Every subcommand on a small input: exit status, the keys of its JSON and the values that are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "archives.h"
#include "provenance.h"
#include "run_program.h"

namespace topomask::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(Help, EveryCommandExplainsItselfWithExamples) {
  const std::vector<std::vector<std::string>> commands = {{},
                                                          {"graph"},
                                                          {"features"},
                                                          {"kernel-error"},
                                                          {"plan"},
                                                          {"calibrate"},
                                                          {"partition"},
                                                          {"attend"},
                                                          {"flops"},
                                                          {"bench"},
                                                          {"bench", "walks"},
                                                          {"bench", "attention"},
                                                          {"bench", "points"},
                                                          {"bench", "planner"},
                                                          {"bench", "tokens"},
                                                          {"demo"},
                                                          {"train"},
                                                          {"train", "vit"},
                                                          {"eval"},
                                                          {"experiment"},
                                                          {"experiment", "image-table"},
                                                          {"report"}};
  for (std::vector<std::string> arguments : commands) {
    arguments.emplace_back("--help");
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.err, "");
    ASSERT_THAT(result.out, HasSubstr("Example"));
    // Its own: a command without examples would show those of the command above it.
    std::string name = "  topomask";
    for (std::size_t i = 0; i + 1 < arguments.size(); ++i) name += " " + arguments[i];
    EXPECT_THAT(result.out.substr(result.out.find("Example")), HasSubstr(name));
  }
}

TEST(Version, IsPrinted) {
  const ProgramResult result = run_program({"--version"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out,
              ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+( \\([0-9a-f]+(\\+changes)?\\))?\n"));
}

TEST(GraphCommand, DescribesTheKarateClub) {
  const json graph = run_json({"graph", "--graph", "karate"});
  EXPECT_EQ(graph["nodes"], 34);
  EXPECT_EQ(graph["edges"], 78);
  EXPECT_EQ(graph["directed"], false);
  EXPECT_EQ(graph["self_loops"], 0);
  EXPECT_EQ(graph["isolated"], 0);
  EXPECT_EQ(graph["components"], 1);
  EXPECT_EQ(graph["degree"]["min"], 1);
  EXPECT_EQ(graph["degree"]["max"], 17);
  EXPECT_DOUBLE_EQ(graph["degree"]["mean"].get<double>(), 2 * 78.0 / 34);
  EXPECT_EQ(graph["weight"]["min"], 1.0);
  EXPECT_EQ(graph["weight"]["max"], 1.0);
}

TEST(GraphCommand, COfACycleIsAGeometricSeries) {
  // Symmetric normalisation: |W_ij| d_i = 1, so r = 1 / (1 - p_halt) = 2, and f_k = 0.8 (0.2)^k for this
  // kernel.
  const json graph = run_json({"graph", "--graph", "cycle:8", "--kernel", "reg-laplacian:d=2,sigma2=0.25"});
  EXPECT_NEAR(graph["c"].get<double>(), 0.8 / (1 - 0.4), 1e-6);
  EXPECT_FALSE(graph.contains("c_advice"));
  const json truncated = run_json({"graph", "--graph", "cycle:8", "--max-hops", "1"});
  EXPECT_NEAR(truncated["c"].get<double>(), 0.8 * (1 + 0.4), 1e-6);
}

TEST(GraphCommand, InfiniteCIsNullAndComesWithAdvice) {
  const json graph = run_json({"graph", "--graph", "karate", "--normalise", "none"});
  EXPECT_TRUE(graph["c"].is_null());
  EXPECT_THAT(graph["c_advice"].get<std::string>(), HasSubstr("--normalise max-degree"));
  EXPECT_TRUE(run_json({"graph", "--graph", "karate", "--normalise", "max-degree"})["c"].is_number());
  EXPECT_TRUE(
      run_json({"graph", "--graph", "karate", "--normalise", "none", "--max-hops", "4"})["c"].is_number());
}

TEST(GraphCommand, PoliciesAndTheIdFile) {
  const TemporaryDirectory scratch;
  const std::string file = scratch.write("edges.txt", "10 20\n20 10\n20 20\n30 40\n10 50\n");
  const json kept =
      run_json({"graph", "--graph", file, "--direction", "undirected", "--out-ids", scratch.path("ids")});
  EXPECT_EQ(kept["nodes"], 5);
  EXPECT_EQ(kept["self_loops"], 1);
  EXPECT_EQ(kept["components"], 2);
  EXPECT_EQ(read_whole_file(scratch.path("ids")), "0\t10\n1\t20\n2\t30\n3\t40\n4\t50\n");
  const json dropped = run_json({"graph", "--graph", file, "--direction", "undirected", "--self-loops",
                                 "drop", "--components", "drop", "--duplicates", "sum"});
  EXPECT_EQ(dropped["nodes"], 3);
  EXPECT_EQ(dropped["self_loops"], 0);
  EXPECT_EQ(dropped["weight"]["max"], 2.0);
}

TEST(GraphCommand, TextIsAlignedAndQuietIsQuiet) {
  const ProgramResult text = run_program({"graph", "--graph", "path:3"});
  EXPECT_EQ(text.status, 0);
  EXPECT_THAT(text.out, HasSubstr("components      1\n"));
  EXPECT_EQ(run_program({"graph", "--graph", "path:3", "--quiet"}).out, "");
}

TEST(FeaturesCommand, ArchivesMultiplyToTheKernel) {
  const TemporaryDirectory scratch;
  const std::string phi_path = scratch.path("phi.npz"), psi_path = scratch.path("psi.npz");
  const json summary =
      run_json({"features", "--graph", "path:2", "--kernel", "coefficients:1,0.5", "--walks", "20000",
                "--ensembles", "asymmetric", "--seed", "3", "--out", phi_path, "--out-keys", psi_path});
  EXPECT_EQ(summary["nodes"], 2);
  EXPECT_EQ(summary["nonzeros"], 4);
  const DenseMatrix phi = read_csr(phi_path), psi = read_csr(psi_path);
  ASSERT_EQ(phi.rows, 2);
  ASSERT_EQ(phi.columns, 2);
  // Keys are the identity, so Phi is I + W / 2 itself. Its off-diagonal is 0.5 * 2 * Bernoulli(1/2), averaged
  // over the walks: one standard error is 0.5 / sqrt(n).
  const double standard_error = 0.5 / std::sqrt(20000.0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(psi(i, i), 1);
    EXPECT_EQ(psi(i, 1 - i), 0);
    EXPECT_NEAR(phi(i, i), 1, 1e-6);
    EXPECT_NEAR(phi(i, 1 - i), 0.5, 4 * standard_error);
  }
}

TEST(FeaturesCommand, SharedKeysEqualTheQueriesAndIndependentOnesDoNot) {
  const TemporaryDirectory scratch;
  const auto features = [&](const std::string& ensembles) {
    run_json({"features", "--graph", "karate", "--walks", "4", "--ensembles", ensembles, "--out",
              scratch.path("phi.npz"), "--out-keys", scratch.path("psi.npz")});
    return std::pair(read_csr(scratch.path("phi.npz")).value, read_csr(scratch.path("psi.npz")).value);
  };
  const auto [phi, psi] = features("shared");
  EXPECT_EQ(phi.size(), 34u * 34u);
  EXPECT_EQ(phi, psi);
  const auto [query, key] = features("independent");
  EXPECT_EQ(query, phi);
  EXPECT_NE(query, key);
}

TEST(FeaturesCommand, ThreadsDoNotChangeTheFile) {
  const TemporaryDirectory scratch;
  for (const std::string threads : {"1", "3"}) {
    run_json({"features", "--graph", "grid:40x40", "--seed", "9", "--threads", threads, "--out",
              scratch.path(threads)});
  }
  EXPECT_EQ(read_whole_file(scratch.path("1")), read_whole_file(scratch.path("3")));
}

TEST(FeaturesCommand, RepellingWalkersOnARegularGraphAreExact) {
  const TemporaryDirectory scratch;
  const json summary =
      run_json({"features", "--graph", "hypercube:3", "--walks", "27", "--length", "fixed", "--max-hops", "3",
                "--coupling", "repelling", "--out", scratch.path("phi.npz")});
  EXPECT_EQ(summary["exact"], true);
}

TEST(KernelErrorCommand, HasTheDocumentedKeysAndFallsWithWalks) {
  const json study = run_json({"kernel-error", "--walks", "2,16", "--trials", "50", "--coupling", "both"});
  ASSERT_EQ(study["results"].size(), 2u);
  for (const json& row : study["results"]) {
    for (const char* key : {"walks", "error", "error_se", "bias_diagonal", "bias_diagonal_se",
                            "bias_off_diagonal", "bias_off_diagonal_se", "nonzeros_per_row"}) {
      EXPECT_TRUE(row[key].is_number()) << key;
    }
  }
  EXPECT_EQ(study["results"][0]["walks"], 2);
  EXPECT_EQ(study["results"][1]["walks"], 16);
  EXPECT_LT(study["results"][1]["error"].get<double>(), study["results"][0]["error"].get<double>());
  EXPECT_LT(study["truncation_error"].get<double>(), 1e-6);
}

TEST(KernelErrorCommand, TakesEveryLengthLaw) {
  for (const std::string length : {"geometric", "fixed", "survival:1,0.5,0.25"}) {
    const json study = run_json({"kernel-error", "--graph", "cycle:6", "--walks", "4", "--trials", "5",
                                 "--length", length, "--step", "weighted", "--max-hops", "2"});
    EXPECT_TRUE(study["results"][0]["error"].is_number()) << length;
  }
  // Without --max-hops the survival function says how long a walk can be.
  run_json({"kernel-error", "--graph", "cycle:6", "--walks", "4", "--trials", "5", "--length",
            "survival:1,0.5,0.25"});
}

TEST(PlanCommand, ReportsTheoryMeasurementAndCosts) {
  const json plan = run_json({"plan", "--graph", "cycle:12", "--error", "0.2", "--confidence", "0.9"});
  EXPECT_GT(plan["walks_theorem"].get<double>(), plan["walks_measured"].get<double>());
  EXPECT_LE(plan["nonzeros_mean"].get<double>(), plan["sparsity_bound"].get<double>());
  EXPECT_EQ(plan["attention"]["candidates"].size(), 3u);
  for (const json& engine : plan["attention"]["candidates"])
    EXPECT_GT(engine["multiply_adds"].get<double>(), 0);
  const std::string text = run_program({"plan", "--graph", "cycle:12", "--error", "0.2"}).out;
  EXPECT_THAT(text, HasSubstr("each entry of the mask within 0.2 with probability 0.95"));
  EXPECT_THAT(text, HasSubstr("engine: "));
  const json all = run_json({"plan", "--graph", "cycle:12", "--error", "0.2", "--for", "all-entries"});
  EXPECT_EQ(all["entries"], 78);
  EXPECT_GT(all["walks_theorem"].get<double>(), plan["walks_theorem"].get<double>());
  const json fixed = run_json({"plan", "--graph", "cycle:12", "--length", "fixed", "--max-hops", "3"});
  EXPECT_EQ(fixed["theorem_applies"], false);
  EXPECT_TRUE(fixed["walks_theorem"].is_null());
  EXPECT_THAT(fixed["note"].get<std::string>(), HasSubstr("geometric lengths"));
}

TEST(PlanCommand, ComparesTheEnsembles) {
  const json plan = run_json({"plan", "--graph", "cycle:12", "--error", "0.2", "--ensembles", "independent"});
  const json& ensembles = plan["ensembles"];
  ASSERT_EQ(ensembles["plans"].size(), 3u);
  EXPECT_EQ(ensembles["plans"][0]["ensembles"], "shared");
  EXPECT_EQ(ensembles["plans"][1]["walks"], plan["walks"]);
  EXPECT_EQ(ensembles["plans"][1]["relative_error"], plan["relative_error"]);
  for (const json& own : ensembles["plans"]) {
    EXPECT_GT(own["predicted_seconds"].get<double>(), 0);
    EXPECT_GT(own["relative_error_se"].get<double>(), 0);
  }
  const std::string text = run_program({"plan", "--graph", "cycle:12", "--error", "0.2"}).out;
  EXPECT_THAT(text, HasSubstr("rel. error"));
  EXPECT_THAT(text, HasSubstr(ensembles["advice"].get<std::string>()));
  // Visits that count 1 estimate another mask: there is no error to measure.
  EXPECT_TRUE(run_json({"plan", "--graph", "cycle:12", "--ad-hoc"})["relative_error"].is_null());
}

TEST(CalibrateCommand, KeepsWhatPlansThenUse) {
  const TemporaryDirectory scratch;
  const std::string path = scratch.path("calibration.json");
  const std::vector<std::string> plan = {"plan", "--graph", "cycle:12", "--error", "0.2", "--threads", "1"};
  const json built_in = run_json(plan);
  setenv("TOPOMASK_CALIBRATION", path.c_str(), 1);
  const json dry = run_json({"calibrate", "--dry-run"});
  EXPECT_TRUE(dry["file"].is_null());
  EXPECT_FALSE(std::filesystem::exists(path));
  const json done = run_json({"calibrate"});
  EXPECT_EQ(done["file"], path);
  EXPECT_LT(done["seconds"].get<double>(), 60);
  json file = json::parse(read_whole_file(path));
  EXPECT_EQ(file["devices"][done["device"].get<std::string>()], done["rates"]);
  // A machine that needs a second for a call: it is in every plan.
  file["devices"][done["device"].get<std::string>()]["call"] = 1.0;
  scratch.write("calibration.json", file.dump());
  for (const json& engine : run_json(plan)["attention"]["candidates"])
    EXPECT_GE(engine["predicted_seconds"].get<double>(), 1);
  // A file that cannot be used is told of in one line, and changes nothing.
  for (const std::string& bad : {std::string("{"), std::string("{\"format\": 1, \"version\": \"0.0.1\"}")}) {
    scratch.write("calibration.json", bad);
    const ProgramResult result =
        run_program({"plan", "--graph", "cycle:12", "--error", "0.2", "--threads", "1", "--json"});
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.json()["attention"], built_in["attention"]);
    EXPECT_THAT(result.err, ::testing::StartsWith("topomask: warning: " + path + " is not used"));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
  setenv("TOPOMASK_CALIBRATION", "off", 1);
  EXPECT_EQ(run_json(plan)["attention"], built_in["attention"]);
  expect_rejected({"calibrate"}, "TOPOMASK_CALIBRATION is off");
}

TEST(BenchCommand, MeasuresThePlanner) {
  const TemporaryDirectory scratch;
  scratch.write("triangle.csv", "0,1\n1,2\n2,0\n");
  scratch.write("notes.txt", "this is no graph\n");
  const ProgramResult result =
      run_program({"bench", "planner", "--graphs", "grid:8x8", "ba:60,2", "--folder", scratch.path(""),
                   "--repeats", "2", "--walks", "2", "--d", "8", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("left out"));
  const json bench = result.json();
  ASSERT_EQ(bench["results"].size(), 3u);
  int predictions = 0;
  for (const json& row : bench["results"]) {
    double best = std::numeric_limits<double>::infinity(), chosen = 0;
    for (const json& engine : row["engines"]) {
      const double predicted = engine["predicted_seconds"], measured = engine["seconds_median"];
      EXPECT_DOUBLE_EQ(engine["predicted/measured"].get<double>(), predicted / measured);
      best = std::min(best, measured);
      if (engine["engine"] == row["chosen"]) chosen = measured;
      ++predictions;
    }
    EXPECT_DOUBLE_EQ(row["chosen/best"].get<double>(), chosen / best);
  }
  EXPECT_EQ(bench["summary"]["predictions"], predictions);
  EXPECT_GT(bench["rates"]["mask"].get<double>(), 0);
  // An engine that is predicted to take too long is not run, and says so.
  const json short_run =
      run_json({"bench", "planner", "--graphs", "grid:40x40", "--budget", "1e-9", "--repeats", "1"});
  for (const json& engine : short_run["results"][0]["engines"])
    EXPECT_EQ(engine["reason"], "it would take longer than --budget");
  EXPECT_TRUE(short_run["results"][0]["chosen/best"].is_null());
  expect_rejected({"bench", "planner", "--folder", "/no/such/folder"}, "is not a folder");
}

TEST(BenchCommand, MeasuresBothContestants) {
  const json bench =
      run_json({"bench", "walks", "--graph", "grid:20x20", "--walks", "2", "--hops", "3", "--repeats", "2"});
  ASSERT_EQ(bench["results"].size(), 2u);
  EXPECT_EQ(bench["results"][0]["name"], "topomask");
  EXPECT_EQ(bench["results"][1]["name"], "per-walker loop");
  for (const json& row : bench["results"]) {
    EXPECT_EQ(row["steps"], 400 * 2 * 3);
    EXPECT_GT(row["seconds_median"].get<double>(), 0);
    EXPECT_TRUE(row["seconds_spread"].is_number());
    EXPECT_NEAR(row["steps_per_second"].get<double>() * row["seconds_median"].get<double>(), 2400, 1e-3);
  }
  const double ratio = bench["results"][1]["seconds_median"].get<double>() /
                       bench["results"][0]["seconds_median"].get<double>();
  EXPECT_NEAR(bench["ratio"].get<double>(), ratio, 1e-9);
  EXPECT_GT(bench["results"][1]["seconds_drawing"].get<double>(), 0);
  EXPECT_LT(bench["ratio_without_drawing"].get<double>(), ratio);
  EXPECT_EQ(bench["machine"]["threads"], 1);
  EXPECT_GT(bench["features"]["seconds_median"].get<double>(), 0);
  EXPECT_EQ(bench["results"][0]["bytes"].get<double>(), 400 * 2 * 4 * sizeof(std::int32_t));
  EXPECT_GT(bench["features"]["of_bytes_per_second"].get<double>(), 0);
}

TEST(BenchCommand, HaltingWalksTakeAsManyStepsInBoth) {
  const json bench = run_json({"bench", "walks", "--graph", "cycle:2000", "--walks", "8", "--hops", "10",
                               "--p-halt", "0.5", "--repeats", "1"});
  // Length is geometric: mean just below 1, variance just below 2.
  const double walkers = 16000, expected = walkers * (1 - std::pow(0.5, 10)), error = std::sqrt(2 * walkers);
  for (const json& row : bench["results"]) EXPECT_NEAR(row["steps"].get<double>(), expected, 4 * error);
}

TEST(DemoCommand, WritesItsPictures) {
  const TemporaryDirectory scratch;
  const json demo = run_json({"demo", "--out", scratch.path("demo"), "--trials", "20", "--largest", "64"});
  EXPECT_EQ(demo["errors"].size(), 16u);
  EXPECT_GT(demo["attention"]["rows"][0]["masked"]["seconds_median"].get<double>(), 0);
  for (const json& file : demo["files"]) {
    const std::string content = read_whole_file(file.get<std::string>());
    EXPECT_GT(content.size(), 1000u) << file;
    EXPECT_TRUE(content.starts_with("\x89PNG") || content.find("<svg") < 100) << file;
  }
}

TEST(Provenance, IsTheCommandWithoutTheFolderOfThePicture) {
  const char* const given[] = {"topomask", "bench", "tokens", "--out",  "/a/b",
                               "--tokens", "64",    "--json", "--out=c"};
  cli::remember_command(9, given);
  EXPECT_EQ(cli::provenance().command, "topomask bench tokens --tokens 64");
}

}  // namespace
}  // namespace topomask::testing
