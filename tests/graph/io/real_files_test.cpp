// Files as they come from the world, with the counts their authors report. Set TOPOMASK_DATA to the folder
// that holds graphs/ and meshes/ to run these.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "topomask/graph_io.h"

namespace topomask {
namespace {

struct RealFile {
  const char* path;
  std::int64_t nodes;
  std::int64_t edges;  // as listed: some files list both directions
  bool weighted = false;
  bool named = false;
};

class RealFiles : public ::testing::TestWithParam<RealFile> {};

std::string data_path(const std::string& file) {
  const char* folder = std::getenv("TOPOMASK_DATA");
  return folder == nullptr ? "" : std::string(folder) + "/" + file;
}

TEST_P(RealFiles, have_the_known_counts) {
  const RealFile& file = GetParam();
  const std::string path = data_path(file.path);
  if (path.empty()) GTEST_SKIP() << "TOPOMASK_DATA is not set";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const EdgeList edges = read_graph_file(path);
  EXPECT_EQ(edges.num_nodes, file.nodes);
  EXPECT_EQ(static_cast<std::int64_t>(edges.source.size()), file.edges);
  EXPECT_EQ(!edges.weight.empty(), file.weighted);
  EXPECT_EQ(!edges.names.empty(), file.named);
  EXPECT_FALSE(edges.directed);
}

INSTANTIATE_TEST_SUITE_P(
    all, RealFiles,
    ::testing::Values(RealFile{"graphs/gml/karate.gml", 34, 78, false, true},
                      RealFile{"graphs/gml/dolphins.gml", 62, 159, false, true},
                      RealFile{"graphs/gml/football.gml", 115, 613, false, true},
                      RealFile{"graphs/gml/polbooks.gml", 105, 441, false, true},
                      RealFile{"graphs/gml/polblogs.gml", 1222, 16717, true, true},
                      RealFile{"graphs/gml/eurosis.gml", 1272, 6454, true, true},
                      RealFile{"graphs/gml/eu-core.gml", 986, 16687, false, true},
                      RealFile{"graphs/gml/cora.gml", 2485, 5069, false, true},
                      RealFile{"graphs/gml/citeseer.gml", 2120, 3731, false, true},
                      RealFile{"graphs/gml/Databases.gml", 1006, 3155, false, true},
                      RealFile{"graphs/npz/cora.npz", 2708, 5429, true, true},
                      RealFile{"graphs/npz/citeseer.npz", 3312, 4715, true, true},
                      RealFile{"graphs/npz/minesweeper.npz", 10000, 39402},
                      RealFile{"graphs/npz/actor.npz", 7600, 26659},
                      RealFile{"graphs/npz/chameleon_filtered.npz", 890, 8854},
                      RealFile{"graphs/snap/email-Enron.txt.gz", 36692, 367662},
                      RealFile{"graphs/road/OL.txt", 6105, 7035, true},
                      RealFile{"graphs/road/distances_bay_2017.csv", 325, 8358, true, true},
                      RealFile{"graphs/musae/deezer_RO/RO_edges.csv", 41773, 125826},
                      RealFile{"graphs/musae/facebook_large/facebook_edges.csv", 22470, 171002},
                      RealFile{"graphs/musae/lastfm_asia/lastfm_asia_edges.csv", 7624, 27806},
                      RealFile{"meshes/stanford-bunny.obj.xz", 35947, 104288},
                      RealFile{"meshes/nefertiti.obj.xz", 49971, 149907}),
    [](const auto& test) {
      std::string name = std::filesystem::path(test.param.path).filename().string();
      for (char& c : name) {
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
      }
      return name;
    });

TEST(real_points, of_a_mesh) {
  const std::string path = data_path("meshes/stanford-bunny.obj.xz");
  if (path.empty() || !std::filesystem::exists(path)) GTEST_SKIP() << "TOPOMASK_DATA is not set";
  const Points points = read_points_file(path);
  EXPECT_EQ(points.count, 35947);
  EXPECT_EQ(points.dimension, 3);
}

}  // namespace
}  // namespace topomask
