#!/bin/sh
# Runs inside the lab (script/test-lab kvm-uses): with guests under KVM, a killed campaign that
# continues, installations on a growing image, and power cuts.
. /vdisklab/files/lab_checks.sh
killed() { # a campaign of four runs is killed after the first, cleaned up, and continued
    # shellcheck disable=SC2086
    set -- raw/none raw/writeback qcow2/none raw/none/scsi $short --rounds 1 --baseline none \
        --dir /work --db /work/killed.sqlite
    python3 -m vdisklab run "$@" --stream /work/killed.jsonl >/tmp/first 2>&1 &
    process=$!
    while [ ! -s /work/killed.jsonl ]; do kill -0 "$process" || return; sleep 1; done
    kill -KILL "$process"
    wait "$process"
    python3 -m vdisklab clean || return
    python3 -m vdisklab run "$@" >/tmp/second 2>&1 || { cat /tmp/second; return 1; }
    grep "continuing" /tmp/second || { echo "it did not continue"; return 1; }
    python3 "$carried/lab_under_kvm.py" /work/killed.sqlite 4
}
check "SIGKILL, clean, continue" killed
indented
tar -xf "$carried/packages.tar" -C /work/state
measured "profile growth-short" 1 qcow2/writeback --profile growth-short --page-cache cold
power_cut() { # ARGUMENTS...: a power cut that must be judged, with its guest under KVM
    python3 -m vdisklab powercut "$@" --writes 12 --states 20 --accelerator kvm --dir /work \
        --db /work/powercut.sqlite --format json >/tmp/answer || return
    python3 - <<'PROGRAM'
import json, sys
(cut,) = json.load(open("/tmp/answer"))["verdicts"]
ran_under = cut["observed"].get("guest.accelerator")
print(cut["path"], cut["access"], cut["client"], cut["claim"], f"({cut['states']} states)", ran_under)
sys.exit(cut["survives"] is None or ran_under not in ("kvm", "kvm in an emulated host"))
PROGRAM
}
check "powercut --access guest" power_cut ext4/raw/none/virtio --access guest --client flushes
indented | tail -1
check "powercut --access guest, SQLite" power_cut ext4/raw/none --access guest --client sqlite-wal
indented | tail -1
check "powercut --access boot-sector" power_cut ext4/raw/writeback/ide --access boot-sector
indented | tail -1
echo "failed: $failed"
[ $failed = 0 ]
