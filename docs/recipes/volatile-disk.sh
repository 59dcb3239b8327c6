#!/bin/sh
# Shows what a power cut above a disk with a volatile write cache costs, without vdisklab:
#     sh volatile-disk.sh          (as root, in an empty directory; needs QEMU, FUSE and ext4)
# The disk is a qcow2 overlay that qemu-storage-daemon serves: the tables that find a new block
# stay in the daemon's memory until a flush, as data stay in a disk's write cache. A copy of its
# file is what a power cut leaves at that moment. Each line is a case and its outcome.
set -eu
test "$(id -u)" = 0 || { echo "run this as root: it mounts file systems" >&2; exit 1; }
work=$(mktemp -d "$PWD/volatile-disk.XXXXXX")
cd "$work"
mkdir host cut
daemon='' loop=''
pull_down() {
    for place in cut host; do mountpoint -q $place && umount $place; done
    if [ "$loop" ]; then
        echo 'write back' >"/sys/block/${loop#/dev/}/queue/write_cache"
        losetup -d "$loop"
    fi
    if [ "$daemon" ]; then
        while losetup -a | grep -q "$work/disk"; do sleep 0.05; done
        kill "$daemon" && wait "$daemon" || true
    fi
    daemon='' loop=''
}
trap 'pull_down; cd /; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# The state before each case: ext4 with a full raw image, all durable.
truncate -s 64M base && mkfs.ext4 -q base
mount -o loop base host
qemu-img create -q -f raw host/t.raw 8M
qemu-io -f raw -c 'write -q 0 8M' host/t.raw
umount host

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
    qemu-img convert -U after.qcow2 after
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

image 'cache=none, no flush' defaults none
image 'cache=none, flush' defaults none -c flush
image 'cache=writethrough, no flush' defaults writethrough
image 'cache=unsafe, flush' defaults unsafe -c flush
image 'cache=none, flush, ext4 with barrier=0' barrier=0 none -c flush
queue 'fsync, queue/write_cache is "write back"' 'write back'
queue 'fsync, queue/write_cache is "write through"' 'write through'
database 'SQLite, rollback journal, synchronous=FULL' delete full
database 'SQLite, rollback journal, synchronous=EXTRA' delete extra
