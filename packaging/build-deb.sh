#!/bin/sh
# Makes the Debian package in target/debian. Needs cargo-deb (cargo install --locked cargo-deb).
#   packaging/build-deb.sh [PROGRAM]     a program that is built already replaces the release build
set -e
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=target
if [ -n "$1" ]; then
    [ "$1" -ef target/release/larder ] || install -D -m 755 "$1" target/release/larder
else
    cargo build --release --locked --bin larder
fi
packaging/build-pages.sh target/release/larder target/packaging
cargo deb --no-build
