#!/usr/bin/env bash
# Everything that needs a GPU, in one go: the tests of build/cuda, the same under compute-sanitizer (but for the slow
# ones), then the benchmarks of docs/performance.md. Logs and JSON stay in build/cuda/gpu.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/cuda
: "${SANITIZER_SECONDS:=60}"  # for each test under each tool; what is not reached by then is left out
out=$build/gpu
mkdir -p "$out"
if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >"$out/gpu.txt" 2>&1; then
  echo "cuda-test: error: no GPU was found on this machine; the kernels were built, but nothing was run" >&2
  exit 1
fi
cat "$out/gpu.txt"

echo "== tests"
ctest --preset cuda --tests-regex '^(cuda_|python_cuda$)' --parallel 4 2>&1 | tee "$out/tests.log"

if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    for test in walks sparse_product mask_engine dense_engine; do
      echo "== $tool: $test"
      timeout "$SANITIZER_SECONDS" compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 3 \
        "$build/cuda_${test}_test" --gtest_brief=1 >"$out/$tool-$test.log" 2>&1 && status=0 || status=$?
      tail -n 2 "$out/$tool-$test.log"
      if ((status != 0 && status != 124)); then
        echo "cuda-test: error: $tool found something in cuda_${test}_test, see $out/$tool-$test.log" >&2
        exit 1
      fi
    done
  done
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
