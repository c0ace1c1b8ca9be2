// Settings with a name, a section and a meaning, bound to the fields of a struct: from words, from a TOML
// file, and back into one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "topomask/runs.h"

namespace topomask {

struct ParticleSettings;  // topomask/particle_runs.h

struct Setting {
  enum class Type { text, integer, real, boolean };
  std::string section, key, help;
  Type type = Type::text;
  std::string type_name;                        // for a help text
  std::function<void(const std::string&)> set;  // throws std::invalid_argument with what was expected
  std::function<std::string()> get;
  std::string help_off = {};  // what a boolean that is on by default does when it is off
};

class Settings {
 public:
  void section(std::string name) { section_ = std::move(name); }
  void add(const std::string& key, std::string& target, const std::string& help);
  void add(const std::string& key, std::int64_t& target, const std::string& help);
  void add(const std::string& key, std::uint64_t& target, const std::string& help);
  void add(const std::string& key, int& target, const std::string& help);
  void add(const std::string& key, double& target, const std::string& help);
  // `help_off` is for --no-KEY.
  void add(const std::string& key, bool& target, const std::string& help, const std::string& help_off = "");
  // One of the words of an enumeration; the meanings of those that are offered are added to `help`.
  template <class Value>
  void add_choice(const std::string& key, Value& target, const std::string& help,
                  std::span<const Word<Value>> offered = words<Value>()) {
    std::string type_name;
    for (const Word<Value>& known : offered)
      type_name.append(type_name.empty() ? "" : "|").append(known.word);
    const std::string meanings = describe_words(offered);
    push(
        key, meanings.empty() ? help : help + ". " + meanings, Setting::Type::text, type_name,
        [&target, key](const std::string& t) { target = parse_word<Value>(key, t); },
        [&target] { return std::string(word_of(target)); });
  }

  // The values given win over the file, if there is one.
  void apply(const SettingValues& given, const std::string& config_path = "") const;
  // Keys stand in their section or before all sections. Unknown ones are errors that suggest the nearest.
  void read_toml_text(const std::string& text, const std::string& name) const;
  std::string to_toml(const std::string& without_section = "") const;
  // The value that words or a file give to a key, without applying anything; "" where they give none.
  static std::string peek(const SettingValues& given, const std::string& key);
  static std::string peek_toml(const std::string& path, const std::string& key);

  const std::vector<Setting>& all() const { return settings_; }
  // Those of the keys alone; an unknown key is then told which there are.
  Settings only(const std::vector<std::string>& keys) const;

 private:
  void push(const std::string& key, const std::string& help, Setting::Type type, std::string type_name,
            std::function<void(const std::string&)> set, std::function<std::string()> get);
  const Setting* find(const std::string& key) const;
  const Setting& expect(const std::string& key, const std::string& where) const;
  void set(const Setting& setting, const std::string& value, const std::string& where) const;

  std::string section_;
  std::vector<Setting> settings_;
  bool few_ = false;  // an error can name them all
};

// The first setting that two lists of the same kind differ in, as "epochs is 10 there and 20 here"; "" where
// there is none. `same` decides about two values of one key. Settings that say where or how often, and not
// what, are passed over.
std::string first_difference(const Settings& saved, const Settings& now,
                             const std::function<bool(const std::string& key, const std::string& saved,
                                                      const std::string& now)>& same);

inline constexpr const char* kVideoSection = "video";  // settings of clips alone
// Throws where a given setting has no meaning for the encoder. Files are not checked: they list all settings.
void check_encoder_settings(Encoder encoder, const SettingValues& given);

// The settings of a run as a list; it refers to `settings` and must not outlive it.
Settings list_settings(VitSettings& settings);
Settings list_settings(ParticleSettings& settings);
// The last ones of training, which all models share; `epochs`: also those for passes over a data set.
void list_training(Settings& list, TrainOptions& train, std::string& device, bool epochs);

// Independent streams of random numbers from one seed. `purpose` is of an enumeration.
template <class Purpose>
std::uint64_t stream_seed(std::uint64_t seed, Purpose purpose) {
  return derive_seed(seed, static_cast<std::uint64_t>(purpose));
}

}  // namespace topomask
