// GML: `graph [ directed 0|1 node [ id 0 label "a" ] edge [ source 0 target 1 weight 2.5 ] ]`. Keys and lists
// that say nothing about the graph's structure are skipped, however deep.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/check.h"
#include "graph/io/matrix_entries.h"
#include "io/text.h"
#include "topomask/graph_io.h"

namespace topomask {

namespace {

enum class TokenKind { word, string, open, close, end };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;
  std::size_t line = 0;
};

class Tokenizer {
 public:
  Tokenizer(std::string_view content, const std::string& name) : content_(content), name_(name) {}

  Token next() {
    skip_blanks_and_comments();
    if (at_ == content_.size()) return {TokenKind::end, "the end of the file", line_};
    const std::size_t begin = at_;
    const std::size_t line = line_;
    const char c = content_[at_++];
    if (c == '[') return {TokenKind::open, "[", line};
    if (c == ']') return {TokenKind::close, "]", line};
    if (c == '"') {
      const std::size_t end = content_.find('"', at_);
      check(end != std::string_view::npos, "{}, line {}: the file ends inside a string", name_, line);
      const std::string_view text = content_.substr(at_, end - at_);
      line_ += static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
      at_ = end + 1;
      return {TokenKind::string, text, line};
    }
    while (at_ < content_.size() && !ends_word(content_[at_])) ++at_;
    return {TokenKind::word, content_.substr(begin, at_ - begin), line};
  }

 private:
  static bool ends_word(char c) { return is_blank(c) || c == '\n' || c == '[' || c == ']' || c == '"'; }

  void skip_blanks_and_comments() {
    for (; at_ < content_.size(); ++at_) {
      const char c = content_[at_];
      if (c == '#') at_ = std::min(content_.find('\n', at_), content_.size());
      if (at_ == content_.size()) return;
      if (content_[at_] == '\n') {
        ++line_;
      } else if (!is_blank(content_[at_])) {
        return;
      }
    }
  }

  std::string_view content_;
  const std::string& name_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
};

struct Edge {
  std::int64_t source = -1, target = -1;
  float weight = 1.0f;
  std::size_t line = 0;
};

class Reader {
 public:
  Reader(std::string_view content, const std::string& name) : tokens_(content, name), name_(name) {}

  EdgeList read() {
    while (true) {
      const Token key = tokens_.next();
      check(key.kind != TokenKind::end, "{}, line {}: expected 'graph [', got the end of the file", name_,
            key.line);
      check_key(key);
      const Token value = tokens_.next();
      if (key.text == "graph") {
        check(value.kind == TokenKind::open, "{}, line {}: expected '[' after graph, got {}", name_,
              value.line, quoted(value.text));
        read_graph(value.line);
        return finish();
      }
      skip(key, value);
    }
  }

 private:
  void check_key(const Token& key) const {
    check(key.kind == TokenKind::word, "{}, line {}: expected a key, got {}", name_, key.line,
          quoted(key.text));
  }

  // Reads the pairs of a list up to its ']' and hands each to `use`, which tells whether it took the value.
  template <class Use>
  void read_list(std::size_t opened, Use&& use) {
    while (true) {
      const Token key = tokens_.next();
      if (key.kind == TokenKind::close) return;
      check(key.kind != TokenKind::end, "{}: the file ends inside the list opened on line {}", name_, opened);
      check_key(key);
      const Token value = tokens_.next();
      if (!use(key, value)) skip(key, value);
    }
  }

  // Passes over a value that is not needed; a list with all that is in it.
  void skip(const Token& key, const Token& value) {
    check(value.kind != TokenKind::close && value.kind != TokenKind::end,
          "{}, line {}: expected a value after {}, got {}", name_, value.line, quoted(key.text),
          quoted(value.text));
    if (value.kind != TokenKind::open) return;
    for (std::size_t depth = 1; depth > 0;) {
      const Token token = tokens_.next();
      check(token.kind != TokenKind::end, "{}: the file ends inside the list opened on line {}", name_,
            value.line);
      if (token.kind == TokenKind::open) ++depth;
      if (token.kind == TokenKind::close) --depth;
    }
  }

  std::int64_t parse_id(const Token& key, const Token& value) const {
    const std::optional<std::int64_t> id =
        value.kind == TokenKind::word ? parse_integer(value.text) : std::nullopt;
    check(id && *id >= 0, "{}, line {}: expected a non-negative integer after {}, got {}", name_, value.line,
          quoted(key.text), quoted(value.text));
    return *id;
  }

