#!/usr/bin/env bash
# Installs the runtime into an empty folder, builds examples/cpp against nothing but that, and runs the programs on a
# model library: test_examples.sh CMAKE BUILD_DIR MODEL_WRITER. Ends with `N passed, N failed`.
set -uo pipefail
cmake="$1" build="$2" model_writer="$3"
source_dir="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
passed=0
failed=0

# check NAME EXPECTED_STATUS PATTERN COMMAND...: the command ends with the status and says what matches the pattern.
check() {
  local name="$1" expected="$2" pattern="$3" output status
  shift 3
  output="$("$@" 2>&1)"
  status=$?
  if [[ "$status" -eq "$expected" ]] && grep -qE "$pattern" <<<"$output"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf '%s: status %s, expected %s with /%s/\n%s\n' "$name" "$status" "$expected" "$pattern" "$output"
  fi
}

check install 0 mccConfig.cmake "$cmake" --install "$build" --prefix "$folder/mcc" --component runtime
check configure 0 'Build files' "$cmake" -S "$source_dir/examples/cpp" -B "$folder/build" \
  -DCMAKE_PREFIX_PATH="$folder/mcc" -DCMAKE_BUILD_TYPE=Release
check build 0 latency "$cmake" --build "$folder/build"
check model 0 '' "$model_writer" "$folder/model.so"

cd "$folder/build" || exit 1
check latency 0 'min [0-9.]+ ms, median [0-9.]+ ms' ./latency "$folder/model.so" --threads 2
check within_budget 0 'latency of 20 runs on 1 threads' ./latency "$folder/model.so" --threads 1 --runs 20 --budget-ms 60000
check over_budget 1 'over the budget' ./latency "$folder/model.so" --threads 1 --runs 20 --budget-ms 0.0000001
check missing_model 3 'error: cannot open .*none.so' ./latency "$folder/none.so"
check c_api 0 '4000 bytes of f32: 1 1 1' ./first_output "$folder/model.so"

echo "$passed passed, $failed failed"
[[ "$failed" -eq 0 ]]
