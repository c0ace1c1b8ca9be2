#include "options/flag_names.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace topomask::cli {
namespace {

constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

// Arguments whose flags have other names.
struct OtherName {
  std::string_view argument, flag;
};
constexpr OtherName kOtherNames[] = {
    {"num_walks", "--walks"},   {"init", "--f"},      {"init", "--modulation"},
    {"init", "--coefficients"}, {"init", "--kernel"},
};
// Parts of the library that begin a message and have the name of a flag.
constexpr std::string_view kParts[] = {"attention", "mask", "walks"};

std::string_view first_word(std::string_view text) {
  return text.substr(0, std::min(text.find_first_not_of(kLetters), text.size()));
}

bool is_given(const CLI::App& command, const std::string& flag) {
  const CLI::Option* option = command.get_option_no_throw(flag);
  return option != nullptr && option->count() > 0;
}

// Whether some option has this value: a message that begins with it may mean a file called so.
bool is_value(const CLI::App& command, std::string_view word) {
  const std::vector<const CLI::Option*> options = command.get_options();
  return std::any_of(options.begin(), options.end(), [&](const CLI::Option* option) {
    const std::vector<std::string>& values = option->results();
    return std::find(values.begin(), values.end(), word) != values.end();
  });
}

// The flag that gave an argument, or "".
std::string flag_of_argument(const CLI::App& command, std::string_view argument) {
  if (argument.empty()) return "";
  for (const OtherName& other : kOtherNames) {
    if (other.argument == argument && is_given(command, std::string(other.flag)))
      return std::string(other.flag);
  }
  const std::string flag = flag_of(argument);
  return is_given(command, flag) ? flag : "";
}

// Whether `rest` can follow an argument: "epochs must be 1", "variants: unknown value", "patch 5 does not".
bool ends_argument(std::string_view rest) {
  const bool value =
      rest.size() > 1 && rest[0] == ' ' && (rest[1] == '-' || (rest[1] >= '0' && rest[1] <= '9'));
  return value || rest.starts_with(": ") || rest.starts_with(" must ");
}

}  // namespace

std::string flag_of(std::string_view argument) {
  std::string flag = "--" + std::string(argument);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string with_flag_name(const CLI::App& command, const std::string& message) {
  const std::string_view text = message, first = first_word(text), after = text.substr(first.size());
  if (after.starts_with(": ")) {  // what complains: a function or a class
    const std::string_view sentence = after.substr(2), argument = first_word(sentence),
                           rest = sentence.substr(argument.size());
    const std::string flag = flag_of_argument(command, argument);
    if (!flag.empty() && ends_argument(rest)) return flag + std::string(rest);
  }
  const bool is_part = std::find(std::begin(kParts), std::end(kParts), first) != std::end(kParts);
  const std::string flag = is_part || is_value(command, first) ? "" : flag_of_argument(command, first);
  return flag.empty() || !ends_argument(after) ? message : flag + std::string(after);
}

}  // namespace topomask::cli
