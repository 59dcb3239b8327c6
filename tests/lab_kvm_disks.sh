#!/bin/sh
# Runs inside the lab (script/test-lab kvm-disks): every bus, cache mode, aio mode and format, an old
# and a new QEMU, a user's Debian and four profiles, with guests under KVM.
. /vdisklab/files/lab_checks.sh
buses="raw/none/virtio raw/none/scsi raw/none/nvme raw/none/usb raw/none/ide raw/none/sata"
# shellcheck disable=SC2086
{
    measured "six buses" 6 $buses $short
    measured "cache modes, aio, iothread" 9 raw/default raw/none raw/writeback raw/writethrough \
        raw/directsync raw/unsafe raw/none/virtio:aio=native raw/none/virtio:aio=io_uring \
        raw/none/virtio:iothread=on $short
    measured "formats" 2 qcow2/none null/default $short
    mkdir -p /opt && tar -xf "$carried/qemu10.tar" -C /opt
    measured "QEMU of the system and of Debian's backports" 4 raw/none qcow2/writeback \
        --qemu qemu-system-x86_64 --qemu /opt/qemu10/qemu $short
    measured "a user's Debian" 1 raw/none --guest "$carried/debian.qcow2" $short
    measured "profile boot, from each bus" 6 $buses --profile boot
}
measured "profile quick" 2 raw/none raw/writeback --profile quick --size 64M --runtime 1 --ramp 0 \
    --page-cache cold
measured "profile sync-heavy, with SQLite" 1 raw/writeback --profile sync-heavy --size 64M \
    --runtime 1 --ramp 0 --page-cache cold
echo "failed: $failed"
[ $failed = 0 ]
