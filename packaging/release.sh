#!/usr/bin/env bash
# Makes all that a release has in target/release-VERSION:
#   larder-VERSION-x86_64-linux.tar.gz    program, man pages, completions, documents: packaging/build-archive.py
#   larder-VERSION-x86_64-linux.debug.gz  the program's debug symbols
#   larder_*.deb, larder-dbgsym_*.ddeb    the Debian packages: packaging/build-deb.sh
#   larder-VERSION-x86_64-image.tar       the image: packaging/build-image.py
#   larder-VERSION.cdx.json               the crates that the program is made of (SBOM, CycloneDX)
#   SHA256SUMS                            the checksums of all these
# The same commit makes the same bytes in whatever folder it lies, on a machine with the same tools.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
need() { command -v "$1" >/dev/null || missing+=("$1 ($2)"); }
need cargo "https://rustup.rs"
need cargo-deb "cargo install --locked cargo-deb"
need cargo-cyclonedx "cargo install --locked cargo-cyclonedx"
need cc "apt-get install build-essential"
need git "apt-get install git"
need ldd "apt-get install libc-bin"
need objcopy "apt-get install binutils"
need python3 "apt-get install python3"
if [ "${#missing[@]}" -gt 0 ]; then
    printf 'a release needs %s\n' "${missing[@]}" >&2
    exit 1
fi
if [ -n "$(git status --porcelain)" ]; then
    echo "a release is made of a commit: commit or remove what git status shows" >&2
    exit 1
fi

version=$(cargo pkgid --locked | sed 's/.*[#@]//')
made=target/release-$version
export SOURCE_DATE_EPOCH CARGO_TARGET_DIR=target
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)

# The program and its debug symbols name no folder of this machine.
cargo fetch --locked --quiet
rust_flags=() c_flags=${CFLAGS:-}
for folder in "$PWD=larder-$version" "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do
    case $folder in *=*) ;; *) folder=$folder=crates ;; esac
    rust_flags+=("--remap-path-prefix=$folder")
    c_flags+=" -ffile-prefix-map=$folder"
done
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${rust_flags[*]}") CFLAGS=$c_flags \
    cargo build --release --locked --bin larder

rm -rf "$made" target/debian/larder*
packaging/build-archive.py target/release/larder "$made"
packaging/build-deb.sh target/release/larder
mv target/debian/larder* "$made"
packaging/build-image.py target/release/larder "$made/larder-$version-$(uname -m)-image.tar"

# cargo-cyclonedx writes beside each Cargo.toml, so it is given a copy.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git archive HEAD | tar -x -C "$copy"
(cd "$copy" && cargo cyclonedx -q --format json --spec-version 1.5 --override-filename larder.cdx)
sed "s|file://$copy|file:///larder-$version|" "$copy/larder.cdx.json" >"$made/larder-$version.cdx.json"

cd "$made"
sha256sum -- larder* >SHA256SUMS
cat SHA256SUMS
