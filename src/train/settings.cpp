#include "train/settings.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <charconv>
#include <sstream>
#include <stdexcept>

#include "core/check.h"
#include "core/suggest.h"
#include "io/files.h"

namespace topomask {
namespace {

std::string read_settings(const std::string& path) {
  return read_file(path, {.max_file_size = std::uint64_t{1} << 20});
}

bool is_free(const std::string& key) {
  return key == "device" || key == "workers" || key == "checkpoint-seconds" || key == "checkpoint-steps";
}

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
      [&target](const std::string& t) { target = parse_number<int>(t, "a whole number below 2^31"); },
      [&target] { return std::to_string(target); });
}

void Settings::add(const std::string& key, double& target, const std::string& help) {
  push(
      key, help, Setting::Type::real, "FLOAT",
      [&target](const std::string& t) { target = parse_number<double>(t, "a number"); },
      [&target] { return fmt::format("{}", target); });
}

void Settings::add(const std::string& key, bool& target, const std::string& help,
                   const std::string& help_off) {
  push(
      key, help, Setting::Type::boolean, "", [&target](const std::string& t) { target = parse_boolean(t); },
      [&target] { return target ? "true" : "false"; });
  settings_.back().help_off = help_off;
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

const Setting& Settings::expect(const std::string& key, const std::string& where) const {
  if (const Setting* setting = find(key)) return *setting;
  std::vector<std::string> keys;
  for (const Setting& setting : settings_) keys.push_back(setting.key);
  fail("{}unknown key '{}'{}", where, key, few_ ? nearest_or_all(key, keys) : did_you_mean(key, keys));
}

Settings Settings::only(const std::vector<std::string>& keys) const {
  Settings result;
  result.few_ = true;
  for (const Setting& setting : settings_) {
    if (std::find(keys.begin(), keys.end(), setting.key) != keys.end()) result.settings_.push_back(setting);
  }
  return result;
}

void Settings::apply(const SettingValues& given, const std::string& config_path) const {
  if (!config_path.empty()) read_toml_text(read_settings(config_path), config_path);
  for (const auto& [key, value] : given) set(expect(key, "settings: "), value, "--" + key);
}

void Settings::read_toml_text(const std::string& text, const std::string& name) const {
  const toml::table root = parse_toml(text, name);
  std::vector<std::string> sections;
  for (const Setting& setting : settings_) {
    if (sections.empty() || sections.back() != setting.section) sections.push_back(setting.section);
  }
  const auto apply_one = [&](const std::string& key, const toml::node& node, const std::string& section) {
    const std::string line = fmt::format("{}: line {}: ", name, node.source().begin.line);
    const Setting& setting = expect(key, line);
    const std::string where = line + key;
    check(section.empty() || section == setting.section, "{} belongs into [{}], not into [{}]", where,
          setting.section, section);
    set(setting, plain_text(node, where), where);
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

std::string Settings::to_toml(const std::string& without_section) const {
  std::string text, section;
  for (const Setting& setting : settings_) {
    if (setting.section == without_section) continue;
    if (setting.section != section)
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", setting.section);
    section = setting.section;
    std::string value = setting.get();
    // TOML's integers end at 2^63 - 1; a larger seed is written as a string, which is read the same way.
    const bool too_large = setting.type == Setting::Type::integer &&
                           (value.size() > 19 || (value.size() == 19 && value > "9223372036854775807"));
    if (setting.type == Setting::Type::text || too_large) {
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

std::string Settings::peek(const SettingValues& given, const std::string& key) {
  std::string value;
  for (const auto& [name, text] : given) {
    if (name == key) value = text;
  }
  return value;
}

std::string Settings::peek_toml(const std::string& path, const std::string& key) {
  const toml::table root = parse_toml(read_settings(path), path);
  if (const toml::node* node = root.get(key)) return plain_text(*node, path);
  for (const auto& [name, node] : root) {
    const toml::table* table = node.as_table();
    if (table == nullptr) continue;
    if (const toml::node* inner = table->get(key)) return plain_text(*inner, path);
  }
  return "";
}

std::string first_difference(
    const Settings& saved, const Settings& now,
    const std::function<bool(const std::string&, const std::string&, const std::string&)>& same) {
  for (std::size_t i = 0; i < saved.all().size(); ++i) {
    const std::string key = saved.all()[i].key, before = saved.all()[i].get(), after = now.all()[i].get();
    if (!is_free(key) && !same(key, before, after))
      return fmt::format("{} is {} there and {} here", key, before, after);
  }
  return "";
}

void list_training(Settings& list, TrainOptions& train, std::string& device, bool epochs) {
  list.add("weight-decay", train.weight_decay,
           "Weight decay of matrices; masks, biases, norms and embeddings do not decay");
  list.add("beta1", train.beta1, "Decay rate of the running mean of the gradient");
  list.add("beta2", train.beta2, "Decay rate of the running mean of the squared gradient");
  list.add("clip-norm", train.clip_norm, "Clip the gradient to this norm; 0: no clipping");
  if (epochs) list.add("accumulate", train.accumulate, "Batches per optimiser step");
  list.add("ema", train.ema,
           "Decay rate of the moving average of the weights, which is then evaluated; 0: none");
  list.add("bf16", train.bf16, "Compute matrix products in bfloat16 on a GPU",
           "Compute matrix products in float32 on a GPU");
  if (epochs) list.add("evaluate-every", train.evaluate_every, "Epochs between evaluations");
  list.add("log-every", train.log_every, "Steps between lines in metrics.jsonl");
  list.add("checkpoint-seconds", train.checkpoint_seconds, "Seconds between checkpoints");
  list.add("checkpoint-steps", train.checkpoint_steps, "Steps between additional checkpoints; 0: none");
  list.add("device", device, "Device: cpu, cuda or cuda:N");
}

}  // namespace topomask
