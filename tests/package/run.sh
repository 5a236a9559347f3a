#!/usr/bin/env bash
# Tries the Debian package and the image as a new user would, in clean roots: tests/package/run.sh PROGRAM
#
# The roots are copies of a minimal Debian of this machine's suite, on a tmpfs in a mount namespace of its own, so that
# nothing is left on the machine. The minimal Debian, the archives that the package depends on, and cargo-deb are kept
# in .tools/package: the first run needs the network and some minutes, a later one does not.
# `rm -rf .tools/package` brings newer ones.
# The last line says `N passed, N failed, N skipped`.
set -euo pipefail
cd "$(dirname "$0")/../.."
program=${1:-target/release/larder}
tools=${LARDER_TOOLS:-$PWD/.tools}/package
image=target/image/larder.tar

# As tests/needs.sh: what cannot be had is a skip, except where everything must be.
lack() {
    case "${CI:-}" in
    1 | true | yes) echo "FAIL: $1"; echo "0 passed, 1 failed, 0 skipped"; exit 1 ;;
    esac
    echo "skip: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}

[ "$(id -u)" = 0 ] || lack "a clean root is made and entered by root only"
command -v apt-get >/dev/null || lack "no apt-get: this is no Debian"
unshare --mount --net --pid --uts --ipc --cgroup --fork mount -t cgroup2 cgroup2 /mnt 2>/dev/null ||
    lack "namespaces cannot be made here, or cgroups of version 2 not be mounted in them"
[ -x "$program" ] || lack "there is no $program (cargo build --release --locked)"
command -v ip >/dev/null || lack "there is no ip (apt-get install iproute2)"
mkdir -p "$tools/archives" "$tools/work"

if ! command -v debootstrap >/dev/null; then
    apt-get update -qq || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >/dev/null ||
        lack "debootstrap could not be installed"
fi

export PATH=$tools/cargo-deb/bin:$PATH
command -v cargo-deb >/dev/null || CARGO_TARGET_DIR=$tools/cargo-deb-target \
    cargo install --quiet --locked --root "$tools/cargo-deb" --version ^3 cargo-deb ||
    lack "cargo-deb could not be installed"
rm -rf "$tools/cargo-deb-target"

# The program is linked with this machine's libraries, so the root is of this machine's suite, from its own mirror.
make_root() {
    local suite mirror root=$tools/root.new
    local address='/^#/!s/.*\(https\?:[^ ]*\).*/\1/p'
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    for mirror in $(sed -n "$address" /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null); do
        rm -rf "$root"
        debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$tools/debootstrap.log" 2>&1 && break
    done
    chroot "$root" apt-get update -qq && chroot "$root" apt-get clean && mv "$root" "$tools/root"
}
[ -d "$tools/root" ] || make_root || lack "no minimal Debian could be made (see $tools/debootstrap.log)"

packaging/build-deb.sh "$program"
packaging/build-image.py "$program" "$image"
exec unshare --mount --propagation private \
    "${PYTHON:-python3}" tests/package/test_package.py --root "$tools/root" --archives "$tools/archives" \
    --work "$tools/work" --package target/debian/larder_*.deb --image "$image"
