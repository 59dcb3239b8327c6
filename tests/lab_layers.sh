#!/bin/sh
# Runs inside the lab (script/test-lab): every host layer on the real kernel, then SIGKILL in the
# middle of each and `clean`. Prints one line for each check; the last line counts what failed.
export PYTHONUNBUFFERED=1 VDISKLAB_PATIENCE=20
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
"""Builds one stack, writes on it, prints what was read back, takes it down; or dies in it."""
import os, signal, sys
from pathlib import Path
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.plan.ground import Ground
from vdisklab.plan.path import parse_path
from vdisklab.storage.site import open_site
from vdisklab.storage.stack import build_stack

class Doomed(LocalHost):
    def __init__(self, step): self.step, self.count = step, 0
    def run(self, *argv, **more):
        done = super().run(*argv, **more)
        self.count += 1
        if self.count == self.step: os.kill(os.getpid(), signal.SIGKILL)
        return done

text, step, arc, devices = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) or None, sys.argv[4:]
ground = Ground(tuple(map(Path, devices)), arc_bytes=arc)
size = 64 << 20
with open_ledger() as ledger, open_site(Doomed(step), ledger, Path("/work")) as site:
    with build_stack(site, parse_path(f"{text}/host").layers, size, "a", ground=ground) as target:
        where = target.path if target.is_block else target.path / "file"
        with where.open("r+b" if target.is_block else "wb") as file:
            file.write(os.urandom(size // 2)); file.flush(); os.fsync(file.fileno())
        for name, seen in sorted(target.properties.items()): print(f"  {name} {seen}")
P
build() { python3 /tmp/layers.py "$@" >/tmp/built 2>&1; status=$?; cat /tmp/built; return $status; }
dies() { python3 /tmp/layers.py "$@" >/tmp/built 2>&1; [ $? = 137 ]; }
for stack in ext4 lvm lvmthin lvm/xfs md:level=0 md:level=1/ext4 md:level=5/xfs md:level=10 lvmthin/btrfs \
    zfs zfs:raid=raidz1:recordsize=64k zfs:raid=mirror:compression=zstd zvol zvol/ext4 \
    zvol:volblocksize=16k:raid=raidz1 md:level=1/lvm/ext4; do
    check "$stack on slices" build "$stack" 0 0
    cat /tmp/built
    check "  nothing left" clean_machine
done
for stack in ext4 lvm md:level=5 zfs:raid=raidz1 zvol/xfs; do
    check "$stack on whole disks" build "$stack" 0 0 $disks
    check "  nothing left" clean_machine
    check "  disks are empty" empty_disks
done
before="$(cat /sys/module/zfs/parameters/zfs_arc_max) $(awk '/^c_max/ {print $3}' /proc/spl/kstat/zfs/arcstats)"
check "the ARC is limited" build zfs 0 268435456
grep arc /tmp/built
after="$(cat /sys/module/zfs/parameters/zfs_arc_max) $(awk '/^c_max/ {print $3}' /proc/spl/kstat/zfs/arcstats)"
check "  and restored ($before)" [ "$before" = "$after" ]
for stack in lvm lvmthin/ext4 md:level=5/xfs zfs:raid=raidz1 zvol/ext4; do
    for ground in "" "$disks"; do
        step=1
        while dies "$stack" $step 0 $ground; do
            python3 -m vdisklab clean >/tmp/said 2>&1 || { echo "FAILED clean"; sed 's/^/    /' /tmp/said; failed=$((failed + 1)); }
            clean_machine || { echo "FAILED $stack killed after program $step"; failed=$((failed + 1)); }
            [ -z "$ground" ] || empty_disks || { echo "FAILED $stack: disks"; failed=$((failed + 1)); }
            step=$((step + ${STRIDE:-3}))
        done
        echo "ok SIGKILL in $stack${ground:+ on whole disks}, up to program $step, then clean"
    done
done
echo "failed: $failed"
[ $failed = 0 ]
