// Values of options with the names that files, the command line and other languages call them by.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/suggest.h"
#include "topomask/model_options.h"

namespace topomask {

template <class Value>
class NameTable {
 public:
  // `what` is named in errors.
  NameTable(std::string what, std::vector<std::pair<Value, std::string>> entries)
      : what_(std::move(what)), entries_(std::move(entries)) {
    for (const auto& entry : entries_) names_.push_back(entry.second);
  }

  const std::vector<std::string>& names() const { return names_; }
  std::string name(Value value) const {
    for (const auto& [known, name] : entries_) {
      if (known == value) return name;
    }
    fail("{}: there is no name for the value {}", what_, static_cast<int>(value));
  }
  Value parse(const std::string& name) const {
    for (const auto& [value, known] : entries_) {
      if (known == name) return value;
    }
    const std::string suggestion = did_you_mean(name, names_);
    if (!suggestion.empty()) fail("{}: unknown value '{}'{}", what_, name, suggestion);
    fail("{}: unknown value '{}', expected {}", what_, name, fmt::join(names_, ", "));
  }

 private:
  std::string what_;
  std::vector<std::pair<Value, std::string>> entries_;
  std::vector<std::string> names_;
};

const NameTable<AttentionVariant>& attention_variants();
const NameTable<Pooling>& poolings();
const NameTable<InitialWeights>& initial_weights();
const NameTable<Coupling>& couplings();

}  // namespace topomask
