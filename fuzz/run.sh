#!/bin/sh
# Fuzzes every target for SECONDS in all (default 20) and ends in a line "N passed, N failed".
#
#     fuzz/run.sh [SECONDS]
#
# The targets are guided by coverage through libFuzzer, which works on the stable compiler: instrumentation is a pass
# that rustc is told to run. Where that cannot be built (no C++ compiler), inputs are generated without guidance.
# An input that fails is kept in fuzz/failures/; "cargo run --release -p larder-fuzz -- FILE" plays it again.
set -u
seconds=${1:-20}
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
cd "$root" || exit 1
target_dir=${CARGO_TARGET_DIR:-$root/target}/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')
binary=$target_dir/$host/release/guided
log=$target_dir/build.log
mkdir -p "$target_dir" "$here/failures"

unguided() {
    exec cargo run --quiet --release -p larder-fuzz -- --seconds "$seconds"
}

build() {
    flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
    flags="$flags -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
    flags="$flags -Cllvm-args=-sanitizer-coverage-trace-compares"
    # With a target named, build scripts and macros are not instrumented.
    RUSTFLAGS="$flags" CARGO_TARGET_DIR=$target_dir \
        CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true \
        cargo build --release --target "$host" -p larder-fuzz --bin guided --features guided >"$log" 2>&1
}

if ! build; then
    echo "without guidance: libFuzzer cannot be built here (see $log)"
    unguided
fi

passed=0
failed=0
for target in parser dispatcher structured binary resp; do
    corpus=$target_dir/corpus/$target
    mkdir -p "$corpus"
    export LARDER_FUZZ_TARGET=$target
    LARDER_FUZZ_WRITE_SEEDS=$corpus "$binary" -runs=1 >/dev/null 2>&1
    output=$target_dir/$target.log
    if "$binary" -max_total_time=$((seconds / 5 + 1)) -max_len=40000 -timeout=20 -rss_limit_mb=4096 \
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
