#!/bin/sh
# Runs inside the lab (script/test-lab targets): targets that need a kernel client, on servers of the lab's
# own kernel over loopback: NFS, LIO with open-iscsi, nvmet over TCP. Guests on each under KVM, what is read
# back and said of them, what is refused, and a server that goes away. The last line counts what failed.
. /vdisklab/files/lab_checks.sh
. /vdisklab/files/lab_servers.sh
network || exit
mkdir -p /srv /mnt/full
mkfs.ext4 -q /dev/disk/by-id/virtio-disk1 && mount /dev/disk/by-id/virtio-disk1 /srv
mkdir -p /srv/export /srv/lun
check "kernel NFS: server and mount" start_nfs /srv/export rw,sync
check "  mounted, version 4.2" mount_nfs /srv/export /mnt/nas
two_luns() { start_lio beef /srv/lun/cached 268435456 1 && start_lio cafe /srv/lun/claims 268435456 0 && login_iscsi; }
check "LIO, and open-iscsi's session with it" two_luns
san="$(lun 0)" claims="$(lun 1)" fabric=/dev/nvme0n1
fabric_up() { truncate -s 256M /srv/lun/nvme && start_nvmet /srv/lun/nvme && connect_nvme -l 60 && [ -b $fabric ]; }
check "nvmet over TCP, and the host's connection" fabric_up
targets="--target nas=/mnt/nas --target san=$san --target claims=$claims --target fabric=$fabric"

# The trap T9, and its control: what an fsync through each LUN has put on the server's disk.
stored() { # DEVICE FILE: fails if the file's first block has no place on the disk after an fsync
    dd if=/dev/urandom of="$1" bs=64k count=1 conv=fsync && filefrag -v "$2" && ! filefrag -v "$2" | grep -q delalloc
}
lies() { ! stored "$@"; }
check "an fsync through the LUN with a write cache is on the server's disk" stored "$san" /srv/lun/cached
check "an fsync through the LUN that claims none is in the server's memory" lies "$claims" /srv/lun/claims
indented
wipefs --all --quiet "$san" "$claims"
# The trap T10: no limit is advertised, and the server cannot map what the host may send.
large() { dd if=$fabric of=/dev/null bs=32M count=1 iflag=direct; }
limit() { for queue in /sys/block/nvme0*/queue/max_sectors_kb; do echo "$1" >"$queue"; done; }
refuses() { limit 32768 && ! large; }
check "nvmet serves 32 MiB in requests of 1280 KiB" large
check "nvmet fails a request of 32 MiB" refuses
limit 1280

# shellcheck disable=SC2086
measured "guests on each, and on a local disk" 10 'nas/raw/{none,directsync,writeback}' \
    '{san,claims,fabric}/{none,writeback}' raw/none $targets $short
database="/work/campaign$campaigns.sqlite"
cat >/tmp/said.py <<'P'
"""What was read back of each target, and what `rank --format json` says of it."""
import json, subprocess, sys
from vdisklab.results.store import open_store

with open_store(sys.argv[1], create=False) as store:
    runs = list(store.runs())
failed = 0
def must(name, right, seen):
    global failed
    failed += not right
    print("  ok" if right else "  FAILED", name, seen)
seen = {}
for run in runs:
    seen[run.path] = {check.name: check.observed for check in run.checks}
for path, checks in sorted(seen.items()):
    kept = {k: v for k, v in checks.items() if k.startswith(("host.device", "host.target", "nfs.", "net."))}
    print(" ", path, json.dumps(kept, sort_keys=True))
def of(path, name): return seen[path].get(name)
must("NFS version", "vers=4.2" in (of("nfs:at=nas/raw/none", "host.target.options") or ""), "4.2")
must("WRITE requests of none", of("nfs:at=nas/raw/none", "nfs.WRITE"), of("nfs:at=nas/raw/none", "nfs.WRITE"))
for name, transport, cache in (("san", "iscsi", "write back"), ("claims", "iscsi", "write through"),
                               ("fabric", "nvme-tcp", "write back")):
    path = f"device:at={name}/none"
    must(f"{name}: transport", of(path, "host.device.transport") == transport, of(path, "host.device.transport"))
    must(f"{name}: cache", of(path, "host.device.write_cache") == cache, of(path, "host.device.write_cache"))
    must(f"{name}: connections", of(path, "net.connections"), of(path, "net.connections"))
told = subprocess.run([sys.executable, "-m", "vdisklab", "rank", "--db", sys.argv[1], "--format", "json"],
                      capture_output=True, text=True)
ranked = json.loads(told.stdout)
for cell in ranked["cells"]:
    if "at=" in cell["cell"]:
        must(f"power cut of {cell['cell']}", cell["power_cut"]["kind"] == "by-server", cell["power_cut"]["kind"])
