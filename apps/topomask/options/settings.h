// Settings with a name, a section and a meaning, bound to the fields of a struct: from the command line, from
// a TOML file, and back into one.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace topomask::cli {

struct Setting {
  enum class Type { text, integer, real, boolean };
  std::string section, key, help;
  Type type = Type::text;
  std::string type_name;                        // for --help
  std::function<void(const std::string&)> set;  // throws std::invalid_argument with what was expected
  std::function<std::string()> get;
};

// What the command line gave, in its order.
using GivenSettings = std::vector<std::pair<std::string, std::string>>;

class Settings {
 public:
  void section(std::string name) { section_ = std::move(name); }
  void add(const std::string& key, std::string& target, const std::string& help);
  void add(const std::string& key, std::int64_t& target, const std::string& help);
  void add(const std::string& key, std::uint64_t& target, const std::string& help);
  void add(const std::string& key, int& target, const std::string& help);
  void add(const std::string& key, double& target, const std::string& help);
  void add(const std::string& key, bool& target, const std::string& help);
  // One of a few names; `parse` throws an Error of its own for others.
  template <class Value>
  void add_choice(const std::string& key, Value& target, const std::vector<std::string>& names,
                  Value (*parse)(const std::string&), std::string (*name)(Value), const std::string& help) {
    std::string type_name;
    for (const std::string& word : names) type_name += (type_name.empty() ? "" : "|") + word;
    push(
        key, help, Setting::Type::text, type_name,
        [&target, parse](const std::string& t) { target = parse(t); },
        [&target, name] { return name(target); });
  }

  // --key for each but some, collected rather than applied: a file has to come first.
  void add_options(CLI::App& command, const std::shared_ptr<GivenSettings>& given,
                   const std::set<std::string>& but = {}) const;

  void apply(const GivenSettings& given) const;
  // Keys stand in their section or before all sections. Unknown ones are errors that suggest the nearest.
  void read_toml(const std::string& path) const;
  void read_toml_text(const std::string& text, const std::string& name) const;
  std::string to_toml() const;
  // The value that a file or the command line gives to a key, without applying anything; "" where it gives
  // none.
  static std::string peek(const GivenSettings& given, const std::string& key);
  static std::string peek_toml(const std::string& path, const std::string& key);

  const std::vector<Setting>& all() const { return settings_; }

 private:
  void push(const std::string& key, const std::string& help, Setting::Type type, std::string type_name,
            std::function<void(const std::string&)> set, std::function<std::string()> get);
  const Setting* find(const std::string& key) const;
  void set(const Setting& setting, const std::string& value, const std::string& where) const;

  std::string section_;
  std::vector<Setting> settings_;
};

}  // namespace topomask::cli
