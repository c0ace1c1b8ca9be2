#include "options/settings.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <charconv>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "core/check.h"
#include "core/suggest.h"

namespace topomask::cli {
namespace {

template <class Number>
Number parse_number(const std::string& text, const char* expected) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty())
    throw std::invalid_argument(expected);
  return value;
}

bool parse_boolean(const std::string& text) {
  if (text == "true" || text == "yes" || text == "on") return true;
  if (text == "false" || text == "no" || text == "off") return false;
  throw std::invalid_argument("true or false");
}

toml::table parse_toml(const std::string& text, const std::string& name) {
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    fail("{}: line {}: {}", name, error.source().begin.line, error.description());
  }
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  check(file.good(), "{}: cannot be read", path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A plain value as the command line would write it.
std::string plain_text(const toml::node& node, const std::string& where) {
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* value = node.as_integer()) return fmt::format("{}", value->get());
  if (const auto* value = node.as_floating_point()) return fmt::format("{}", value->get());
  if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
  fail("{}: expected a string, a number, true or false", where);
}

}  // namespace

void Settings::push(const std::string& key, const std::string& help, Setting::Type type,
                    std::string type_name, std::function<void(const std::string&)> set,
                    std::function<std::string()> get) {
  settings_.push_back({section_, key, help, type, std::move(type_name), std::move(set), std::move(get)});
}

void Settings::add(const std::string& key, std::string& target, const std::string& help) {
  push(
      key, help, Setting::Type::text, "TEXT", [&target](const std::string& t) { target = t; },
      [&target] { return target; });
}

void Settings::add(const std::string& key, std::int64_t& target, const std::string& help) {
  push(
      key, help, Setting::Type::integer, "INT",
      [&target](const std::string& t) { target = parse_number<std::int64_t>(t, "a whole number"); },
      [&target] { return std::to_string(target); });
}

void Settings::add(const std::string& key, std::uint64_t& target, const std::string& help) {
  push(
      key, help, Setting::Type::integer, "UINT",
      [&target](const std::string& t) { target = parse_number<std::uint64_t>(t, "a whole number from 0"); },
      [&target] { return std::to_string(target); });
}

void Settings::add(const std::string& key, int& target, const std::string& help) {
  push(
      key, help, Setting::Type::integer, "INT",
      [&target](const std::string& t) { target = parse_number<int>(t, "a whole number"); },
      [&target] { return std::to_string(target); });
}

void Settings::add(const std::string& key, double& target, const std::string& help) {
  push(
      key, help, Setting::Type::real, "FLOAT",
      [&target](const std::string& t) { target = parse_number<double>(t, "a number"); },
      [&target] { return fmt::format("{}", target); });
}

void Settings::add(const std::string& key, bool& target, const std::string& help) {
  push(
      key, help, Setting::Type::boolean, "", [&target](const std::string& t) { target = parse_boolean(t); },
      [&target] { return target ? "true" : "false"; });
}

const Setting* Settings::find(const std::string& key) const {
  for (const Setting& setting : settings_) {
    if (setting.key == key) return &setting;
  }
  return nullptr;
}

void Settings::set(const Setting& setting, const std::string& value, const std::string& where) const {
  try {
    setting.set(value);
  } catch (const Error& error) {  // choices know their own words, which begin with the key
    const std::string words = error.what(), key = setting.key + ": ";
    fail("{}: {}", where, words.starts_with(key) ? words.substr(key.size()) : words);
  } catch (const std::invalid_argument& expected) {
    fail("{}: expected {}, got '{}'", where, expected.what(), value);
  }
}

void Settings::add_options(CLI::App& command, const std::shared_ptr<GivenSettings>& given,
                           const std::set<std::string>& but) const {
  for (const Setting& setting : settings_) {
    if (but.contains(setting.key)) continue;
    const std::string key = setting.key;
    std::string group = setting.section;
    group[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(group[0])));
    if (setting.type == Setting::Type::boolean) {
      const bool on = setting.get() == "true";
      command
          .add_flag_callback(
              "--" + key, [given, key] { given->emplace_back(key, "true"); }, setting.help)
          ->group(on ? "" : group);  // only the one that changes something is listed
      command
          .add_flag_callback(
              "--no-" + key, [given, key] { given->emplace_back(key, "false"); }, "Not: " + setting.help)
          ->group(on ? group : "");
      continue;
    }
    command
        .add_option_function<std::string>(
            "--" + key, [given, key](const std::string& text) { given->emplace_back(key, text); },
            setting.help)
        ->type_name(setting.type_name)
        ->default_str(setting.get())
        ->group(group);
  }
}

void Settings::apply(const GivenSettings& given) const {
  for (const auto& [key, value] : given) set(*find(key), value, "--" + key);
}

void Settings::read_toml_text(const std::string& text, const std::string& name) const {
  const toml::table root = parse_toml(text, name);
  std::vector<std::string> keys, sections;
  for (const Setting& setting : settings_) {
    keys.push_back(setting.key);
    if (sections.empty() || sections.back() != setting.section) sections.push_back(setting.section);
  }
  const auto apply_one = [&](const std::string& key, const toml::node& node, const std::string& section) {
    const Setting* setting = find(key);
    const std::string where = fmt::format("{}: line {}: {}", name, node.source().begin.line, key);
    check(setting != nullptr, "{}: line {}: unknown key '{}'{}", name, node.source().begin.line, key,
          did_you_mean(key, keys));
    check(section.empty() || section == setting->section, "{} belongs into [{}], not into [{}]", where,
          setting->section, section);
    set(*setting, plain_text(node, where), where);
  };
  for (const auto& [key, node] : root) {
    const std::string word(key.str());
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      apply_one(word, node, "");
      continue;
    }
    const bool known = std::find(sections.begin(), sections.end(), word) != sections.end();
    check(known, "{}: line {}: unknown section [{}]{}", name, node.source().begin.line, word,
          did_you_mean(word, sections));
    for (const auto& [inner, value] : *table) apply_one(std::string(inner.str()), value, word);
  }
}

void Settings::read_toml(const std::string& path) const {
  read_toml_text(read_text(path), path);
}

std::string Settings::to_toml() const {
  std::string text, section;
  for (const Setting& setting : settings_) {
    if (setting.section != section)
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", setting.section);
    section = setting.section;
    std::string value = setting.get();
    if (setting.type == Setting::Type::text) {
      std::ostringstream quoted;
      quoted << toml::toml_formatter(toml::value<std::string>(value));
      value = quoted.str();
    } else if (setting.type == Setting::Type::real && value.find_first_of(".en") == std::string::npos) {
      value += ".0";
    }
    text += fmt::format("{} = {}\n", setting.key, value);
  }
  return text;
}

std::string Settings::peek(const GivenSettings& given, const std::string& key) {
  std::string value;
  for (const auto& [name, text] : given) {
    if (name == key) value = text;
  }
  return value;
}

std::string Settings::peek_toml(const std::string& path, const std::string& key) {
  const toml::table root = parse_toml(read_text(path), path);
  if (const toml::node* node = root.get(key)) return plain_text(*node, path);
  for (const auto& [name, node] : root) {
    const toml::table* table = node.as_table();
    if (table == nullptr) continue;
    if (const toml::node* inner = table->get(key)) return plain_text(*inner, path);
  }
  return "";
}

}  // namespace topomask::cli
