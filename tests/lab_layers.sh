#!/bin/sh
# Runs inside the lab (script/test-lab): every host layer on the real kernel, what is refused, and
# the limit of ZFS's cache. Prints one line for each check; the last line counts what failed.
# STACKS and DISK_STACKS name others to build on slices and on whole disks; then that is all.
export PYTHONUNBUFFERED=1
failed=0
check() { # NAME COMMAND...: runs it and tells
    name="$1"
    shift
    begin=$(cut -d' ' -f1 /proc/uptime)
    if "$@" >/tmp/said 2>&1; then verdict=ok; else verdict=FAILED; failed=$((failed + 1)); fi
    end=$(cut -d' ' -f1 /proc/uptime)
    echo "$verdict $name ($(echo "$end $begin" | awk '{printf "%.1f", $1 - $2}') s)"
    [ "$verdict" = ok ] || sed 's/^/    /' /tmp/said | tail -8
}
clean_machine() {
    left="$({
        vgs --noheadings -o vg_name
        zpool list -H -o name
        dmsetup ls | grep -v '^No devices'
        ls -d /dev/md/vdl_* /sys/block/md* /work/vdisklab-*
        losetup -a
        grep vdisklab- /proc/self/mountinfo
    } 2>/dev/null)"
    [ -z "$left" ] || { echo "left: $left"; return 1; }
}
disks="$(ls /dev/disk/by-id/virtio-disk*)"
empty_disks() {
    for disk in $disks; do
        found="$(wipefs --no-act "$disk")"
        [ -z "$found" ] || { echo "$disk: $found"; return 1; }
    done
}
echo "kernel $(uname -r), lvm2 $(lvm version | awk '/LVM version/ {print $3}'), $(mdadm --version 2>&1), zfs $(cat /sys/module/zfs/version)"
cat >/tmp/layers.py <<'P'
"""Builds one stack, writes on it, prints what was read back, takes it down."""
import os, sys
from pathlib import Path
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.path.backing import BackingDevices
from vdisklab.path.disk_path import parse_path
from vdisklab.storage.site import open_site
from vdisklab.storage.stack import build_stack

