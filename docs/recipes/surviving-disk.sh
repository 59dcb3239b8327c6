#!/bin/sh
# Shows what dies with QEMU, and what with its host, if the disk loses nothing, without vdisklab:
#     sh surviving-disk.sh         (as root, in an empty directory; needs QEMU, ext4, XFS and btrfs)
# The host's disk is a file on a loop device. What the file holds when QEMU has answered is what a
# disk with power-loss protection holds. Each line is a case and its outcome.
set -eu
test "$(id -u)" = 0 || { echo "run this as root: it mounts file systems" >&2; exit 1; }
work=$(mktemp -d "$PWD/surviving-disk.XXXXXX")
cd "$work"
mkdir host cut
pull_down() {
    for place in cut host; do if mountpoint -q $place; then umount $place; fi; done
    rm -f host/*
}
trap 'pull_down; cd /; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

image() { # KIND: makes host/t, all durable
    format=${1%%-*}
    qemu-img create -q -f "$format" host/t 8M
    case $1 in
    *-full | *-snapshot | *-overlay*) qemu-io -f "$format" -c 'write -q 0 8M' host/t ;;
    esac
    case $1 in
    *-snapshot) qemu-img snapshot -c before host/t ;;
    *-overlay*) mv host/t host/base ;;
    esac
    case $1 in
    *-overlay) qemu-img create -q -f qcow2 -b base -F qcow2 host/t ;;
    *-overlay-subclusters)
        qemu-img create -q -f qcow2 -o extended_l2=on,cluster_size=128k -b base -F qcow2 host/t ;;
    esac
    sync -f host
}
write() { # CACHE-MODE [-c flush]: QEMU writes, and ends as it does when it is killed
    opened="driver=$format,file.driver=file,file.filename=host/t"
    case $1 in
    none) opened=$opened,cache.direct=on ;;
    unsafe) opened=$opened,cache.no-flush=on ;;
    directunsafe) opened=$opened,cache.direct=on,cache.no-flush=on ;;
    esac
    shift
    (qemu-io -t writeback --image-opts "$opened" -c 'write -P 7 1M 4k' "$@" -c abort || true) >/dev/null 2>&1
}
outcome() { # NAME IMAGE: whether the image holds what was written
    if qemu-io -r -f "$format" -c 'read -P 7 1M 4k' "$2" 2>&1 | head -n 1 | grep -q '^read 4096'
    then echo "$1: kept"; else echo "$1: lost"; fi
    pull_down
}
killed() { # KIND CACHE-MODE [-c flush]
    image "$1"
    name="QEMU killed, $1, $2${4:+, $4}"
    shift
    write "$@"
    outcome "$name" host/t
}
plug_in() { # FILE-SYSTEM[:OPTION]: mounts a new one
    rm -f disk && truncate -s 320M disk && "mkfs.${1%:*}" -q disk >/dev/null
    # the file system's own timer shall not write what nobody flushed
    case $1 in
    xfs) mount -o loop disk host ;;
    *:*) mount -o "loop,commit=300,${1#*:}" disk host ;;
    *) mount -o loop,commit=300 disk host ;;
    esac
}
host_dies() {
    cp disk after
    umount host
    mount -o loop after cut
}
dead_host() { # FILE-SYSTEM[:OPTION] KIND CACHE-MODE [-c flush]
    plug_in "$1"
    image "$2"
    name="host dead, $1, $2, $3${5:+, $5}"
    shift 2
    write "$@"
    host_dies
    outcome "$name" cut/t
}
database() { # FILE-SYSTEM SYNCHRONOUS: two transactions with a rollback journal, as in a shared directory
    plug_in "$1"
    python3 - "$2" <<'PYTHON'
import os, sqlite3, sys
database = sqlite3.connect("host/t.db", isolation_level=None)
for statement in (f"pragma synchronous={sys.argv[1]}", "create table t(n)",
                  "insert into t values(1)", "insert into t values(2)"):
    database.execute(statement)
os._exit(0)
PYTHON
    host_dies
    found=$(python3 -c 'import sqlite3
print(*sqlite3.connect("cut/t.db").execute("select max(n) from t").fetchone())')
    if [ "$found" = 2 ]; then found=kept; else found=lost; fi
    echo "host dead, $1, SQLite in a directory, synchronous=$2: $found"
    pull_down
}

killed raw-thin writeback
killed qcow2-full none
killed qcow2-thin none
killed qcow2-thin none -c flush
killed qcow2-thin unsafe -c flush
killed qcow2-thin unsafe
killed qcow2-overlay none
killed qcow2-overlay-subclusters none
killed qcow2-snapshot none
dead_host ext4 raw-full none
dead_host ext4 raw-full writeback
dead_host ext4 raw-full writeback -c flush
dead_host ext4 raw-full unsafe -c flush
dead_host ext4 raw-full directunsafe -c flush
dead_host ext4 raw-thin none
dead_host ext4 raw-thin directunsafe -c flush
dead_host ext4 qcow2-full none
dead_host ext4 qcow2-thin none
dead_host ext4 qcow2-overlay none
dead_host ext4 qcow2-overlay none -c flush
dead_host ext4 qcow2-overlay-subclusters none
dead_host ext4 qcow2-snapshot none
dead_host ext4:data=journal raw-full none
dead_host ext4:data=journal raw-full none -c flush
dead_host xfs raw-full none
dead_host xfs raw-full writeback
dead_host xfs raw-thin none
dead_host xfs raw-thin none -c flush
dead_host xfs qcow2-thin none
dead_host btrfs raw-full none
dead_host btrfs raw-full none -c flush
dead_host btrfs raw-full unsafe -c flush
for system in ext4 xfs btrfs; do
    database $system full
    database $system extra
done
