#!/usr/bin/busybox sh
# The first process of a guest whose system lies on the measured disk: loads the drivers of all
# buses, finds that disk by the serial number on the kernel's command line, and starts its system.
/usr/bin/busybox mount -a
export PATH=/usr/sbin:/usr/bin HOME=/root
mkdir -p /run/vdisklab /sysroot

read -r modules </etc/vdisklab/root-modules
read -r more </etc/vdisklab/disk-modules
# shellcheck disable=SC2086  # one word per module
modprobe -a virtio_pci $modules $more || echo "not all of these drivers could be loaded: $modules $more"

read -r line </proc/cmdline
serial=${line##*vdisklab.root=}
serial=${serial%% *}
found=$(/usr/lib/vdisklab/find-disk "$serial" 30) || exec echo "no disk to boot from"
device=${found#device=}
device=${device%%size_bytes*}
# shellcheck disable=SC2086  # without the line feed
mount -t ext4 $device /sysroot || exec echo "$device cannot be mounted"
for place in dev proc sys run; do
    mount --move "/$place" "/sysroot/$place"
done
# When the first process ends the kernel panics, and QEMU ends (-no-reboot).
exec switch_root /sysroot /usr/sbin/init
