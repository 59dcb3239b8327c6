#!/bin/sh
# Runs inside the lab (script/test-lab): the power cut with the disk logged by device-mapper's
# log-writes, which few kernels have; its controls first, then each client in cache modes that must
# keep or lose what was promised, then the replay of a loss. The last line counts what was wrong.
export PYTHONUNBUFFERED=1
echo "kernel $(uname -r), $(qemu-storage-daemon --version | head -n 1)"
cat >/tmp/expected.py <<'P'
"""Prints each verdict of `powercut --format json`, and how many are not what they must be."""
import json, sys

# By cache mode and client: a client that never asks is promised something by writethrough alone.
SURVIVES = {
    ("none", "never"): False, ("none", "flushes"): True, ("none", "fua"): True,
    ("writethrough", "never"): True, ("writethrough", "flushes"): True, ("writethrough", "fua"): True,
    ("unsafe", "never"): False, ("unsafe", "flushes"): False, ("unsafe", "fua"): False,
}
told = json.load(open(sys.argv[1]))
failed = 0
for control in told["controls"]:
    failed += not control["passed"]
    print("ok" if control["passed"] else "FAILED", "control:", control["name"],
          f"({control['losses']} of {control['states']} states lose)")
for each in told["verdicts"]:
    must = SURVIVES[each["path"].split("/")[-1], each["client"]]
    right = each["survives"] is must and each["settings"]["logged_by"] == "dm-log-writes"
    failed += not right
    print("ok" if right else "FAILED", each["path"], each["client"],
          "survives" if each["survives"] else "loses", f"({each['states']} states,",
          f"{sum(n for outcome, n in each['outcomes'].items() if outcome != 'kept')} lose)",
          each["failure"] or "")
loss = next((e for e in told["verdicts"] if e["counterexample"]), None)
print(loss["counterexample"]["case"] if loss else "", file=open("/tmp/case", "w"))
failed += len(told["verdicts"]) != int(sys.argv[2])
print("logged by", {key: value for each in told["verdicts"][:1] for key, value in each["observed"].items()})
print("failed:", failed)
P
vdisklab powercut 'ext4/raw/{none,writethrough,unsafe}' 'xfs/{raw,qcow2}/{none,unsafe}' btrfs/raw/none \
    --client never --client flushes --client fua --logged-by dm-log-writes --writes 12 --states 20 \
    --dir /work --db /work/powercut.sqlite --format json >/tmp/told.json 2>/tmp/said
echo "powercut ended with $?"
[ -s /tmp/told.json ] || cat /tmp/said
python3 /tmp/expected.py /tmp/told.json 24
vdisklab powercut --replay "$(cat /tmp/case)" --dir /work </dev/null
echo "replay ended with $?"
dmsetup ls
losetup --all
