#!/bin/sh
# Shows what a dead host, or a power cut, costs on ZFS, without vdisklab:
#     sh zfs.sh               (as root, in an empty directory; needs QEMU, and ZFS or zfs-fuse)
# The pool is on a file. A copy of the file, made when QEMU has answered, is what the disk holds: ZFS
# writes nothing out before a flush or its next transaction group. Each line is a case and its outcome.
set -eu
test "$(id -u)" = 0 || { echo "run this as root: it makes a pool" >&2; exit 1; }
zpool list >/dev/null || { echo "start ZFS first, for example: service zfs-fuse start" >&2; exit 1; }
work=$(mktemp -d "$PWD/zfs.XXXXXX")
cd "$work"
mkdir host disk after
pool="recipe$$"
pull_down() {
    if zpool list "$pool" >/dev/null 2>&1; then zpool export -f "$pool"; fi
}
trap 'pull_down; cd /; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

dead_host() { # CACHE-MODE [-c flush]: QEMU writes, and the host dies
    rm -f disk/* after/*
    truncate -s 128M disk/disk
    zpool create -f -o ashift=12 -o cachefile=none -m "$work/host" "$pool" "$work/disk/disk"
    qemu-img create -q -f raw host/t 8M
    qemu-io -f raw -c 'write -q 0 8M' host/t
    zpool export "$pool" # all is durable
    zpool import -d "$work/disk" -o cachefile=none "$pool"
    name="host dead, zfs, raw-full, $1${3:+, $3}"
    mode=$1
    shift
    (qemu-io -t "$mode" -f raw -c 'write -P 7 1M 4k' "$@" -c abort host/t || true) >/dev/null 2>&1
    cp disk/disk after/disk
    zpool export "$pool"
    zpool import -f -d "$work/after" -o cachefile=none "$pool"
    if qemu-io -r -f raw -c 'read -P 7 1M 4k' host/t 2>&1 | head -n 1 | grep -q '^read 4096'
    then echo "$name: kept"; else echo "$name: lost"; fi
    pull_down
}

dead_host none
dead_host none -c flush
dead_host writeback
dead_host writeback -c flush
dead_host writethrough
dead_host unsafe -c flush
