#!/usr/bin/env bash
# Formats all C++ sources that git knows or would add; with --check it only says whether anything would change.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Versions of clang-format disagree about details; Debian 12's is the one that counts.
clang_format=$(command -v clang-format-14 || command -v clang-format || true)
if [[ -z $clang_format ]]; then
  echo "format: error: clang-format is not installed; run scripts/setup.sh" >&2
  exit 1
fi
if ! "$clang_format" --version | grep -q 'version 14\.'; then
  echo "format: note: this project is formatted with clang-format 14; here is $("$clang_format" --version)" >&2
fi

mapfile -d '' sources < <(git ls-files -z --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cu')
existing=()
for source in "${sources[@]}"; do
  if [[ -e $source ]]; then existing+=("$source"); fi
done

if [[ ${1-} == --check ]]; then
  "$clang_format" --dry-run -Werror "${existing[@]}"
  echo "format: ${#existing[@]} files are formatted"
else
  "$clang_format" -i "${existing[@]}"
fi
