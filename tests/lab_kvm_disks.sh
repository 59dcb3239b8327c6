#!/bin/sh
# Runs inside the lab (script/test-lab kvm-disks): every bus, cache mode, aio mode and format, with
# guests under KVM.
. /vdisklab/files/lab_checks.sh
# shellcheck disable=SC2086
{
    measured "six buses" 6 raw/none/virtio raw/none/scsi raw/none/nvme raw/none/usb raw/none/ide \
        raw/none/sata $short
    measured "cache modes, aio, iothread" 9 raw/default raw/none raw/writeback raw/writethrough \
        raw/directsync raw/unsafe raw/none/virtio:aio=native raw/none/virtio:aio=io_uring \
        raw/none/virtio:iothread=on $short
    measured "formats" 2 qcow2/none null/default $short
}
echo "failed: $failed"
[ $failed = 0 ]
