#!/bin/sh
# The first program of the lab's image: it finds the disk with the program and goes on from there,
# so that the image, which takes minutes to make, knows nothing that changes often.
mount -t proc proc /proc
mount -t sysfs sysfs /sys
for serial in /sys/block/vd*/serial; do
    [ "$(cat "$serial")" = code ] || continue
    name="${serial#/sys/block/}"
    mount -t ext4 -o ro "/dev/${name%/serial}" /vdisklab
done
[ -f /vdisklab/start ] || echo "lab: there is no disk with the program" >/dev/console
exec /bin/sh /vdisklab/start