text, arc, devices = sys.argv[1], int(sys.argv[2]) or None, sys.argv[3:]
backing = BackingDevices(tuple(map(Path, devices)), arc_bytes=arc)
size = 64 << 20
with open_ledger() as ledger, open_site(LocalHost(), ledger, Path("/work")) as site:
    with build_stack(site, parse_path(f"{text}/host").layers, size, "a", backing=backing) as target:
        where = target.image_path("file", "raw")
        with where.open("r+b" if where.is_block_device() else "wb") as file:
            file.write(os.urandom(size // 2)); file.flush(); os.fsync(file.fileno())
        for name, seen in sorted(target.properties.items()): print(f"  {name} {seen}")
P
build() { python3 /tmp/layers.py "$@" >/tmp/built 2>&1; status=$?; cat /tmp/built; return $status; }
for stack in ${STACKS:-ext4 lvm lvmthin lvm/xfs md:level=0 md:level=1/ext4 md:level=5/xfs md:level=10 lvmthin/btrfs \
    zfs zfs:raid=raidz1:recordsize=64k zfs:raid=mirror:compression=zstd zvol zvol/ext4 \
    zvol:volblocksize=16k:raid=raidz1 zfs:raid=raidz2:sync=disabled:primarycache=metadata \
    zvol:raid=raidz2:sync=always md:level=1/lvm/ext4 luks/xfs}; do
    check "$stack on slices" build "$stack" 0
    cat /tmp/built
    check "  nothing left" clean_machine
done
for stack in ${DISK_STACKS:-ext4 lvm md:level=5 zfs:raid=raidz1 zvol/xfs luks}; do
    check "$stack on whole disks" build "$stack" 0 $disks
    check "  nothing left" clean_machine
    check "  disks are empty" empty_disks
done
if [ -n "$STACKS" ]; then
    echo "failed: $failed"
    exit "$((failed > 0))"
fi
before="$(cat /sys/module/zfs/parameters/zfs_arc_max) $(awk '/^c_max/ {print $3}' /proc/spl/kstat/zfs/arcstats)"
check "the ARC is limited" build zfs 268435456
grep arc /tmp/built
after="$(cat /sys/module/zfs/parameters/zfs_arc_max) $(awk '/^c_max/ {print $3}' /proc/spl/kstat/zfs/arcstats)"
check "  and restored ($before)" [ "$before" = "$after" ]
# What is refused, as a user meets it: one sentence, the way out, and nothing changed.
refused() { # WORDS COMMAND...: must end with a sentence that has these words and a hint, no traceback
    words="$1"
    shift
    "$@" >/tmp/refusal 2>&1 && { echo "was not refused"; return 1; }
    sed 's/^/  /' /tmp/refusal >>/tmp/refusals
    grep -q "$words" /tmp/refusal || { cat /tmp/refusal; return 1; }
    grep -q '^hint: \|^ *hint' /tmp/refusal || { echo "no way out:"; cat /tmp/refusal; return 1; }
    ! grep -q 'Traceback\|this is a bug' /tmp/refusal
}
run() { python3 -m vdisklab run "$@" --size 32M --rounds 1 --baseline none --dir /work; }
set -- $disks
: >/tmp/refusals
mkfs.ext4 -q "$1" && mkdir -p /mnt/used && mount "$1" /mnt/used
check "mounted is refused" refused "is mounted on" run lvm/none --on "$1"
umount /mnt/used
check "a signature is refused" refused "has ext4" run lvm/none --on "$1"
wipefs --all --quiet "$1"
vgcreate --quiet --yes taken "$2" >/dev/null && lvcreate --quiet --yes -L 8M -n v taken >/dev/null
check "in use by LVM is refused" refused "in use\|uses it" run md:level=1/none --on "$1" --on "$2"
check "  and keeps its volume" test -b /dev/taken/v
vgremove --quiet --yes --force taken >/dev/null && pvremove --quiet --yes "$2" >/dev/null
check "listed twice is refused" refused "one device\|listed twice" run md:level=1/none --on "$1" --on "$(readlink -f "$1")"
check "too small is refused" refused "but needs" \
    python3 -m vdisklab run lvm/none --on "$1" --size 8G --rounds 1 --baseline none --dir /work
blockdev --setro "$1"
check "read-only is refused" refused "read-only" run lvm/none --on "$1"
blockdev --setrw "$1"
check "an option of a later ZFS is refused" refused "volblocksize\|recordsize\|invalid\|does not" \
    run zvol:volblocksize=1M/none
check "  nothing left" clean_machine
check "  disks are empty" empty_disks
cat /tmp/refusals
cat >/tmp/taken.py <<'P'
"""A group, array or pool of the name that ours would have: refused, and left as it was."""
import sys
from pathlib import Path
from vdisklab.errors import HostError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.path.disk_path import parse_path
from vdisklab.storage.site import open_site
from vdisklab.storage.stack import build_stack

text, disk, other = sys.argv[1:]
host = LocalHost()
with open_ledger() as ledger, open_site(host, ledger, Path("/work")) as site:
    name = site.unique("a-0")
    make, seen, remove = {
        "lvm": (["vgcreate", "--quiet", "--yes", name, disk],
                ["vgs", "--noheadings", "-o", "vg_name"], ["vgremove", "--quiet", "--yes", name]),
        "md:level=1": (["mdadm", "--quiet", "--create", f"/dev/md/{name}", f"--name={name}",
                        "--metadata=1.2", "--level=1", "--raid-devices=2", "--assume-clean",
                        "--run", disk, other],
                       ["mdadm", "--detail", "--scan"], ["mdadm", "--stop", f"/dev/md/{name}"]),
        "zvol": (["zpool", "create", name, disk], ["zpool", "list", "-H", "-o", "name"],
                 ["zpool", "destroy", name]),
    }[text]
    host.run(*make)
    try:
        with build_stack(site, parse_path(f"{text}/host").layers, 64 << 20, "a"):
            sys.exit("it was built")
    except HostError as error:
        print(f"  {error}; {error.hint}")
        assert "already" in str(error), error
    assert name in host.run(*seen).stdout, "it is gone"
    host.run(*remove)
P
for stack in lvm md:level=1 zvol; do
    check "a name that is taken, $stack" python3 /tmp/taken.py "$stack" "$1" "$2"
    sed 's/^/  /' /tmp/said
    for disk in "$1" "$2"; do
        mdadm --quiet --zero-superblock "$disk" 2>/dev/null
        wipefs --all --quiet "$disk-part1" "$disk-part9" 2>/dev/null
        wipefs --all --quiet "$disk"
    done
    check "  nothing left" clean_machine
done
modprobe -r zfs 2>/dev/null && mv /lib/modules/"$(uname -r)"/updates/dkms /tmp/hidden && depmod
check "without the module of ZFS" refused "ZFS does not run here" run zvol/none
cat /tmp/refusal
mv /tmp/hidden /lib/modules/"$(uname -r)"/updates/dkms && depmod && modprobe zfs
echo "failed: $failed"
[ $failed = 0 ]
