#include "topomask/words.h"

#include <fmt/ranges.h>

#include "core/check.h"
#include "core/suggest.h"

namespace topomask {

void fail_unknown_word(std::string_view what, std::string_view word,
                       const std::vector<std::string_view>& known) {
  const std::string suggestion = did_you_mean(word, std::span<const std::string_view>(known));
  if (!suggestion.empty()) fail("{}: unknown value '{}'{}", what, word, suggestion);
  fail("{}: unknown value '{}', expected {}", what, word, fmt::join(known, ", "));
}

}  // namespace topomask
