// The known name nearest to a misspelt one, for error messages: "unknown coupling 'repeling': did you mean
// 'repelling'?".
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace topomask {

// Number of single-letter insertions, deletions, replacements and swaps of neighbouring letters (each piece
// of text edited at most once) between two words, ignoring the case of ASCII letters.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      const bool swapped =
          i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[b.size()];
}

// The candidate with the smallest edit distance to `word` (the first of equals), or "" if none is near: more
// than about a third of the longer word would have to change. A word that begins a candidate counts as near.
inline std::string nearest_name(std::string_view word, std::span<const std::string_view> candidates) {
  constexpr std::size_t kLongestWord =
      64;  // longer ones are no misspelling, and the distance costs a product
  if (word.empty() || word.size() > kLongestWord) return "";
  std::string_view best;
  std::size_t best_distance = kLongestWord;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    const bool near = distance <= std::max<std::size_t>(1, std::max(word.size(), candidate.size()) / 3);
    const bool prefix = word.size() >= 3 && candidate.starts_with(word);
    if ((near || prefix) && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return std::string(best);
}

inline std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates) {
  return nearest_name(word, std::vector<std::string_view>(candidates.begin(), candidates.end()));
}

// ", did you mean 'x'?" to append to a message, or "" if no candidate is near.
template <class Candidates>
std::string did_you_mean(std::string_view word, const Candidates& candidates) {
  const std::string name = nearest_name(word, candidates);
  return name.empty() ? "" : ", did you mean '" + name + "'?";
}

// The same, or ", expected x, y" with all candidates if none is near.
template <class Candidates>
std::string nearest_or_all(std::string_view word, const Candidates& candidates) {
  std::string hint = did_you_mean(word, candidates);
  if (!hint.empty()) return hint;
  for (const auto& candidate : candidates) hint.append(hint.empty() ? ", expected " : ", ").append(candidate);
  return hint;
}

}  // namespace topomask
