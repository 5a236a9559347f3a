#!/usr/bin/env bash
# tests/miri.sh PACKAGE...
# Runs the packages' tests under Miri: unit tests beside integration tests, because Miri has one thread for a run. Each
# run names all packages, so that both need the same dependencies.
set -euo pipefail
packages=("${@/#/--package=}")
test=(cargo +nightly miri test --locked "${packages[@]}")
"${test[@]}" --lib --test '*' --no-run
shown=$(mktemp)
trap 'rm -f "$shown"' EXIT
"${test[@]}" --test '*' >"$shown" 2>&1 &
integration=$!
status=0
"${test[@]}" --lib || status=$?
wait "$integration" || status=$?
cat "$shown"
exit "$status"
