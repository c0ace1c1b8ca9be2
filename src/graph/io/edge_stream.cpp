#include "graph/io/edge_stream.h"

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>

#include "core/check.h"
#include "graph/io/edge_rows.h"
#include "graph/io/matrix_entries.h"
#include "io/files.h"
#include "io/line_stream.h"
#include "io/text.h"

namespace topomask {

namespace {

constexpr std::int64_t kWordsPerBlock = 8;

// Rows of a file that is read piece by piece.
class RowStream : public EdgeRows {
 public:
  RowStream(const std::string& path, const EdgeStreamOptions& options)
      : EdgeRows(path), lines_(path, options.read, options.buffer_bytes), progress_(options.progress) {}

  bool next() {
    constexpr std::size_t kLinesPerReport = std::size_t{1} << 16;
    std::string_view line;
    while (lines_.next(line)) {
      if (progress_ && lines_.line_number() % kLinesPerReport == 0) progress_(lines_.bytes_read());
      if (take(line, lines_.line_number())) return true;
    }
    return false;
  }

 private:
  LineStream lines_;
  const std::function<void(std::int64_t)>& progress_;
};

// A map of all ids below this takes no more bytes than the file, and never more than 256 MB.
std::int64_t map_limit_for(const std::string& path) {
  constexpr std::int64_t kLeast = std::int64_t{1} << 20, kMost = std::int64_t{1} << 31;
  std::error_code unknown_size;
  const std::uintmax_t size = std::filesystem::file_size(path, unknown_size);
  if (unknown_size || size >= static_cast<std::uintmax_t>(kMost) / 8) return kMost;
  return std::max(kLeast, 8 * static_cast<std::int64_t>(size));
}

[[noreturn]] void fail_changed(const std::string& path) {
  fail("{}: it changed while it was read", path);
}

}  // namespace

void IdSet::add(std::int64_t id) {
  largest_ = std::max(largest_, id);
  if (id < map_limit_) {
    const auto word = static_cast<std::size_t>(id / 64);
    if (word >= map_.size()) map_.resize(std::max(word + 1, map_.size() + map_.size() / 2));
    map_[word] |= std::uint64_t{1} << (id % 64);
    return;
  }
  pending_.push_back(id);
  constexpr std::size_t kLeastPending = std::size_t{1} << 16;
  if (pending_.size() > std::max(kLeastPending, list_.size() / 2)) merge_pending();
}

void IdSet::merge_pending() {
  std::sort(pending_.begin(), pending_.end());
  const auto middle = static_cast<std::ptrdiff_t>(list_.size());
  list_.insert(list_.end(), pending_.begin(), pending_.end());
  std::inplace_merge(list_.begin(), list_.begin() + middle, list_.end());
  list_.erase(std::unique(list_.begin(), list_.end()), list_.end());
  pending_.clear();
}

void IdSet::finish() {
  merge_pending();
  pending_.shrink_to_fit();
  map_.resize((map_.size() + kWordsPerBlock - 1) / kWordsPerBlock * kWordsPerBlock);
  map_.shrink_to_fit();
  std::uint32_t count = 0;
  for (std::size_t word = 0; word < map_.size(); ++word) {
    if (word % kWordsPerBlock == 0) before_.push_back(count);
    count += static_cast<std::uint32_t>(std::popcount(map_[word]));
  }
  in_map_ = count;
  size_ = in_map_ + static_cast<std::int64_t>(list_.size());
}

std::int64_t IdSet::rank(std::int64_t id) const {
  if (id >= map_limit_) {
    const auto place = std::lower_bound(list_.begin(), list_.end(), id);
    return place == list_.end() || *place != id ? -1 : in_map_ + (place - list_.begin());
  }
  const auto word = static_cast<std::size_t>(id / 64);
  const std::uint64_t bit = std::uint64_t{1} << (id % 64);
  if (word >= map_.size() || (map_[word] & bit) == 0) return -1;
  const std::size_t block = word / kWordsPerBlock;
  std::int64_t rank = before_[block] + std::popcount(map_[word] & (bit - 1));
  for (std::size_t w = block * kWordsPerBlock; w < word; ++w) rank += std::popcount(map_[w]);
  return rank;
}

std::int64_t IdSet::at(std::int64_t rank) const {
  if (rank >= in_map_) return list_[static_cast<std::size_t>(rank - in_map_)];
  const auto after = std::upper_bound(before_.begin(), before_.end(), static_cast<std::uint32_t>(rank));
  const std::int64_t block = after - before_.begin() - 1;
  std::int64_t left = rank - before_[static_cast<std::size_t>(block)];
  for (auto word = static_cast<std::size_t>(block * kWordsPerBlock);; ++word) {
    std::uint64_t bits = map_[word];
    if (left >= std::popcount(bits)) {
      left -= std::popcount(bits);
      continue;
    }
    for (; left > 0; --left) bits &= bits - 1;
    return static_cast<std::int64_t>(word) * 64 + std::countr_zero(bits);
  }
}

bool EdgeStream::can_read(const std::string& path) {
  constexpr std::array<std::string_view, 4> kTables = {".txt", ".tsv", ".csv", ".edges"};
  return std::find(kTables.begin(), kTables.end(), content_extension(path)) != kTables.end();
}

EdgeStream::EdgeStream(const std::string& path, const EdgeStreamOptions& options)
    : path_(path), options_(options) {
  if (!survey_integers()) survey_words();
  check(num_edges_ > 0, "{}: expected at least one edge, got none", path);
}

bool EdgeStream::survey_integers() {
  IdSet ids(map_limit_for(path_));
  RowStream rows(path_, options_);
  for (bool first = true; rows.next(); first = false) {
    const bool integer_source = is_integer(rows.source()), integer_target = is_integer(rows.target());
    if (first && !integer_source && !integer_target) continue;  // a header, if integers follow
    if (!integer_source || !integer_target) return false;
    rows.accept();
    ids.add(rows.parse_id(rows.source()));
    ids.add(rows.parse_id(rows.target()));
    if (!rows.weight().empty()) {
      parse_weight(rows.weight(), path_, rows.line_number());
      weighted_ = true;
    }
  }
  if (rows.accepted() == 0) return false;
  ids.finish();
  num_edges_ = rows.accepted();
  const bool declared = rows.declared() > ids.largest() && plausible_node_count(rows.declared(), num_edges_);
  num_nodes_ = declared ? rows.declared() : ids.size();
  check(num_nodes_ <= kMaxNodes, "{}: expected at most {} nodes, got more", path_, kMaxNodes);
  kind_ = declared || num_nodes_ - 1 == ids.largest() ? Kind::numbers : Kind::ids;
  if (kind_ == Kind::ids) ids_ = std::move(ids);
  return true;
}

void EdgeStream::survey_words() {
  kind_ = Kind::words;
  weighted_ = false;
  RowStream rows(path_, options_);
  const auto learn = [&](std::string_view word) {
    if (index_.known_number(word) >= 0) return;
    check(static_cast<std::int64_t>(words_.size()) < kMaxNodes,
          "{}, line {}: expected at most {} nodes, got more", path_, rows.line_number(), kMaxNodes);
    index_.number_of(words_.emplace_back(word));
  };
  for (bool first = true; rows.next(); first = false) {
    if (first && rows.is_word_header()) continue;
    rows.accept();
    learn(rows.source());
    learn(rows.target());
    if (!rows.weight().empty()) {
      parse_weight(rows.weight(), path_, rows.line_number());
      weighted_ = true;
    }
  }
  num_edges_ = rows.accepted();
  num_nodes_ = static_cast<std::int64_t>(words_.size());
}

void EdgeStream::append_name(std::int32_t node, std::string& text) const {
  if (kind_ == Kind::words) {
    text += words_[static_cast<std::size_t>(node)];
  } else {
    text += fmt::format_int(kind_ == Kind::ids ? ids_.at(node) : node).c_str();
  }
}

std::int32_t EdgeStream::number_of(std::string_view word, std::int64_t id) const {
  std::int64_t number = id;
  if (kind_ == Kind::words) number = index_.known_number(word);
  if (kind_ == Kind::ids) number = ids_.rank(id);
  if (number < 0 || number >= num_nodes_) fail_changed(path_);
  return static_cast<std::int32_t>(number);
}

void EdgeStream::for_each_edge(const Visit& visit) const {
  RowStream rows(path_, options_);
  const bool words = kind_ == Kind::words;
  for (bool first = true; rows.next(); first = false) {
    if (first && (words ? rows.is_word_header() : !is_integer(rows.source()) && !is_integer(rows.target())))
      continue;
    rows.accept();
    const std::int32_t source = number_of(rows.source(), words ? 0 : rows.parse_id(rows.source())),
                       target = number_of(rows.target(), words ? 0 : rows.parse_id(rows.target()));
    if (rows.weight().empty() == weighted_ || rows.accepted() > num_edges_) fail_changed(path_);
    visit(source, target, weighted_ ? parse_weight(rows.weight(), path_, rows.line_number()) : 1.0f);
  }
  if (rows.accepted() != num_edges_) fail_changed(path_);
}

}  // namespace topomask
