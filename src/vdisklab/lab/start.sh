#!/bin/sh
# The lab's host comes up: mounts what programs expect, runs one job, says how it ended.
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TERM=linux
mountpoint -q /dev || mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup /sys/fs/cgroup 2>/dev/null && echo +io >/sys/fs/cgroup/cgroup.subtree_control
mount -o remount,rw /
hostname vdisklab-lab
mkdir -p /run/lock /run/lvm
/lib/systemd/systemd-udevd --daemon
udevadm trigger --action=add --subsystem-match=block --subsystem-match=virtio-ports
udevadm trigger --action=add --subsystem-match=misc
udevadm settle --timeout=60
for module in virtio_console zfs loop dm_mod dm_thin_pool dm_crypt raid0 raid1 raid456 raid10 xfs \
    btrfs fuse button @KVM_MODULES@; do
    modprobe -q "$module"
done
modprobe -q zram num_devices=0
udevadm settle --timeout=60
port=/dev/virtio-ports/job
[ -e "$port" ] || port=/dev/@CONSOLE@
disk() { readlink -f "/dev/disk/by-id/virtio-$1"; }
mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$(disk work)" >/dev/null &&
    mount "$(disk work)" /work
# Our state lies on the work disk, for the root image is thrown away and small.
mkdir -p /work/state
export VDISKLAB_STATE=/work/state TMPDIR=/work PYTHONPATH=/vdisklab/packages
export PYTHONDONTWRITEBYTECODE=1 PYTHONFAULTHANDLER=1 COLUMNS=120
mkdir -p /usr/local/bin
printf '#!/bin/sh\nexec python3 -m vdisklab "$@"\n' >/usr/local/bin/vdisklab
chmod +x /usr/local/bin/vdisklab
if [ -e /vdisklab/job ]; then
    while echo >/dev/virtio-ports/pulse; do sleep 5; done &
    # Opened once: it refuses a second opener, and the job may leave a process that writes to it.
    exec 3>"$port"
    echo "@lab up $(cut -d' ' -f1 /proc/uptime)" >&3
    cd /work && sh /vdisklab/job >&3 2>&1 3>&-
    status=$?
    [ "$status" -le 128 ] || dmesg | grep -E 'segfault|general protection|trap|Out of memory' | tail -n 3 >&3
    echo "@lab done $status $(cut -d' ' -f1 /proc/uptime)" >&3
    sleep 1
else
    echo "this is the lab: vdisklab, zpool, lvm, mdadm, cryptsetup; empty disks are" \
        "/dev/disk/by-id/virtio-disk*; exit ends it"
    cd /work && setsid --ctty sh -i </dev/@CONSOLE@ >/dev/@CONSOLE@ 2>&1
fi
sync
echo o >/proc/sysrq-trigger
sleep 60
