#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for some seconds: scripts/fuzz.sh [seconds per target] [reader ...]
# Exits with an error if a reader crashes, leaks, hangs or runs out of memory; the input is in build/fuzz/findings.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-30}
shift || true
readers=("$@")
if [ ${#readers[@]} -eq 0 ]; then
  readers=(matrix_market edge_list gml npz npy obj ply safetensors cifar idx image)
fi

mkdir -p build
cmake -S . -B build/fuzz -G Ninja -DTOPOMASK_FUZZ=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCMAKE_CXX_COMPILER="${TOPOMASK_CLANG:-clang++}" >build/fuzz-configure.log 2>&1 || { cat build/fuzz-configure.log; exit 1; }
cmake --build build/fuzz --target "${readers[@]/#/fuzz_}"

mkdir -p build/fuzz/findings
failed=()
for reader in "${readers[@]}"; do
  mkdir -p "build/fuzz/corpus/$reader"
  log=build/fuzz/$reader.log
  # New inputs go to the first folder; the seeds are only read.
  if "build/fuzz/fuzz_$reader" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -max_len=8192 \
      -artifact_prefix="build/fuzz/findings/$reader-" "build/fuzz/corpus/$reader" "fuzz/corpus/$reader" >"$log" 2>&1; then
    echo "$reader: $(tail -n 1 "$log")"
  else
    echo "$reader: FOUND SOMETHING"
    tail -n 40 "$log"
    failed+=("$reader")
  fi
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "findings in: ${failed[*]}" >&2
  exit 1
fi
