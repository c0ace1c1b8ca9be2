// Options whose value is one of a few names.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/names.h"
#include "core/suggest.h"

namespace topomask::cli {

template <class Value>
using Choice = Named<Value>;

template <class Value, std::size_t count>
std::vector<std::string> names_of(const Choice<Value> (&choices)[count]) {
  std::vector<std::string> names;
  for (const Choice<Value>& choice : choices) names.emplace_back(choice.name);
  return names;
}

template <class Value, std::size_t count>
std::string name_of(const Choice<Value> (&choices)[count], Value value) {
  for (const Choice<Value>& choice : choices) {
    if (choice.value == value) return choice.name;
  }
  return "";
}

// "'x' is unknown, did you mean 'y'?", or the whole list where nothing is near.
[[noreturn]] inline void fail_unknown(const std::string& flag, const std::string& word,
                                      const std::vector<std::string>& names) {
  const std::string suggestion = did_you_mean(word, names);
  if (!suggestion.empty()) fail("{}: unknown value '{}'{}", flag, word, suggestion);
  fail("{}: unknown value '{}', expected {}", flag, word, fmt::join(names, ", "));
}

template <class Value, std::size_t count>
void add_choice(CLI::App& command, const std::string& group, const std::string& flag, Value& target,
                const Choice<Value> (&choices)[count], const std::string& description) {
  const auto choose = [&target, &choices, flag](const std::string& word) {
    for (const Choice<Value>& choice : choices) {
      if (word == choice.name) {
        target = choice.value;
        return;
      }
    }
    fail_unknown(flag, word, names_of(choices));
  };
  command.add_option_function<std::string>(flag, choose, description)
      ->type_name(fmt::format("{}", fmt::join(names_of(choices), "|")))
      ->default_str(name_of(choices, target))
      ->group(group);
}

}  // namespace topomask::cli
