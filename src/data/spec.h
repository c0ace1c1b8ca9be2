// The words of a `--data` description, or of another of its form: kind:subject,key=value,key=value.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"

namespace topomask {

// Every key is asked for once with its default; then finish() throws if a key is left that was not asked for.
// Each complaint names the whole description and its form.
class DataSpec {
 public:
  // `option`: what the user calls the description.
  DataSpec(const std::string& spec, std::string_view form, std::string_view option = "--data");

  const std::string& subject() const { return subject_; }  // what follows the colon
  // The subject as a whole number in [least, most].
  int size(int least, int most);

  std::string text(const std::string& key, const std::string& otherwise);

  template <class T>
  T number(const std::string& key, T otherwise, T least, T most) {
    const auto found = take(key);
    return found == nullptr ? otherwise : parse<T>(*found, key, least, most);
  }

  void finish() const;

  [[noreturn]] void complain(const std::string& problem) const;

  template <class T>
  T parse(std::string_view word, std::string_view what, T least, T most) const {
    T value{};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    const bool whole = error == std::errc() && end == word.data() + word.size() && !word.empty();
    if (!whole || !(value >= least && value <= most)) {
      complain(fmt::format("expected {} from {} to {}, got '{}'", what, least, most, word));
    }
    return value;
  }

 private:
  const std::string* take(const std::string& key);

  std::string spec_, form_, option_, subject_;
  std::map<std::string, std::string> values_;
  std::vector<std::string> known_;
};

}  // namespace topomask
