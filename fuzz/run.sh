#!/bin/sh
# Fuzzes every target for SECONDS in all (default 20) and ends in a line "N passed, N failed". SEED is that of the
# random changes (default: a new one).
#
#     fuzz/run.sh [SECONDS [SEED]]
#
# The targets are guided by coverage through libFuzzer, which works on the stable compiler: instrumentation is a pass
# that rustc is told to run. Where that cannot be built (no C++ compiler), inputs are generated without guidance.
# An input that fails is kept in fuzz/failures/; "cargo run --profile test -p larder-fuzz -- FILE" plays it again.
set -u
seconds=${1:-20}
seed=${2:-}
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
cd "$root" || exit 1
target_dir=${CARGO_TARGET_DIR:-$root/target}
binary=$target_dir/debug/guided
log=$target_dir/fuzz/build.log
mkdir -p "$target_dir/fuzz" "$here/failures"

unguided() {
    exec cargo run --quiet --profile test -p larder-fuzz -- --seconds "$seconds" ${seed:+--seed "$seed"}
}

# As the tests are built, with debug assertions, and from the same dependencies.
build() {
    RUSTC_WORKSPACE_WRAPPER=$here/instrument.sh cargo build --profile test --workspace --locked \
        --bin guided --features larder-fuzz/guided >"$log" 2>&1
}

if ! build; then
    echo "without guidance: libFuzzer cannot be built here (see $log)"
    unguided
fi

passed=0
failed=0
for target in parser dispatcher structured binary resp compressed; do
    corpus=$target_dir/fuzz/corpus/$target
    mkdir -p "$corpus"
    export LARDER_FUZZ_TARGET=$target
    LARDER_FUZZ_WRITE_SEEDS=$corpus "$binary" -runs=1 >/dev/null 2>&1
    output=$target_dir/fuzz/$target.log
    if "$binary" -max_total_time=$((seconds / 6 + 1)) -seed="${seed:-0}" -max_len=40000 -timeout=20 -rss_limit_mb=4096 \
        -print_final_stats=1 -artifact_prefix="$here/failures/$target-" "$corpus" >"$output" 2>&1; then
        passed=$((passed + 1))
        echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$output") inputs, guided"
    else
        failed=$((failed + 1))
        echo "FAIL $target"
        grep -A 50 '^FAIL' "$output" | cut -c 1-2000
        grep -E 'Test unit written|ERROR: libFuzzer' "$output"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
