// Options whose value is a word of an enumeration (topomask/words.h), or of a table that is passed in. The
// help text takes the words and their meanings from the table, so that the two cannot disagree.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <vector>

#include "topomask/words.h"

namespace topomask::cli {

template <class Value>
void add_choice(CLI::App& command, const std::string& group, const std::string& flag, Value& target,
                std::span<const Word<Value>> choices, const std::string& description) {
  std::vector<std::string_view> names;
  std::string_view current;
  for (const Word<Value>& choice : choices) {
    names.push_back(choice.word);
    if (choice.value == target) current = choice.word;
  }
  const auto choose = [&target, choices, names, flag](const std::string& word) {
    for (const Word<Value>& choice : choices) {
      if (choice.word == word) {
        target = choice.value;
        return;
      }
    }
    fail_unknown_word(flag, word, names);
  };
  const std::string meanings = describe_words(choices);
  command
      .add_option_function<std::string>(flag, choose,
                                        meanings.empty() ? description : description + ". " + meanings)
      ->type_name(fmt::format("{}", fmt::join(names, "|")))
      ->default_str(std::string(current))
      ->group(group);
}

template <class Value>
void add_choice(CLI::App& command, const std::string& group, const std::string& flag, Value& target,
                const std::string& description) {
  add_choice(command, group, flag, target, words<Value>(), description);
}

}  // namespace topomask::cli
