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

dead_host() { # CACHE-MODE [-c flush]: QEMU writes to a full raw image, and the host dies
    begin raw -c 'write -q 0 8M'
    die "raw-full" "$@"
}

dead_host_with_subclusters() { # CACHE-MODE: the same with a qcow2 that grows
    begin qcow2,extended_l2=on
    die "qcow2-thin with subclusters" "$@"
}

dead_host_without_subclusters() { # 64 KiB, then the first 40 KiB of them again: are the others there?
    begin qcow2
    (qemu-io -t none -f qcow2 -c 'write 0 64k' -c 'write -P 7 64k 64k' -c flush -c 'write 64k 40k' -c flush \
        -c abort host/t || true) >/dev/null 2>&1
    crash
    show "host dead, zfs, qcow2-thin, none, flush" 104k 24k
}

dead_host_without_qemu() { # 4 KiB behind 64 KiB, the 64 KiB again, fdatasync: is the file as long?
    make_pool
    truncate -s 256k host/t
    zpool export "$pool"
    zpool import -d "$work/disk" -o cachefile=none "$pool"
    dd if=/dev/zero of=host/t bs=64k seek=4 count=1 conv=notrunc,fdatasync status=none
    dd if=/dev/zero of=host/t bs=4k seek=82 count=1 conv=notrunc status=none
    dd if=/dev/zero of=host/t bs=64k seek=4 count=1 conv=notrunc,fdatasync status=none
    crash
    name="host dead, zfs, dd instead of QEMU, fdatasync"
    if test "$(stat -c %s host/t)" = 339968; then echo "$name: kept"; else echo "$name: lost"; fi
    pull_down
}

make_pool() {
    rm -f disk/* after/*
    truncate -s 128M disk/disk
    zpool create -f -o ashift=12 -o cachefile=none -m "$work/host" "$pool" "$work/disk/disk"
}

begin() { # FORMAT[,OPTION] QEMU-IO-ARGUMENTS...: a pool with an image, all of it durable
    make_pool
    format=${1%%,*}
    case "$1" in *,*) options="-o ${1#*,}" ;; *) options="" ;; esac
    shift
    qemu-img create -q -f "$format" $options host/t 8M
    qemu-io -f "$format" "$@" -c flush host/t
    zpool export "$pool"
    zpool import -d "$work/disk" -o cachefile=none "$pool"
}

die() { # IMAGE CACHE-MODE [-c flush]
    name="host dead, zfs, $1, $2${4:+, $4}"
    mode=$2
    shift 2
    (qemu-io -t "$mode" -f "$format" -c 'write -P 7 1M 4k' "$@" -c abort host/t || true) >/dev/null 2>&1
    crash
    show "$name" 1M 4k
}

crash() { # what is on the disk now is what the next import finds
    cp disk/disk after/disk
    zpool export "$pool"
    zpool import -f -d "$work/after" -o cachefile=none "$pool"
}

show() { # CASE OFFSET LENGTH
    if qemu-io -r -f "$format" -c "read -P 7 $2 $3" host/t 2>&1 | head -n 1 | grep -q '^read [0-9]'
    then echo "$1: kept"; else echo "$1: lost"; fi
    pull_down
}

dead_host none
dead_host none -c flush
dead_host writeback
dead_host writeback -c flush
dead_host writethrough
dead_host unsafe -c flush
dead_host_with_subclusters writethrough
dead_host_with_subclusters none -c flush
dead_host_without_subclusters
dead_host_without_qemu
