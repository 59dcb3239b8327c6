#!/bin/sh
# Runs inside the lab (script/test-lab kvm-guests): guests under KVM of an old and a new QEMU, a user's
# Debian, boots from each bus, and two profiles.
. /vdisklab/files/lab_checks.sh
# shellcheck disable=SC2086
{
    mkdir -p /opt && tar -xf "$carried/qemu10.tar" -C /opt
    measured "QEMU of the system and of Debian's backports" 4 raw/none qcow2/writeback \
        --qemu qemu-system-x86_64 --qemu /opt/qemu10/qemu $short
    measured "a user's Debian" 1 raw/none --guest "$carried/debian.qcow2" $short
    measured "profile boot, from each bus" 6 raw/none/virtio raw/none/scsi raw/none/nvme \
        raw/none/usb raw/none/ide raw/none/sata --profile boot
}
measured "profile quick" 2 raw/none raw/writeback --profile quick --size 64M --runtime 1 --ramp 0 \
    --page-cache cold
measured "profile sync-heavy, with SQLite" 1 raw/writeback --profile sync-heavy --size 160M \
    --runtime 1 --ramp 0 --page-cache cold
echo "failed: $failed"
[ $failed = 0 ]
