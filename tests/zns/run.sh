#!/usr/bin/env bash
# Checks the zoned backend on zoned devices: boots a stock Debian kernel in software emulation (no KVM, no privileges)
# with an emulated NVMe ZNS namespace and a zoned null_blk, and runs crates/flash/examples/zns_contract.rs in it.
#
# What is needed (kernel, QEMU, busybox) is downloaded by apt-get and unpacked in .tools/zns, never installed.
# ZNS_KERNEL names another kernel's package, ZNS_SECONDS how long the machine may run.
# The last line says `N passed, N failed, N skipped`.
set -euo pipefail
cd "$(dirname "$0")/../.."
tools=$PWD/.tools/zns
target=x86_64-unknown-linux-gnu
boot_seconds=${ZNS_SECONDS:-400}

# As tests/needs.sh: what cannot be had is a skip, except where everything must be.
lack() {
    case "${CI:-}" in
    1 | true | yes) echo "FAIL: $1"; echo "0 passed, 1 failed, 0 skipped"; exit 1 ;;
    esac
    echo "skip: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}

[ "$(uname -m)" = x86_64 ] || lack "zoned devices are emulated on x86_64 only"
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || lack "no apt-get to download QEMU and a kernel with"

# The newest stock kernel that the package lists know.
kernel_package() {
    apt-cache search --names-only '^linux-image-[0-9][^ ]*-amd64$' | cut -d' ' -f1 |
        grep -Ev -- '-(cloud|rt)-amd64$|^linux-image-[0-9]+\.[0-9]+-amd64$' | sort -V | tail -n 1
}

download() {
    local archives=$tools/archives kernel
    mkdir -p "$archives/partial"
    kernel=${ZNS_KERNEL:-$(kernel_package)}
    if [ -z "$kernel" ]; then
        apt-get update -qq >/dev/null 2>&1 || true
        kernel=$(kernel_package)
    fi
    [ -n "$kernel" ] || { echo "no stock kernel in the package lists"; return 1; }
    # Dependencies too, but only those that the machine lacks. Nothing is locked: nothing is installed.
    apt-get install -d -y -qq --no-install-recommends -o Debug::NoLocking=1 -o Dir::Cache::archives="$archives" \
        qemu-system-x86 busybox-static >/dev/null || return 1
    (cd "$archives" && apt-get download -qq "$kernel" >/dev/null) || return 1
    rm -rf "$tools/unpacked"
    mkdir "$tools/unpacked"
    for package in "$archives"/*.deb; do dpkg-deb -x "$package" "$tools/unpacked" || return 1; done
    rm -rf "$archives"
}

mkdir -p "$tools"
if [ ! -e "$tools/complete" ]; then
    said=$(download 2>&1) || lack "QEMU, busybox or a kernel could not be downloaded: $(tail -n 1 <<<"$said")"
    touch "$tools/complete"
fi

# What was unpacked, or what was installed before and so was not downloaded.
find_tool() {
    find "$tools/unpacked" -type f -path "*bin/$1" -perm -u+x | grep . || command -v "$1"
}
qemu=$(find_tool qemu-system-x86_64) || lack "no qemu-system-x86_64"
busybox=$(find_tool busybox) || lack "no busybox"
ldd "$busybox" >/dev/null 2>&1 && lack "busybox is not static"
vmlinuz=$(find "$tools/unpacked/boot" -name 'vmlinuz-*' | head -n 1)
modules=$(find "$tools/unpacked" -type d -path '*/modules/*/kernel' | head -n 1)
[ -n "$vmlinuz" ] && [ -n "$modules" ] || lack "the kernel's package holds no kernel"

# The program, with nothing that it needs at run time.
RUSTFLAGS="-C target-feature=+crt-static" CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=0 \
    cargo build --quiet --locked -p larder-flash --example zns_contract --target "$target" \
    --target-dir target/zns
program=target/zns/$target/debug/examples/zns_contract

# A module and what it depends on, in the order in which they are loaded.
initramfs=$tools/initramfs
rm -rf "$initramfs"
mkdir -p "$initramfs"/{bin,modules,proc,sys,dev,tmp}
add_module() {
    local name=${1//-/_} file needed
    grep -qx "$name" "$initramfs/modules/order" 2>/dev/null && return 0
    file=$(find "$modules" -name "${name//_/[-_]}.ko*" | head -n 1)
    [ -n "$file" ] || return 0 # Built in.
    case "$file" in
    *.xz) xz -dc "$file" ;;
    *.zst) zstd -qdc "$file" ;;
    *) cat "$file" ;;
    esac >"$initramfs/modules/$name.ko"
    needed=$({ grep -ao 'depends=[[:alnum:]_,-]*' "$initramfs/modules/$name.ko" || true; } | head -n 1)
    needed=${needed#depends=}
    for other in ${needed//,/ }; do add_module "$other"; done
    echo "$name" >>"$initramfs/modules/order"
}
# The checksum module is found by name at run time: no dependency tells of it.
for module in crct10dif_generic crc64_rocksoft_generic nvme null_blk; do add_module "$module"; done

cp "$busybox" "$initramfs/bin/busybox"
cp "$program" "$initramfs/bin/zns_contract"
cp tests/zns/init.sh "$initramfs/init"
chmod +x "$initramfs/init"
(cd "$initramfs" && find . | "$busybox" cpio -o -H newc 2>/dev/null) | gzip -1 >"$tools/initramfs.gz"

# 16 zones of 4 MiB, of which 3 MiB can be written.
rm -f "$tools/namespace"
truncate -s 64M "$tools/namespace"
zones=zoned=true,zoned.zone_size=4M,zoned.zone_capacity=3M,zoned.max_open=6,zoned.max_active=8
log=$tools/log
libraries=$(find "$tools/unpacked" -name '*.so*' -printf '%h\n' | sort -u | tr '\n' ':')
folders=()
for folder in "$tools"/unpacked/usr/share/{qemu,seabios} /usr/share/{qemu,seabios}; do
    if [ -d "$folder" ]; then folders+=(-L "$folder"); fi
done
# What the firmware and the kernel say is of no interest unless there is no result.
boot() {
    LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:-} timeout "$boot_seconds" "$qemu" "${folders[@]}" \
        -accel tcg,thread=multi -cpu max -smp 2 -m 768 -no-reboot -net none \
        -display none -vga none -monitor none -serial stdio \
        -kernel "$vmlinuz" -initrd "$tools/initramfs.gz" -append "console=ttyS0 panic=-1 quiet" \
        -drive file="$tools/namespace",id=namespace,format=raw,if=none -device nvme,serial=zns,id=nvme \
        -device "nvme-ns,drive=namespace,bus=nvme,$zones,logical_block_size=4096,physical_block_size=4096" \
        </dev/null 2>&1 | tr -d '\r' | tee "$log" |
        awk '/^(note|ok|FAIL|skip)[: ]/ { begun = 1 } begun && !/^\[ / { print; fflush() }' || true
}
# The emulated machine's own start panics once in a while, before the program has begun: then it is started anew.
for _ in 1 2 3; do
    boot
    if grep -qE '^(note|ok|FAIL|skip)[: ]' "$log" || ! grep -q 'Kernel panic' "$log"; then break; fi
done
if ! tail -n 5 "$log" | grep -qE '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'; then
    echo "FAIL: the virtual machine ended without a result; its console said:"
    tail -n 20 "$log"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
grep -qE '^[1-9][0-9]* passed, 0 failed, ' "$log"
