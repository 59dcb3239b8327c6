#!/bin/sh
# Runs inside the lab (script/test-lab targets-nfs and so on; the file `part` says which): targets that need a
# kernel client, on a server of the lab's own kernel over loopback. Guests on them under KVM, what is read back
# and said of them, what is refused, and servers that go away. The last line counts what failed.
. /vdisklab/files/lab_checks.sh
. /vdisklab/files/lab_servers.sh
part="$(cat /vdisklab/files/part)"
network || exit
mkdir -p /srv
mkfs.ext4 -q /dev/disk/by-id/virtio-disk1 && mount /dev/disk/by-id/virtio-disk1 /srv
mkdir -p /srv/export /srv/lun
# What an fsync on a client's file or disk has put on the server's disk: fails if the first block of the
# server's file has no place there.
stored() { # CLIENTS-FILE SERVERS-FILE
    dd if=/dev/urandom of="$1" bs=64k count=1 conv=fsync,notrunc && filefrag -v "$2" &&
        ! filefrag -v "$2" | grep -q delalloc
}
lies() { ! stored "$@"; }
said() { # what is read back, and what `rank` says, of the last campaign
    check "what is read back, and what rank says" python3 /tmp/said.py "/work/campaign$campaigns.sqlite" "$part"
    indented
}
cat >/tmp/said.py <<'P'
"""What was read back of each target, and what `rank` says of it."""
import json, subprocess, sys
from vdisklab.results.store import open_store

database, part = sys.argv[1:]
with open_store(database, create=False) as store:
    seen = {run.path: {check.name: check.observed for check in run.checks} for run in store.runs()}
failed = 0
def must(name, right, found):
    global failed
    failed += not right
    print("  ok" if right else "  FAILED", name, found)
def of(path, name): return seen[path].get(name)
def count(path, name): return int((of(path, name) or "0").split()[0])
def rank(*words):
    program = [sys.executable, "-m", "vdisklab", "rank", "--db", database, *words]
    return subprocess.run(program, capture_output=True, text=True).stdout

for path, checks in sorted(seen.items()):
    kept = {k: v for k, v in checks.items() if k.startswith(("host.device", "host.target", "nfs.", "net."))}
    print(" ", path, json.dumps(kept, sort_keys=True))
text = rank("--why")
print(text)
flat = " ".join(text.split())
if part == "nfs":
    none, sync, back = (f"nfs:at=nas/raw/{mode}" for mode in ("none", "directsync", "writeback"))
    must("NFS version", "vers=4.2" in (of(none, "host.target.options") or ""), "4.2")
    must("writes of none", count(none, "nfs.WRITE") > 0, of(none, "nfs.WRITE"))
    # T3: a direct write is stable when it returns, so directsync has nothing to add.
    for path in (none, sync):
        must(f"hardly a COMMIT: {path}", count(path, "nfs.COMMIT") * 10 < count(path, "nfs.WRITE"), of(path, "nfs.COMMIT"))
    must("writeback needs COMMIT", count(back, "nfs.COMMIT") > 0, of(back, "nfs.COMMIT"))
for name, transport, cache in {
    "iscsi": (("san", "iscsi", "write back"), ("claims", "iscsi", "write through")),
    "nvme": (("fabric", "nvme-tcp", "write back"),),
}.get(part, ()):
    path = f"device:at={name}/none"
    must(f"{name}: transport", of(path, "host.device.transport") == transport, of(path, "host.device.transport"))
    must(f"{name}: cache", of(path, "host.device.write_cache") == cache, of(path, "host.device.write_cache"))
    must(f"{name}: connections", of(path, "net.connections"), of(path, "net.connections"))
for cell in json.loads(rank("--format", "json"))["cells"]:
    if "at=" in cell["cell"]:
        must(f"power cut of {cell['cell']}", cell["power_cut"]["kind"] == "by-server", cell["power_cut"]["kind"])
if part == "iscsi":
    must("the claim is named", "* claims: the server claims that it has no write cache" in flat, "")