  void read_graph(std::size_t opened) {
    read_list(opened, [this](const Token& key, const Token& value) {
      const bool list = value.kind == TokenKind::open;
      if (key.text == "directed" && !list) {
        check(value.text == "0" || value.text == "1", "{}, line {}: expected directed 0 or 1, got {}", name_,
              value.line, quoted(value.text));
        edges_.directed = value.text == "1";
      } else if (key.text == "node" && list) {
        read_node(value.line);
      } else if (key.text == "edge" && list) {
        read_edge(value.line);
      } else {
        return false;
      }
      return true;
    });
  }

  void read_node(std::size_t opened) {
    std::int64_t id = -1;
    std::optional<std::string_view> label;
    read_list(opened, [&](const Token& key, const Token& value) {
      if (key.text == "id") {
        id = parse_id(key, value);
      } else if (key.text == "label" && (value.kind == TokenKind::word || value.kind == TokenKind::string)) {
        label = value.text;
      } else {
        return false;
      }
      return true;
    });
    check(id >= 0, "{}, line {}: expected an id in this node, got none", name_, opened);
    check(static_cast<std::int64_t>(ids_.size()) < kMaxNodes,
          "{}, line {}: expected at most {} nodes, got more", name_, opened, kMaxNodes);
    const bool added = numbers_.try_emplace(id, static_cast<std::int32_t>(ids_.size())).second;
    check(added, "{}, line {}: node id {} appears twice", name_, opened, id);
    ids_.push_back(id);
    labels_.push_back(label);
  }

  void read_edge(std::size_t opened) {
    Edge edge;
    edge.line = opened;
    bool has_weight = false;  // "weight" counts, "value" stands in for it
    read_list(opened, [&](const Token& key, const Token& value) {
      const bool plain = value.kind == TokenKind::word || value.kind == TokenKind::string;
      if (key.text == "source") {
        edge.source = parse_id(key, value);
      } else if (key.text == "target") {
        edge.target = parse_id(key, value);
      } else if (plain && (key.text == "weight" || (key.text == "value" && !has_weight))) {
        edge.weight = parse_weight(value.text, name_, value.line);
        has_weight = has_weight || key.text == "weight";
        weighted_ = true;
      } else {
        return false;
      }
      return true;
    });
    check(edge.source >= 0 && edge.target >= 0, "{}, line {}: expected a source and a target in this edge",
          name_, opened);
    found_.push_back(edge);
  }

  std::int32_t number_of(std::int64_t id, const Edge& edge) const {
    const auto place = numbers_.find(id);
    check(place != numbers_.end(), "{}, line {}: this edge names node {}, which the file does not define",
          name_, edge.line, id);
    return place->second;
  }

  // Edges may come before their nodes, so ends are looked up last.
  EdgeList finish() {
    check(!ids_.empty(), "{}: expected at least one node, got none", name_);
    edges_.num_nodes = static_cast<std::int64_t>(ids_.size());
    for (const Edge& edge : found_) {
      edges_.source.push_back(number_of(edge.source, edge));
      edges_.target.push_back(number_of(edge.target, edge));
      if (weighted_) edges_.weight.push_back(edge.weight);
    }
    bool named = false;
    for (std::size_t n = 0; n < ids_.size(); ++n) {
      named = named || labels_[n] || ids_[n] != static_cast<std::int64_t>(n);
    }
    for (std::size_t n = 0; named && n < ids_.size(); ++n) {
      edges_.names.push_back(labels_[n] ? std::string(*labels_[n]) : std::to_string(ids_[n]));
    }
    return std::move(edges_);
  }

  Tokenizer tokens_;
  const std::string& name_;
  EdgeList edges_;
  std::vector<std::int64_t> ids_;                           // per node in the order of the file
  std::vector<std::optional<std::string_view>> labels_;     // beside ids_
  std::unordered_map<std::int64_t, std::int32_t> numbers_;  // id -> place in ids_
  std::vector<Edge> found_;
  bool weighted_ = false;
};

}  // namespace

EdgeList read_gml(std::string_view content, const std::string& name) {
  check(!content.empty(), "{}: expected a GML file, got an empty one", name);
  check_text(content, name);
  return Reader(without_byte_order_mark(content), name).read();
}

}  // namespace topomask
