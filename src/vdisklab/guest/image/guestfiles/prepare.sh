#!/usr/bin/busybox sh
# Runs in the background while the agent answers: mounts the image of programs and loads the drivers
# of all buses. Creates /run/vdisklab/ready when all is done, /run/vdisklab/failed on an error.
/usr/bin/busybox mkdir -p /run/vdisklab

fail() {
    echo "$1" >/run/vdisklab/failed
    exit 1
}

read -r modules </etc/vdisklab/root-modules
# shellcheck disable=SC2086  # one word per module
/usr/bin/busybox modprobe -a $modules || fail "modprobe $modules failed"

# By its serial number: a measured disk may have a lower slot.
root=
turns=0
while [ -z "$root" ]; do
    for disk in /sys/block/vd*; do
        # virtio_blk ends the number without a line feed, so `read` fails but has read it.
        serial=
        read -r serial <"$disk/serial"
        [ "$serial" = vdisklab-image ] && root=/dev/${disk##*/}
    done 2>/dev/null
    turns=$((turns + 1))
    [ $turns -lt 2000 ] || fail "the disk with the guest's programs (vdisklab-image) is missing"
    [ $turns -lt 20 ] || /usr/bin/busybox usleep 5000
done
/usr/bin/busybox mount -t ext4 -o ro,noatime "$root" /extra || fail "$root cannot be mounted"

# Reads fio and its libraries, so that its first start for a measurement is like each later one. Under
# emulation QEMU keeps the translated code, too. The kernel hands unknown words of its command line to the
# first process as variables.
[ -n "$vdisklab_without_fio" ] || /usr/bin/fio --version >/dev/null 2>&1

read -r modules </etc/vdisklab/disk-modules
# shellcheck disable=SC2086
/usr/bin/busybox modprobe -a $modules || fail "one of these drivers cannot be loaded: $modules"
echo >/run/vdisklab/ready
