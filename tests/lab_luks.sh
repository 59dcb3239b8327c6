#!/bin/sh
# Runs inside the lab (script/test-lab luks): the layer luks, built, read back and refused; what is on the
# disk below; guests on it under KVM. The last line counts what failed. lab_killed.sh kills it.
. /vdisklab/files/lab_checks.sh
echo "$(cryptsetup --version), dm-crypt $(dmsetup targets | awk '$1 == "crypt" {print $2}')"
part() { # NAME SCRIPT: runs another of these scripts, and shows its lines
    if sh "$carried/$2"; then echo "ok $1"; else echo "FAILED $1"; failed=$((failed + 1)); fi
}
export STACKS="luks luks:sector=4096 luks:discard=on luks:workqueues=off luks/ext4 lvm/luks/ext4 luks/lvm/xfs
    md:level=1/luks lvmthin/luks:discard=on/btrfs zvol/luks"
export DISK_STACKS="luks lvm/luks/ext4"
part "built, read back, taken down" lab_layers.sh

cat >/tmp/below.py <<'P'
"""What is on the disk below a LUKS, and whether it gets discards. Prints what it saw."""
import os, subprocess, sys
from pathlib import Path
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.path.disk_path import parse_path
from vdisklab.storage.site import open_site
from vdisklab.storage.stack import build_stack

size, mark = 32 << 20, b"vdisklab was here" * 1024
for text in ("luks", "luks:discard=on"):
    with open_ledger() as ledger, open_site(LocalHost(), ledger, Path("/work")) as site:
        with build_stack(site, parse_path(f"{text}/host").layers, size, "a") as top:
            (below,) = site.directory.glob("*.slice")
            with top.path.open("r+b") as device:
                device.write(mark * 64); device.flush(); os.fsync(device.fileno())
            os.sync()
            assert mark[:64] in top.path.open("rb").read(4096), "the mark cannot be read through LUKS"
            assert mark[:32] not in below.read_bytes(), "the mark is on the disk below"
            others = [file.name for file in site.directory.iterdir() if file != below]
            assert not others, f"beside the slice: {others}"
            table = subprocess.run(["dmsetup", "table"], capture_output=True, text=True).stdout
            before = below.stat().st_blocks
            done = subprocess.run(["blkdiscard", "--force", top.path], capture_output=True, text=True)
            after = below.stat().st_blocks
            print(f"{text}: blkdiscard ended with {done.returncode} {done.stderr.strip()}")
            print(f"  the slice had {before * 512 >> 20} MiB and has {after * 512 >> 20} MiB; {table.strip()}")
            assert (done.returncode == 0) is (after < before // 2) is ("on" in text)
P
check "only ciphertext is below, and discards pass if allowed" python3 /tmp/below.py
indented

refused() { # WORDS COMMAND...: must end with one sentence that has these words and a hint
    words="$1"
    shift
    "$@" >/tmp/refusal 2>&1 && { echo "was not refused"; return 1; }
    cat /tmp/refusal
    grep -q "$words" /tmp/refusal && grep -q '^hint: ' /tmp/refusal && ! grep -q Traceback /tmp/refusal
}
run() { python3 -m vdisklab run "$@" --size 32M --rounds 1 --baseline none --dir /work; }
check "luks on a directory" refused "needs a block device below" run ext4/luks/none
indented
check "luks on luks" refused "encrypts everything twice" run luks/luks/none
indented
check "an unknown sector" refused "512, 4096" run luks:sector=1024/none
indented
mv /usr/sbin/cryptsetup /usr/sbin/hidden 2>/dev/null || mv /sbin/cryptsetup /usr/sbin/hidden
check "without cryptsetup" refused "cryptsetup is not installed" run luks/none
indented
mv /usr/sbin/hidden /usr/sbin/cryptsetup
module="$(modinfo --field filename dm_crypt)"
modprobe -r dm_crypt && mv "$module" /tmp/hidden && depmod
check "without dm-crypt" refused "no dm-crypt" run luks/none
indented
check "  doctor says so" sh -c 'python3 -m vdisklab doctor --dir /work | grep "layer luks"'
indented
mv /tmp/hidden "$module" && depmod
check "  doctor finds it again" sh -c 'python3 -m vdisklab doctor --dir /work | grep "layer luks.*ok\|ok.*layer luks"'
indented

cat >/tmp/audited.py <<'P'
"""A guest's disk on somebody's LUKS is recognised, with what it does to discards."""
import subprocess
from vdisklab.answers.disks import _device_layers

for flags in ([], ["--allow-discards"]):
    subprocess.run(["cryptsetup", "open", *flags, "--key-file", "/tmp/key", "/tmp/theirs", "theirs"], check=True)
    (layer,) = _device_layers("/dev/mapper/theirs")
    print(" ".join(flags), layer)
    assert str(layer) == ("luks:discard=on" if flags else "luks")
    subprocess.run(["cryptsetup", "close", "theirs"], check=True)
P
echo secret >/tmp/key && truncate --size 32M /tmp/theirs
cryptsetup luksFormat --batch-mode --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file /tmp/key /tmp/theirs
check "somebody's own LUKS is recognised" python3 /tmp/audited.py
indented

# shellcheck disable=SC2086
measured "guests on it" 4 luks/none luks:sector=4096:discard=on/none/scsi:discard=unmap \
    luks/ext4/raw/none lvm/luks/ext4/qcow2/writeback $short
echo "failed: $failed"
[ $failed = 0 ]
