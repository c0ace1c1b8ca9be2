#!/usr/bin/env bash
# Everything that needs a GPU, in one go: the tests of build/cuda, again under compute-sanitizer, then the benchmarks of
# docs/performance.md. Logs stay in build/cuda/gpu.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/cuda
: "${SANITIZER_SECONDS:=120}"  # at most, for each share of a program under each tool; none needs it on 16 cores
out=$build/gpu
mkdir -p "$out"
if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >"$out/gpu.txt" 2>&1; then
  echo "cuda-test: error: no GPU was found on this machine; the kernels were built, but nothing was run" >&2
  exit 1
fi
cat "$out/gpu.txt"

# Threads of programs that run side by side must not fight over the cores: waiting, they spin. Under compute-sanitizer
# two dozen programs at once mostly wait for each other, and few come to their end.
side_by_side=6
threads=$((($(nproc) + side_by_side - 1) / side_by_side))

# run_tests REGEX NAME
run_tests() {
  OMP_NUM_THREADS=$threads ctest --preset cuda --tests-regex "$1" --parallel $side_by_side 2>&1 |
    tee "$out/tests-$2.log"
}

# check TOOL TEST SHARE SHARES: a share of one program's cases under one tool; says what was found and how far it came.
# Only kernels of our own are watched: those of torch and cuBLAS would take most of the time.
check() {
  local tool=$1 program=cuda_${2}_test log=$out/$1-$2-$3.log share="$3 of $4" status=0 cases filter='*'
  # Racecheck follows every access to shared memory: what is large and has the kernels of something smaller is left
  # out. So are cuBLAS's products, which do not survive it on an H200, even if it watches no kernel at all.
  if [[ $tool == racecheck ]]; then
    filter='-*/hubs:*/star:*/sparse_random:*/grid:*/torus:*/signed_and_directed:*/sphere:*/clusters:*/outlier:*/tiny'
    filter+=':*/huge:*_side_9:*IsTheSameFromRunToRun:*FusedLayers.Linear/*'
  fi
  GTEST_SHARD_INDEX=$(($3 - 1)) GTEST_TOTAL_SHARDS=$4 OMP_NUM_THREADS=$threads timeout "$SANITIZER_SECONDS" \
    compute-sanitizer --tool "$tool" --kernel-name kns=topomask --error-exitcode 9 --print-limit 3 \
    "$build/$program" "--gtest_filter=$filter" >"$log" 2>&1 || status=$?
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

echo "== tests"
run_tests '^cuda_' programs

if command -v compute-sanitizer >/dev/null; then
  echo "== compute-sanitizer, and meanwhile the tests in Python"
  run_tests '^python_cuda$' python >/dev/null &
  python=$!
  export -f check
  export build out threads SANITIZER_SECONDS
  # The longest begin first.
  checks=()
  for shares in racecheck:walks:2 racecheck:dense_engine:3 racecheck:mask_engine:2 racecheck:column_engine:2 \
    racecheck:fused_layers:2 racecheck:particles:1 racecheck:sparse_product:1 racecheck:graph:1 racecheck:neighbours:1 \
    racecheck:masks:2 racecheck:feature_engine:1 racecheck:augment:1 memcheck:walks:1 memcheck:fused_layers:2 \
    memcheck:sparse_product:1 memcheck:mask_engine:1 memcheck:column_engine:1 memcheck:particles:1 memcheck:masks:1 \
    memcheck:graph:1 memcheck:neighbours:1 memcheck:dense_engine:3 memcheck:feature_engine:1 memcheck:augment:1; do
    IFS=: read -r tool program count <<<"$shares"
    for ((share = 1; share <= count; ++share)); do checks+=("$tool $program $share $count"); done
  done
  found=0
  printf '%s\n' "${checks[@]}" | xargs -P $side_by_side -L 1 bash -c 'check "$@"' check || found=1
  if ! wait $python; then
    cat "$out/tests-python.log"
    found=1
  fi
  grep ' Test  *#' "$out/tests-python.log" || true
  if ((found)); then exit 1; fi
else
  echo "== compute-sanitizer is not installed; memory and races were not checked"
  run_tests '^python_cuda$' python
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
bench attention attention --graph torus:32768,8 --walks 8 --heads 8 --dtype bfloat16 --device cuda --budget 3
bench attention-float attention --graph torus:32768,8 --walks 8 --heads 8 --dtype float32 --device cuda --budget 3
bench dense attention --graph grid:16x16 --walks 16 --batch 256 --heads 12 --dtype bfloat16 --device cuda --budget 3
bench million attention --graph grid:1000x1000 --walks 4 --device cuda --only grf-auto,linear --budget 3
for side in 181 362 724 1448 2048; do  # time against the number of nodes, 32 thousand to 4 million
  bench "side-$side" attention --graph "grid:${side}x$side" --walks 8 --device cuda --only grf-auto --budget 1
done
echo "-- python bench/from_python.py"
PYTHONPATH=$build/python "$(cat .setup/python)" bench/from_python.py | tee "$out/bench-from-python.txt"
