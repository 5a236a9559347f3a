#!/usr/bin/env bash
# tests/needs.sh REASON TEST -- COMMAND...
# Runs COMMAND if the shell command TEST succeeds; else skips it with REASON, or fails where CI=true.
set -euo pipefail
reason=$1
condition=$2
shift 3
if bash -c "$condition" >/dev/null 2>&1; then
    exec "$@"
fi
case "${CI:-}" in
1 | true | yes)
    echo "FAIL: $reason"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
    ;;
esac
echo "skip: $reason"
echo "0 passed, 0 failed, 1 skipped"
