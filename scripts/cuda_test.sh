#!/usr/bin/env bash
# Everything that needs a GPU, in one go: the tests of build/cuda, most of them again under compute-sanitizer (side by
# side: they wait for the host more than for the GPU), then the benchmarks of docs/performance.md. Logs stay in
# build/cuda/gpu.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/cuda
: "${SANITIZER_SECONDS:=60}"  # for each program under each tool; how far each came is printed
out=$build/gpu
mkdir -p "$out"
if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >"$out/gpu.txt" 2>&1; then
  echo "cuda-test: error: no GPU was found on this machine; the kernels were built, but nothing was run" >&2
  exit 1
fi
cat "$out/gpu.txt"

# Threads of programs that run side by side must not fight over the cores: waiting, they spin.
echo "== tests"
side_by_side=5
OMP_NUM_THREADS=$((($(nproc) + side_by_side - 1) / side_by_side)) ctest --preset cuda \
  --tests-regex '^(cuda_|python_cuda$)' --parallel $side_by_side 2>&1 |
  tee "$out/tests.log"

# check TOOL TEST SHARD SHARDS: a share of one program's cases under one tool; says what was found and how far it came.
# Only kernels of our own are watched: those of torch and cuBLAS would take most of the time.
check() {
  local tool=$1 program=cuda_${2}_test log=$out/$1-$2-$3.log share="$3 of $4" status=0 cases
  GTEST_SHARD_INDEX=$(($3 - 1)) GTEST_TOTAL_SHARDS=$4 OMP_NUM_THREADS=1 timeout "$SANITIZER_SECONDS" \
    compute-sanitizer --tool "$tool" --kernel-name kns=topomask --error-exitcode 9 --print-limit 3 "$build/$program" \
    >"$log" 2>&1 || status=$?
  cases=$(grep -c '^\[       OK' "$log" || true)
  # A program that ran out of time has no exit status of its own: what it printed by then counts.
  if ((status != 0 && status != 124)) || grep -qE '^=+ (Invalid|Error|Warning|Program hit|Race reported)' "$log"; then
    echo "cuda-test: error: $tool found something in $program, see $log" >&2
    return 1
  elif ((status == 124)); then
    echo "$tool, $program, share $share: nothing found in $cases cases, then its $SANITIZER_SECONDS s were over"
  else
    echo "$tool, $program, share $share: nothing found in all $cases cases"
  fi
}

if command -v compute-sanitizer >/dev/null; then
  echo "== compute-sanitizer"
  checks=()
  for tool in memcheck racecheck; do
    for shares in walks:1 graph:1 sparse_product:1 augment:1 masks:1 feature_engine:1 mask_engine:2 dense_engine:3 \
      fused_layers:2; do
      for ((share = 1; share <= ${shares#*:}; ++share)); do
        check "$tool" "${shares%:*}" "$share" "${shares#*:}" &
        checks+=($!)
      done
    done
  done
  found=0
  for pid in "${checks[@]}"; do wait "$pid" || found=1; done
  if ((found)); then exit 1; fi
else
  echo "== compute-sanitizer is not installed; memory and races were not checked"
fi

echo "== benchmarks"
bench() {  # bench NAME arguments...
  local name=$1
  shift
  echo "-- topomask bench $*"
  "$build/topomask" bench "$@" | tee "$out/bench-$name.txt"
}
bench walks walks --graph grid:1000x1000 --device cuda --repeats 5
bench points points --device cuda --dtype bfloat16
bench attention attention --graph torus:32768,8 --walks 4 --heads 8 --dtype bfloat16 --device cuda --budget 3
bench attention-float attention --graph torus:32768,8 --walks 4 --heads 8 --dtype float32 --device cuda --budget 3
bench dense attention --graph grid:16x16 --walks 16 --batch 256 --heads 12 --dtype bfloat16 --device cuda --budget 3
bench million attention --graph grid:1000x1000 --walks 4 --device cuda --only grf-auto,linear --budget 3
