#!/bin/sh
# What cargo calls in the place of rustc for the crates of the workspace (RUSTC_WORKSPACE_WRAPPER): they are
# instrumented for libFuzzer, so that coverage guides the inputs. All other crates are those that the tests use.
exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
