#!/usr/bin/env bash
# Makes hitmap.ptx from hitmap.cu and port.h. With --check it changes nothing and says whether hitmap.ptx is up to date:
# the checksum of both sources is compared on every machine, and the text itself where clang-16 is installed.
#
# sm_50 and clang 16 produce PTX 4.2, which every driver since CUDA 7.0 loads and compiles for its device.
set -euo pipefail
cd "$(dirname "$0")"
CLANG=${CLANG:-clang-16}

sum=$(cat hitmap.cu port.h | cksum)
head="// Made by regenerate.sh from hitmap.cu and port.h, cksum $sum"

compile() {
    echo "$head"
    "$CLANG" -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-gpu-arch=sm_50 -O3 -std=c++17 \
        -Wall -Wextra -Werror -S hitmap.cu -o -
}

if [ "${1:-}" != --check ]; then
    made=$(compile)
    printf '%s\n' "$made" >hitmap.ptx
    exit
fi
if [ "$(head -n 1 hitmap.ptx)" != "$head" ]; then
    echo "hitmap.ptx is not of this hitmap.cu and port.h: run $0" >&2
    exit 1
fi
if ! command -v "$CLANG" >/dev/null; then
    echo "$CLANG is not installed: the text of hitmap.ptx is not compared"
    exit
fi
if ! diff <(compile) hitmap.ptx; then
    echo "hitmap.ptx is not what $CLANG makes: run $0" >&2
    exit 1
fi