text = subprocess.run([sys.executable, "-m", "vdisklab", "rank", "--db", sys.argv[1]],
                      capture_output=True, text=True).stdout
print(text)
flat = " ".join(text.split())
must("the claim is named", "device:at=claims: the server claims that it has no write cache" in flat, "")
must("memory of servers", "the server's memory may have served" in flat, "")
must("unequal promises", "a write is stable at different moments" in flat, "")
sys.exit(failed > 0)
P
check "what is read back, and what rank says" python3 /tmp/said.py "$database"
indented

nothing_left() {
    python3 -m vdisklab clean --dir /work || return
    left="$(ls -A /mnt/nas; ls -d /work/vdisklab-* 2>/dev/null; for disk in $san $claims $fabric; do wipefs --no-act "$disk"; done)"
    [ -z "$left" ] || { echo "left: $left"; return 1; }
}
check "nothing is left" nothing_left

# Each must end with one sentence that has these words, and a hint.
refused() { # WORDS COMMAND...
    words="$1"
    shift
    "$@" >/tmp/refusal 2>&1 && { cat /tmp/refusal; echo "was not refused"; return 1; }
    cat /tmp/refusal
    grep -q "$words" /tmp/refusal && grep -q '^hint: ' /tmp/refusal && ! grep -q Traceback /tmp/refusal
}
plain="--profile $carried/lab_proof.toml --size 32M --rounds 1 --runtime 1 --ramp 0 --page-cache cold --baseline none --dir /work"
# shellcheck disable=SC2086
run() { python3 -m vdisklab run "$@" $plain --db /work/refused.sqlite; }
check "a mount that another campaign uses" sh -c 'mkdir /mnt/nas/vdisklab-0123abcd.nas'
check "  is refused" refused "another campaign uses" run nas/host --target nas=/mnt/nas
indented
rmdir /mnt/nas/vdisklab-0123abcd.nas
export_again() { exportfs -u 127.0.0.1:/srv/export && exportfs -o "$1,no_subtree_check,fsid=1" 127.0.0.1:/srv/export && exportfs -f; }
export_again ro,sync,no_root_squash
check "a read-only export" refused "nothing can be created" run nas/host --target nas=/mnt/nas
indented
export_again rw,sync,root_squash
check "no permission for root" refused "nothing can be created" run nas/host --target nas=/mnt/nas
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
check "nothing is left" nothing_left

# A server that goes away while a program writes on it: its cell fails with a sentence, the other goes on,
# nothing is left once it is back, and the same command continues.
gone() { # NAME PLACE STOP START
    name="$1" place="$2" stop="$3" start="$4" database="/work/gone-$1.sqlite"
    # shellcheck disable=SC2086
    set -- "$name/host" host --target "$name=$place" --profile "$carried/lab_proof.toml" --size 32M --rounds 1 \
        --runtime 8 --ramp 0 --page-cache cold --baseline none --dir /work --db "$database"
    python3 -m vdisklab run "$@" >/tmp/gone 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null && ! pgrep -f "[f]io .*--filename=$place" >/dev/null; do sleep 0.5; done
    sleep 2
    $stop
    wait $pid
    echo "run ended with $?"
    cat /tmp/gone
    $start || return
    python3 -m vdisklab clean --dir /work || return
    python3 /tmp/gone.py "$database" 1 || return
    python3 -m vdisklab run "$@" >/tmp/gone 2>&1
    echo "the same command ended with $?"
    python3 /tmp/gone.py "$database" 0
}
cat >/tmp/gone.py <<'P'
"""Prints the newest run of each path; the exit status is 0 if N of them failed, each on its target."""
import sys
from vdisklab.results.store import open_store

with open_store(sys.argv[1], create=False) as store:
    newest = {run.path: run for run in store.runs()}
failed = [run for run in newest.values() if run.failure]
for run in newest.values():
    print(run.path, run.failure.message if run.failure else "measured")
named = all(run.failure.message.startswith("target ") for run in failed)
sys.exit(len(newest) != 2 or len(failed) != int(sys.argv[2]) or not named)
P
again_nfs() { start_nfs /srv/export rw,sync && sleep 15 && timeout 300 stat -f /mnt/nas; }
check "an NFS server that stops" gone nas /mnt/nas stop_nfs again_nfs
indented
check "nothing is left" nothing_left
check "an iSCSI session that is logged out" gone san "$san" logout_iscsi login_iscsi
indented
fabric_down() { rm "$nvmet/ports/1/subsystems/$nqn"; }
fabric_again() { ln -s "$nvmet/subsystems/$nqn" "$nvmet/ports/1/subsystems/$nqn" && { [ -b $fabric ] || connect_nvme; }; }
check "an NVMe server that refuses connections" gone fabric $fabric fabric_down fabric_again
indented
check "nothing is left" nothing_left
echo "failed: $failed"
[ $failed = 0 ]
