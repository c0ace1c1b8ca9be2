// The names of the values of an enumeration, as the command line, Python and error messages use them.
//
// Each enumeration has one table, next to its functions:
//   words<Engine>()                  all of them, with a line of description each
//   word_of(Engine::dense)           "dense"
//   describe_words(words<Engine>())  "auto: the engine with ...; mask: one fused ...; ..."
//   parse_word<Engine>("engine", w)  the value, or an Error that names the words and suggests the nearest
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace topomask {

template <class Value>
struct Word {
  Value value;
  std::string_view word, description;
};

// Specialised for every enumeration that has words.
template <class Value>
std::span<const Word<Value>> words();

[[noreturn]] void fail_unknown_word(std::string_view what, std::string_view word,
                                    const std::vector<std::string_view>& known);

template <class Value>
std::string_view word_of(Value value) {
  for (const Word<Value>& known : words<Value>()) {
    if (known.value == value) return known.word;
  }
  return "?";
}

// Each word with its own description; "" where they have none.
template <class Value>
std::string describe_words(std::span<const Word<Value>> known) {
  std::string text;
  for (const Word<Value>& entry : known) {
    if (entry.description.empty()) continue;
    text.append(text.empty() ? "" : "; ").append(entry.word).append(": ").append(entry.description);
  }
  return text;
}

template <class Value>
Value parse_word(std::string_view what, std::string_view word) {
  std::vector<std::string_view> known;
  for (const Word<Value>& entry : words<Value>()) {
    if (entry.word == word) return entry.value;
    known.push_back(entry.word);
  }
  fail_unknown_word(what, word, known);
}

}  // namespace topomask
