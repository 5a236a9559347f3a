#!/usr/bin/env bash
# Puts all that run.sh needs into a folder that can be copied to a machine without compiler and network: Larder, its
# load client, cuda_curve, the stand-in for the CUDA driver that --rehearse uses, memcached and Valkey with libraries.
#
#     bench-compare/device/prepare.sh        # PROFILE=dev builds faster, for a rehearsal
#
# The folder, bench-compare/device/.carry, may have MIB_MAX MiB. The processor there is of the same kind as the one
# here, and its C library is not older.
set -euo pipefail
cd "$(dirname "$0")/../.."
carry=bench-compare/device/.carry
peers=${LARDER_TOOLS:-.tools}/peers
profile=${PROFILE:-release}
built=target/$profile
[ "$profile" = dev ] && built=target/debug
mib_max=${MIB_MAX:-64}

tests/peers.sh || [ -x "$peers/memcached" ] || echo "prepare: without memcached and Valkey"
cargo build --locked --profile "$profile" -p larder --bins
cargo build --locked --profile "$profile" -p larder-bench-compare --bins
cargo build --locked --profile "$profile" -p larder-laboratory --example cuda_curve

rm -rf "$carry"
mkdir -p "$carry/stand-in" "$carry/peers/lib"
for program in larder larder-bench-compare examples/cuda_curve; do
    strip -o "$carry/$(basename "$program")" "$built/$program"
done
c++ -std=c++17 -O2 -fPIC -shared -pthread -I crates/cuda/kernels -x c++ crates/cuda/tests/stand_in_driver/driver.cpp \
    -o "$carry/stand-in/libcuda.so.1"
ln -s libcuda.so.1 "$carry/stand-in/libcuda.so"

# The peers run with the loader and the libraries of their own suite.
for program in memcached valkey-server; do
    file=$peers/root/usr/bin/$program
    [ -e "$file" ] || continue
    loader=$(find "$(realpath "$peers")/root" -name 'ld-linux*.so.*' -print -quit)
    libraries=$(dirname "$loader"):$(dirname "$(find "$(realpath "$peers")/root" -name libc.so.6 -print -quit)")
    "$loader" --library-path "$libraries" --list "$file" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' |
        xargs -I{} cp -Lu {} "$carry/peers/lib/"
    cp -Lu "$loader" "$carry/peers/lib/loader"
    cp -L "$file" "$carry/peers/lib/$program"
    printf '#!/bin/sh\nlib=$(dirname "$(readlink -f "$0")")/lib\nexec "$lib/loader" --argv0 %s %s\n' "$program" \
        "--library-path \"\$lib\" \"\$lib/$program\" \"\$@\"" >"$carry/peers/$program"
    chmod +x "$carry/peers/$program"
    strip "$carry/peers/lib/$program"
done
git rev-parse --short HEAD >"$carry/commit"

mib=$(($(du -sk "$carry" | cut -f 1) / 1024 + 1))
echo "prepare: $carry has $mib MiB"
[ "$mib" -le "$mib_max" ] || { echo "prepare: more than $mib_max MiB (MIB_MAX)" >&2; exit 1; }
