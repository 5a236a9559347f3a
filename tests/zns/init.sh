#!/bin/busybox sh
# The first process of the virtual machine: loads the modules, makes a zoned null_blk, runs the checks, switches off.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do
    options=
    [ "$module" = null_blk ] && options=nr_devices=0
    insmod "/modules/$module.ko" $options || echo "note: $module was not loaded"
done </modules/order
mount -t configfs configfs /sys/kernel/config

# 16 zones of 4 MiB in memory, the first one without a write pointer, 5 writable at a time.
null=/sys/kernel/config/nullb/nullb0
if mkdir "$null"; then
    cd "$null" || exit
    echo 1 >zoned
    echo 1 >memory_backed
    echo 4096 >blocksize
    echo 64 >size
    echo 4 >zone_size
    echo 1 >zone_nr_conv
    echo 5 >zone_max_active
    echo 1 >power
    cd / || exit
fi
seconds=0
while [ ! -b /dev/nvme0n1 ] && [ "$seconds" -lt 30 ]; do
    sleep 1
    seconds=$((seconds + 1))
done
echo "note: kernel $(uname -r)"
RUST_BACKTRACE=0 zns_contract --forbid-io-uring /dev/nvme0n1 /dev/nullb0 "$null"
poweroff -f
