#!/usr/bin/env bash
# tests/miri.sh PACKAGE...
# Runs the packages' tests under Miri, all packages at the same time: Miri has one thread for each.
set -euo pipefail
shown=$(mktemp -d)
trap 'rm -rf "$shown"' EXIT
packages=("${@/#/--package=}")
cargo +nightly miri test --locked "${packages[@]}" --no-run
declare -A running
for package in "$@"; do
    cargo +nightly miri test --locked --package "$package" >"$shown/$package" 2>&1 &
    running[$package]=$!
done
status=0
for package in "$@"; do
    wait "${running[$package]}" || status=$?
    cat "$shown/$package"
done
exit "$status"
