#!/usr/bin/env bash
# A short run of every fuzz target, from its committed seeds and what earlier runs here have found.
# One line each; a finding ends it, with the fuzzer's report.
#
# By hand, longer and with the address sanitizer:
#   RUSTC_BOOTSTRAP=1 cargo fuzz run TARGET fuzz/corpus/TARGET fuzz/seeds/TARGET
set -euo pipefail
cd "$(dirname "$0")/.."

readonly SECONDS_EACH=20
work="${CARGO_TARGET_DIR:-$PWD/target}/fuzz"
# No sanitizer: that needs no nightly compiler, and there is no unsafe code of ours to look at. One
# grade of optimisation is built in half the time of all three, and runs fast enough.
export CARGO_PROFILE_DEV_OPT_LEVEL=1
build=(--sanitizer none --dev --target-dir "$work")

cargo fuzz build "${build[@]}"
for target in $(cargo fuzz list); do
  mkdir -p "$work/corpus/$target" "$work/artifacts/$target"
  log="$work/$target.log"
  if ! cargo fuzz run "${build[@]}" "$target" "$work/corpus/$target" "fuzz/seeds/$target" -- \
    -max_total_time="$SECONDS_EACH" -runs=3000000 -timeout=30 \
    -artifact_prefix="$work/artifacts/$target/" >"$log" 2>&1; then
    tail -n 60 "$log"
    echo "fuzz $target: FAILED, see above"
    exit 1
  fi
  echo "fuzz $target: $(grep -o 'Done [0-9]* runs in [0-9]* second(s)' "$log")"
done
