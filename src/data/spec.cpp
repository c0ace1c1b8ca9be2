#include "data/spec.h"

#include <algorithm>

#include "core/suggest.h"

namespace topomask {

DataSpec::DataSpec(const std::string& spec, std::string_view form, std::string_view option)
    : spec_(spec), form_(form), option_(option) {
  const std::size_t colon = spec.find(':');
  if (colon == std::string::npos) return;
  std::string_view rest = std::string_view(spec).substr(colon + 1);
  const auto next_word = [&rest] {
    const std::size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
    return word;
  };
  subject_ = next_word();
  while (!rest.empty()) {
    const std::string_view word = next_word();
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) complain(fmt::format("expected key=value, got '{}'", word));
    const std::string key(word.substr(0, equals));
    if (!values_.emplace(key, word.substr(equals + 1)).second)
      complain(fmt::format("'{}' is given twice", key));
  }
}

int DataSpec::size(int least, int most) {
  return parse<int>(subject_, "a size", least, most);
}

std::string DataSpec::text(const std::string& key, const std::string& otherwise) {
  const std::string* found = take(key);
  return found == nullptr ? otherwise : *found;
}

const std::string* DataSpec::take(const std::string& key) {
  known_.push_back(key);
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

void DataSpec::finish() const {
  for (const auto& [key, value] : values_) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    complain(fmt::format("there is no option '{}'{}", key, did_you_mean(key, known_)));
  }
}

void DataSpec::complain(const std::string& problem) const {
  fail("{} {}: {} (the form is {})", option_, spec_, problem, form_);
}

}  // namespace topomask
