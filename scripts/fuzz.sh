#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for some seconds: scripts/fuzz.sh [seconds per target] [reader ...]
# Exits with an error if a reader crashes, leaks, hangs or runs out of memory; the input is in build/fuzz/findings.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-30}
shift || true
readers=("$@")
if [ ${#readers[@]} -eq 0 ]; then
  readers=(matrix_market edge_list edge_stream shard_index gml npz npy obj ply point_table safetensors cifar idx image robot_episode robot_index)
  if pkg-config --exists libavformat libavcodec libswscale libavutil; then readers+=(video); fi
fi

mkdir -p build
cmake -S . -B build/fuzz -G Ninja -DTOPOMASK_FUZZ=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCMAKE_CXX_COMPILER="${TOPOMASK_CLANG:-clang++}" >build/fuzz-configure.log 2>&1 || { cat build/fuzz-configure.log; exit 1; }
cmake --build build/fuzz --target "${readers[@]/#/fuzz_}"

mkdir -p build/fuzz/findings
fuzz() {
  local reader=$1 log=build/fuzz/$1.log
  mkdir -p "build/fuzz/corpus/$reader"
  # New inputs go to the first folder; the seeds are only read.
  if "build/fuzz/fuzz_$reader" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -max_len=8192 \
      -artifact_prefix="build/fuzz/findings/$reader-" "build/fuzz/corpus/$reader" "fuzz/corpus/$reader" >"$log" 2>&1; then
    echo "$reader: $(tail -n 1 "$log")"
  else
    echo "$reader: FOUND SOMETHING"
    tail -n 40 "$log"
    return 1
  fi
}
export -f fuzz
export seconds
# As many at a time as there are cores.
if ! printf '%s\n' "${readers[@]}" | xargs -n 1 -P "$(nproc)" bash -c 'fuzz "$1"' fuzz; then
  echo "fuzz: some readers failed; the inputs are in build/fuzz/findings" >&2
  exit 1
fi
