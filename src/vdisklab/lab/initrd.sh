#!/bin/busybox sh
# The first program of a lab whose packages were only unpacked: it mounts the root file system.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
@MODULES@
tries=0
until [ -b /dev/vda ] || [ "$tries" = 300 ]; do
    tries=$((tries + 1))
    usleep 100000
done
mount -t ext4 /dev/vda /root || echo "lab: there is no root file system" >/dev/console
mount --move /dev /root/dev
umount /proc
exec switch_root /root /sbin/vdisklab-lab
