#include "topomask/words.h"

#include "core/check.h"
#include "core/suggest.h"

namespace topomask {

void fail_unknown_word(std::string_view what, std::string_view word,
                       const std::vector<std::string_view>& known) {
  fail("{}: unknown value '{}'{}", what, word,
       nearest_or_all(word, std::span<const std::string_view>(known)));
}

}  // namespace topomask