must("memory of servers", "the server's memory may have served" in flat, "")
sys.exit(failed > 0)
P
nothing_left() {
    python3 -m vdisklab clean || return
    left="$(ls -A /mnt/nas 2>/dev/null; ls -d /work/vdisklab-* 2>/dev/null; for disk in $disks; do wipefs --no-act "$disk"; done)"
    [ -z "$left" ] || { echo "left: $left"; return 1; }
}
# Each must end with one sentence that has these words, and a hint.
refused() { # WORDS COMMAND...
    words="$1"
    shift
    "$@" >/tmp/refusal 2>&1 && { cat /tmp/refusal; echo "was not refused"; return 1; }
    cat /tmp/refusal
    grep -q "$words" /tmp/refusal && grep -q '^hint: ' /tmp/refusal && ! grep -q Traceback /tmp/refusal
}
plain="--profile $carried/lab_proof.toml --size 32M --rounds 1 --ramp 0 --page-cache cold --baseline none --dir /work"
# shellcheck disable=SC2086
run() { python3 -m vdisklab run "$@" $plain --runtime 1 --db /work/refused.sqlite; }

# A server that goes away while a program writes on it: its cell fails with a sentence, the other goes on,
# nothing is left once it is back, and the same command continues.
gone() { # NAME PLACE STOP START
    called="$1" place="$2" stop="$3" start="$4" database="/work/gone-$1.sqlite"
    # shellcheck disable=SC2086
    set -- "$called/host" host --target "$called=$place" $plain --runtime 8 --db "$database"
    python3 -m vdisklab run "$@" >/tmp/gone 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null && ! pgrep -f "[f]io .*--filename=$place" >/dev/null; do sleep 0.5; done
    sleep 2
    $stop
    wait $pid
    echo "run ended with $?"
    cat /tmp/gone
    $start || return
    python3 -m vdisklab clean || return
    python3 /tmp/gone.py "$database" 1 "$called" || return
    python3 -m vdisklab run "$@" >/tmp/gone 2>&1
    echo "the same command ended with $?"
    python3 /tmp/gone.py "$database" 0 "$called"
}
cat >/tmp/gone.py <<'P'
"""Prints the newest run of each path; the exit status is 0 if N of them failed, each on the target NAME."""
import sys
from vdisklab.results.store import open_store

with open_store(sys.argv[1], create=False) as store:
    newest = {run.path: run for run in store.runs()}
failed = [run for run in newest.values() if run.failure]
for run in newest.values():
    print(run.path, run.failure.message if run.failure else "measured")
named = all(f"target {sys.argv[3]}" in run.failure.message for run in failed)
sys.exit(len(newest) != 2 or len(failed) != int(sys.argv[2]) or not named)
P

