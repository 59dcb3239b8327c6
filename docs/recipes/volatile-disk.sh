#!/bin/sh
# Shows what a power cut above a disk with a volatile write cache costs, without vdisklab:
#     sh volatile-disk.sh     (as root, in an empty directory; needs QEMU, FUSE, ext4, XFS, btrfs)
# The disk is a qcow2 overlay that qemu-storage-daemon serves: the tables that find a new block
# stay in the daemon's memory until a flush, as data stay in a disk's write cache. A copy of its
# file is what a power cut leaves at that moment. Each line is a case and its outcome.
set -eu
test "$(id -u)" = 0 || { echo "run this as root: it mounts file systems" >&2; exit 1; }
work=$(mktemp -d "$PWD/volatile-disk.XXXXXX")
cd "$work"
mkdir host cut
daemon='' loop='' guest=''
pull_down() {
    if [ "$guest" ]; then kill -9 "$guest" && wait "$guest" 2>/dev/null || true; fi
    for place in cut host; do mountpoint -q $place && umount $place; done
    if [ "$loop" ]; then
        echo 'write back' >"/sys/block/${loop#/dev/}/queue/write_cache"
        losetup -d "$loop"
    fi
    if [ "$daemon" ]; then
        while losetup -a | grep -q "$work/disk"; do sleep 0.05; done
        kill "$daemon" && wait "$daemon" || true
    fi
    daemon='' loop='' guest=''
}
trap 'pull_down; cd /; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

base() { # FILE-SYSTEM: the state before each case, a full raw image, all durable
    rm -f base && truncate -s 320M base
    # nothing that the file system does by itself shall flush the disk
    case $1 in
    ext4) mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 base ;;
    *) "mkfs.$1" -q base >/dev/null ;;
    esac
    mount -o loop base host
    qemu-img create -q -f raw host/t.raw 8M
    qemu-io -f raw -c 'write -q 0 8M' host/t.raw
    # A boot sector: INT 13h writes itself to sector 63 of the disk, then 'K' (or 'E') to port e9h.
    printf '\061\300\216\330\216\300\270\001\003\273\000\174\271\077\000\272\200\000\315\023\260\113\163\002\260\105\346\351\364\353\375' |
        dd of=host/t.raw conv=notrunc status=none
    printf '\125\252' | dd of=host/t.raw bs=1 seek=510 conv=notrunc status=none
    umount host
}

plug_in() {
    qemu-img create -q -f qcow2 -o cluster_size=4k -b base -F raw disk.qcow2
    : >disk
    qemu-storage-daemon \
        --blockdev driver=qcow2,node-name=d,file.driver=file,file.filename=disk.qcow2 \
        --export type=fuse,id=e,node-name=d,mountpoint="$work/disk",writable=on &
    daemon=$!
    until [ -s disk ]; do sleep 0.05; done
    loop=$(losetup -f --show disk)
}
cut_power() {
    cp disk.qcow2 after.qcow2
    pull_down # no second file system with the same UUID
    qemu-img convert after.qcow2 after
    mount -o loop after cut
}
outcome() { # NAME COMMAND: whether the command finds the data
    if eval "$2" | head -n 1 | grep -q '^read 4096\|^2$'; then echo "$1: kept"; else echo "$1: lost"; fi
    pull_down
}
written='qemu-io -r -f raw -c "read -P 7 1M 4k" cut/t.raw' # says first if the pattern is wrong

image() { # NAME MOUNT-OPTIONS CACHE-MODE [-c flush]: a write by QEMU
    name=$1 options=$2 mode=$3
    shift 3
    plug_in
    mount -o "$options" "$loop" host
    # abort: QEMU gets no chance to flush when it closes the image
    (qemu-io -t "$mode" -f raw -c 'write -P 7 1M 4k' "$@" -c abort host/t.raw || true) >/dev/null 2>&1
    cut_power
    outcome "$name" "$written"
}
boot() { # NAME CACHE-MODE DEVICE: a boot sector's write; a BIOS never flushes
    name=$1
    plug_in
    mount -o commit=300 "$loop" host
    : >answer
    qemu-system-x86_64 -nodefaults -display none -accel tcg -debugcon file:answer \
        -drive "if=none,id=d,format=raw,file=host/t.raw,cache=$2" -device "$3,drive=d" &
    guest=$!
    until [ -s answer ]; do kill -0 "$guest" && sleep 0.05; done
    cut_power
    outcome "$name" 'cmp -s -n 512 -i 0:31744 cut/t.raw cut/t.raw && echo 2'
}
queue() { # NAME SETTING: write and fsync on a disk whose queue/write_cache says so
    plug_in
    echo "$2" >"/sys/block/${loop#/dev/}/queue/write_cache"
    head -c 4096 /dev/zero | tr '\0' '\7' |
        dd of="$loop" bs=4k seek=10000 oflag=direct conv=fsync,notrunc status=none
    cp disk.qcow2 after.qcow2
    outcome "$1" 'qemu-io -r -f qcow2 -c "read -P 7 40960000 4k" after.qcow2'
}
database() { # NAME JOURNAL SYNCHRONOUS: two transactions of SQLite
    plug_in
    mount "$loop" host
    python3 - "$2" "$3" <<'PYTHON'
import os, sqlite3, sys
database = sqlite3.connect("host/t.db", isolation_level=None)
for statement in (f"pragma journal_mode={sys.argv[1]}", f"pragma synchronous={sys.argv[2]}",
                  "create table t(n)", "insert into t values(1)", "insert into t values(2)"):
    database.execute(statement)
os._exit(0)
PYTHON
    cut_power
    outcome "$1" "python3 -c 'import sqlite3
print(*sqlite3.connect(\"cut/t.db\").execute(\"select max(n) from t\").fetchone())'"
}

base ext4
image 'cache=none, no flush' defaults none
image 'cache=none, flush' defaults none -c flush
image 'cache=writethrough, no flush' defaults writethrough
image 'cache=unsafe, flush' defaults unsafe -c flush
image 'cache=none, flush, ext4 with barrier=0' barrier=0 none -c flush
image 'cache=writethrough, no flush, ext4 with barrier=0' barrier=0 writethrough
for option in journal writeback; do
    image "cache=none, no flush, ext4 with data=$option" "data=$option" none
    image "cache=none, flush, ext4 with data=$option" "data=$option" none -c flush
done
boot 'boot sector, ide, cache=none' none ide-hd
boot 'boot sector, ide, cache=none, write-cache=off' none ide-hd,write-cache=off
boot 'boot sector, ide, cache=writethrough' writethrough ide-hd
boot 'boot sector, ide, cache=writethrough, write-cache=on' writethrough ide-hd,write-cache=on
boot 'boot sector, virtio, cache=none' none virtio-blk-pci
boot 'boot sector, virtio, cache=unsafe' unsafe virtio-blk-pci
queue 'fsync, queue/write_cache is "write back"' 'write back'
queue 'fsync, queue/write_cache is "write through"' 'write through'
database 'SQLite, rollback journal, synchronous=FULL' delete full
database 'SQLite, rollback journal, synchronous=EXTRA' delete extra
for system in xfs btrfs; do
    base $system
    image "$system, cache=none, no flush" defaults none
    image "$system, cache=none, flush" defaults none -c flush
    image "$system, cache=unsafe, flush" defaults unsafe -c flush
done
image 'cache=none, flush, btrfs with nobarrier' nobarrier none -c flush
