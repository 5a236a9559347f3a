#!/usr/bin/env bash
# Brings the peers that Larder is compared with: memcached, Valkey and Redis of Debian's newest suite.
#
#     tests/peers.sh [FOLDER]        # .tools/peers if not given
#
# They run from FOLDER with the loader and the libraries of their own suite, beside whatever the machine has installed:
# FOLDER/memcached, FOLDER/valkey-server, FOLDER/redis-server, FOLDER/redis-benchmark and so on are scripts that start
# them. The packages come from the mirrors that apt on this machine is set up with, and apt checks their signatures.
# Where there is no apt, no network, or no such suite at these mirrors, one line says so, and the exit status is 1.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-${LARDER_TOOLS:-.tools}/peers}
suite=sid
packages=(memcached valkey-server valkey-tools redis-server redis-tools)
programs=(memcached valkey-server valkey-cli valkey-benchmark redis-server redis-cli redis-benchmark)

cannot() { echo "peers: $1; what compares Larder with memcached 1.6.45, Valkey and Redis is skipped"; exit 1; }

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
[ -e "$folder/complete" ] && exit 0
for program in apt-get apt-cache dpkg-deb; do
    command -v "$program" >/dev/null || cannot "there is no $program"
done

work=$folder/apt
rm -rf "$work" "$folder/root"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/packages" "$folder/root"
trap 'rm -rf "$work"' EXIT
apt=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::status=/dev/null
    -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User= -o Acquire::Languages=none
    -o Acquire::Retries=2 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20)

# Every address of the machine's own sources, in both of the forms that apt reads. The first that has the suite is used.
mirrors() {
    local files=(/etc/apt/sources.list /etc/apt/sources.list.d/*)
    sed -n -e 's/^URIs: *//p' "${files[@]}" 2>/dev/null | tr ' ' '\n'
    sed -n -e 's/^deb \(\[[^]]*\] *\)\{0,1\}\([^ ]*\) .*/\2/p' "${files[@]}" 2>/dev/null
}
found=
for mirror in $(mirrors | awk 'NF && !seen[$0]++'); do
    echo "deb $mirror $suite main" >"$work/sources.list"
    if apt-get "${apt[@]}" update >"$work/log" 2>&1 &&
        [ -n "$(apt-cache "${apt[@]}" pkgnames memcached)" ]; then
        found=$mirror
        break
    fi
done
[ -n "$found" ] || cannot "no mirror of this machine's apt has Debian's suite $suite, or none can be reached"

# What the programs load, without what only installs them or starts them as services.
mapfile -t needed < <(apt-cache "${apt[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
    --no-replaces --no-enhances "${packages[@]}" | grep -E '^(lib|gcc-[0-9]+-base)' |
    grep -vE '^lib(pam|perl|apt|debconf|newt|slang|textwrap|debian-installer)' | sort -u)
download() { (cd "$work/packages" && apt-get "${apt[@]}" download "$@" >>"$work/log" 2>&1); }
# A library that exists only as another package's promise cannot be downloaded: the others are, one by one.
download "${packages[@]}" "${needed[@]}" || for package in "${packages[@]}" "${needed[@]}"; do
    download "$package" || true
done
for package in "$work"/packages/*.deb; do
    [ -e "$package" ] || cannot "no package could be downloaded"
    dpkg-deb -x "$package" "$folder/root"
done

loader=$(find "$folder/root" -name 'ld-linux*.so.*' -print -quit)
libc=$(find "$folder/root" -name libc.so.6 -print -quit)
[ -n "$loader" ] && [ -n "$libc" ] || cannot "the packages have no loader"
triplet=$(basename "$(dirname "$libc")")
libraries=$folder/root/usr/lib/$triplet:$folder/root/lib/$triplet:$folder/root/usr/lib
for program in "${programs[@]}"; do
    file=$(find "$folder/root" -path "*/bin/$program" -print -quit)
    [ -n "$file" ] || continue
    printf '#!/bin/sh\nexec "%s" --argv0 %s --library-path "%s" "%s" "$@"\n' \
        "$loader" "$program" "$libraries" "$(readlink -f "$file")" >"$folder/$program"
    chmod +x "$folder/$program"
done
"$folder/memcached" -V >"$folder/complete.new" 2>&1 || cannot "memcached of the suite $suite does not start here"
for program in valkey-server redis-server; do
    "$folder/$program" --version | cut -d ' ' -f 1-3 >>"$folder/complete.new" || cannot "$program does not start here"
done
mv "$folder/complete.new" "$folder/complete"
sed 's/^/peers: /' "$folder/complete"