up_nfs() {
    check "kernel NFS: server and mount" start_nfs /srv/export rw,sync
    check "  mounted, version 4.2" mount_nfs /srv/export /mnt/nas
}
export_again() { exportfs -u 127.0.0.1:/srv/export && exportfs -o "$1,no_subtree_check,fsid=1" 127.0.0.1:/srv/export && exportfs -f; }
up_iscsi() {
    two_luns() { start_lio beef /srv/lun/cached 268435456 1 && start_lio cafe /srv/lun/claims 268435456 0 && login_iscsi; }
    check "LIO, and open-iscsi's session with it" two_luns
    san="$(lun 0)" claims="$(lun 1)"
}
up_nvme() {
    fabric=/dev/nvme0n1
    fabric_up() { truncate -s 256M /srv/lun/nvme && start_nvmet /srv/lun/nvme && connect_nvme -l 60 && [ -b $fabric ]; }
    check "nvmet over TCP, and the host's connection" fabric_up
}
part_nfs() {
    up_nfs
    # The trap T2, and its control.
    check "an fsync on a file of an export that is sync is on the server's disk" stored /mnt/nas/sync /srv/export/sync
    export_again rw,async,no_root_squash
    check "an fsync on a file of one that is async is in the server's memory" lies /mnt/nas/async /srv/export/async
    indented
    export_again rw,sync,no_root_squash
    rm -f /mnt/nas/sync /mnt/nas/async
    # shellcheck disable=SC2086
    measured "guests on NFS and on a local disk" 4 'nas/raw/{none,directsync,writeback}' raw/none \
        --target nas=/mnt/nas $short
    said
    check "nothing is left" nothing_left

    check "a mount that another campaign uses" sh -c 'mkdir /mnt/nas/vdisklab-0123abcd.nas'
    check "  is refused" refused "another campaign uses" run nas/host --target nas=/mnt/nas
    indented
    rmdir /mnt/nas/vdisklab-0123abcd.nas
    export_again ro,sync,no_root_squash
    check "a read-only export" refused "nothing can be" run nas/host --target nas=/mnt/nas
    indented
    export_again rw,sync,root_squash
    check "no permission for root" refused "nothing can be" run nas/host --target nas=/mnt/nas
    indented
    export_again rw,sync,no_root_squash
    fallocate --length "$(($(stat -f -c '%a * %S' /srv) - (8 << 20)))" /srv/filler
    check "a full export" refused "needs .* has .* free" run nas/host --target nas=/mnt/nas
    indented
    rm -f /srv/filler
    mkdir -p /srv/export/sub /mnt/sub && mount -t nfs4 -o vers=4.2,hard 127.0.0.1:/srv/export/sub /mnt/sub
    rmdir /srv/export/sub
    check "a stale handle" refused "tale" run sub/host --target sub=/mnt/sub
    indented
    umount -l /mnt/sub
}
part_iscsi() {
    up_iscsi
    disks="$san $claims"
    # The trap T9, and its control.
    check "an fsync through the LUN with a write cache is on the server's disk" stored "$san" /srv/lun/cached
    check "an fsync through the LUN that claims none is in the server's memory" lies "$claims" /srv/lun/claims
    indented
    mkfs.ext4 -q "$san"
    check "a disk with data is refused" refused "its use would destroy" run san/host --target "san=$san"
    indented
    wipefs --all --quiet "$san" "$claims"
    # shellcheck disable=SC2086
    measured "guests on both LUNs" 5 '{san,claims}/{none,writeback}' raw/none \
        --target "san=$san" --target "claims=$claims" $short
    said
}
part_nvme() {
    up_nvme
    disks=$fabric
    # The trap T10: no limit is advertised, and the server cannot map what the host may send.
    large() { dd if=$fabric of=/dev/null bs=32M count=1 iflag=direct; }
    limit() { for queue in /sys/block/nvme0*/queue/max_sectors_kb; do echo "$1" >"$queue"; done; }
    refuses() { limit 32768 && ! large; }
    check "nvmet serves 32 MiB in requests of 1280 KiB" large
    check "nvmet fails a request of 32 MiB" refuses
    limit 1280
    # shellcheck disable=SC2086
    measured "guests on it" 3 'fabric/{none,writeback}' raw/none --target fabric=$fabric $short
    said
}
part_going() { # no guest: the host's fio, so that it takes minutes
    up_iscsi
    check "an iSCSI session that is logged out" gone san "$san" logout_iscsi login_iscsi
    indented
    up_nvme
    fabric_down() { rm "$nvmet/ports/1/subsystems/$nqn"; }
    fabric_again() { ln -s "$nvmet/subsystems/$nqn" "$nvmet/ports/1/subsystems/$nqn" && { [ -b $fabric ] || connect_nvme; }; }
    check "an NVMe server that refuses connections" gone fabric $fabric fabric_down fabric_again
    indented
    disks="$san $claims $fabric"
    check "nothing is left" nothing_left
    up_nfs
    read_only() { export_again ro,sync,no_root_squash; }
    writable() { export_again rw,sync,no_root_squash; }
    check "an NFS export that turns read-only" gone nas /mnt/nas read_only writable
    indented
    again_nfs() { start_nfs /srv/export rw,sync && sleep 15 && timeout 300 stat -f /mnt/nas; }
    check "an NFS server that stops" gone nas2 /mnt/nas stop_nfs again_nfs
    indented
}
disks=""
# Not the bare word: a function named `nvme` would hide the program.
"part_$part"
check "nothing is left" nothing_left
echo "failed: $failed"
[ $failed = 0 ]
