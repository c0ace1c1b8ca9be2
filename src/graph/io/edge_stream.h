// A text table of edges, read line by line, in memory that grows with its nodes and not with its edges.
//
// Nodes get the numbers and names that read_edge_list gives them (graph_io.h). That takes two passes over the
// file: one to learn the nodes, then one for each for_each_edge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/io/word_index.h"
#include "topomask/read_options.h"

namespace topomask {

// Distinct whole numbers from 0, and the place of each among them. Numbers below a limit are bits of a map,
// the others a sorted list.
class IdSet {
 public:
  explicit IdSet(std::int64_t map_limit) : map_limit_(map_limit) {}

  void add(std::int64_t id);
  void finish();  // after the last add, before what follows
  std::int64_t size() const { return size_; }
  std::int64_t largest() const { return largest_; }
  std::int64_t rank(std::int64_t id) const;  // -1: it is not in the set
  std::int64_t at(std::int64_t rank) const;

 private:
  void merge_pending();

  std::int64_t map_limit_;
  std::vector<std::uint64_t> map_;
  std::vector<std::uint32_t> before_;  // bits of the map before each block of words
  std::vector<std::int64_t> list_, pending_;
  std::int64_t size_ = 0, in_map_ = 0, largest_ = -1;
};

struct EdgeStreamOptions {
  ReadOptions read;
  std::size_t buffer_bytes = std::size_t{1} << 20;
  // Called now and then with the bytes of the file that were read in this pass.
  std::function<void(std::int64_t bytes)> progress;
};

class EdgeStream {
 public:
  // Whether the file is a text table of edges by its extension: .txt .tsv .csv .edges, also with .gz or .xz.
  static bool can_read(const std::string& path);

  EdgeStream(const std::string& path, const EdgeStreamOptions& options = {});

  std::int64_t num_nodes() const { return num_nodes_; }
  std::int64_t num_edges() const { return num_edges_; }  // as listed
  bool weighted() const { return weighted_; }
  bool has_names() const { return kind_ != Kind::numbers; }
  void append_name(std::int32_t node, std::string& text) const;

  // Every listed edge in the order of the file.
  using Visit = std::function<void(std::int32_t source, std::int32_t target, float weight)>;
  void for_each_edge(const Visit& visit) const;

 private:
  // What node ids are: numbers of nodes, whole numbers that are counted through, or words.
  enum class Kind { numbers, ids, words };

  bool survey_integers();  // false: there are words
  void survey_words();
  std::int32_t number_of(std::string_view word, std::int64_t id) const;

  std::string path_;
  EdgeStreamOptions options_;
  Kind kind_ = Kind::numbers;
  std::int64_t num_nodes_ = 0, num_edges_ = 0;
  bool weighted_ = false;
  IdSet ids_{0};
  std::deque<std::string> words_;
  WordIndex index_;
};

}  // namespace topomask
