#!/bin/sh
# Runs inside the lab (script/test-lab kvm): everything once with guests under KVM, which the host
# below may not have: every bus, cache mode and aio mode, a user's Debian, boots, installations,
# power cuts, a killed campaign that continues, and a domain of `export` that libvirt starts.
# Prints one line for each check; the last line counts what failed.
export PYTHONUNBUFFERED=1 VDISKLAB_PATIENCE=8
carried=/vdisklab/files
failed=0
check() { # NAME COMMAND...: runs it and tells
    name="$1"
    shift
    begin=$(cut -d' ' -f1 /proc/uptime)
    if "$@" >/tmp/said 2>&1; then verdict=ok; else verdict=FAILED; failed=$((failed + 1)); fi
    end=$(cut -d' ' -f1 /proc/uptime)
    echo "$verdict $name ($(echo "$end $begin" | awk '{printf "%.1f", $1 - $2}') s)"
    [ "$verdict" = ok ] || sed 's/^/    /' /tmp/said | tail -20
}
echo "kernel $(uname -r), $(qemu-system-x86_64 --version | head -n 1), $(fio --version)"
echo "cpu $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)," \
    "nested paging $(cat /sys/module/kvm_amd/parameters/npt 2>/dev/null)"

cat >/tmp/under_kvm.py <<'P'
"""Fails unless every run in a database was measured, under KVM; prints one line for each cell."""
import sys
from vdisklab.results.store import open_store

wrong = 0
with open_store(sys.argv[1], create=False) as store:
    runs = list(store.runs())
for run in runs:
    good = run.failure is None and run.accelerator in (None, "kvm-emulated-host")
    wrong += not good
    print(" ", run.path, run.page_cache.value, run.accelerator, f"{run.wall_seconds:.1f} s",
          run.failure.sentence if run.failure else "")
sys.exit(wrong > 0 or len(runs) < int(sys.argv[2]))
P
campaigns=0
measured() { # NAME RUNS WORDS...: a campaign whose RUNS runs must all be measured under KVM
    name="$1" runs="$2"
    shift 2
    campaigns=$((campaigns + 1))
    base="/work/campaign$campaigns.sqlite"
    check "$name" python3 -m vdisklab run "$@" --blocks 1 --baseline none --dir /work --db "$base"
    check "  all under KVM" python3 /tmp/under_kvm.py "$base" "$runs"
    cat /tmp/said
}
short="--profile $carried/lab_proof.toml --size 32M --runtime 1 --ramp 0 --page-cache cold"
# shellcheck disable=SC2086
{
    measured "six buses" 6 raw/none/virtio raw/none/scsi raw/none/nvme raw/none/usb raw/none/ide \
        raw/none/sata $short
    measured "cache modes and aio" 9 raw/default raw/none raw/writeback raw/writethrough \
        raw/directsync raw/unsafe raw/none/virtio:aio=native raw/none/virtio:aio=io_uring \
        raw/none/virtio:iothread=on $short
    measured "formats" 2 qcow2/none null/default $short
    measured "a user's Debian" 1 raw/none --guest "$carried/debian.qcow2" $short
}
measured "profile boot, on each bus" 6 raw/none/virtio raw/none/scsi raw/none/nvme raw/none/usb \
    raw/none/ide raw/none/sata --profile boot
measured "profile quick" 2 raw/none raw/writeback --profile quick --size 64M --runtime 1 --ramp 0
killed() { # a campaign of four runs is killed after the first, cleaned up, and continued
    # shellcheck disable=SC2086
    set -- raw/none raw/writeback qcow2/none raw/none/scsi $short --blocks 1 --baseline none \
        --dir /work --db /work/killed.sqlite
    python3 -m vdisklab run "$@" --stream /work/killed.jsonl >/tmp/first 2>&1 &
    process=$!
    while [ ! -s /work/killed.jsonl ]; do kill -0 "$process" || return; sleep 1; done
    kill -KILL "$process"
    wait "$process"
    python3 -m vdisklab clean || return
    python3 -m vdisklab run "$@" || return
    grep -q "continuing" /tmp/said || { echo "it did not continue"; return 1; }
    python3 /tmp/under_kvm.py /work/killed.sqlite 4
}
check "SIGKILL, clean, continue" killed
tail -4 /tmp/said

exported() { # a domain of type kvm, started by libvirt and audited
    truncate -s 64M /work/disk.raw
    python3 -m vdisklab export raw/none --to libvirt --source /work/disk.raw >/work/domain.xml ||
        return
    grep -q "type='kvm'\|type=\"kvm\"" /work/domain.xml || { cat /work/domain.xml; return 1; }
    tar --skip-old-files -xf "$carried/libvirt.tar" -C / && ldconfig
    unshare --mount --pid --fork --kill-child --mount-proc \
        python3 "$carried/libvirt_session.py" --audit /work/domain.xml
}
if [ -e "$carried/libvirt.tar" ]; then
    check "libvirt starts an exported domain of type kvm" exported
    sed 's/^/  /' /tmp/said
fi

if [ -e "$carried/packages.tar" ]; then
    tar -xf "$carried/packages.tar" -C /work/state
    measured "profile growth-short" 1 qcow2/writeback --profile growth-short
fi
power_cut() { # ARGUMENTS...: power cuts that must be judged; prints the verdicts
    python3 -m vdisklab powercut "$@" --writes 12 --states 20 --dir /work \
        --db /work/powercut.sqlite || return
}
check "powercut --access guest" power_cut ext4/raw/none/virtio --access guest --client flushes
tail -4 /tmp/said
check "powercut --access guest, sqlite" power_cut ext4/raw/none --access guest --client sqlite-wal
tail -4 /tmp/said
check "powercut --access boot-sector" power_cut ext4/raw/writeback/ide --access boot-sector
tail -4 /tmp/said

# The trial of KVM in each case: what is said, and what is to be done.
refused() { # WORDS COMMAND...: doctor's line on KVM must have these words
    words="$1"
    shift
    "$@" python3 -m vdisklab doctor >/tmp/doctor 2>&1
    tr -s ' \n' ' ' </tmp/doctor | grep -q "$words" || { cat /tmp/doctor; return 1; }
    grep -A3 KVM /tmp/doctor | head -5
}
check "KVM works: doctor" refused "a guest booted under KVM"
cat /tmp/said
chmod 600 /dev/kvm
check "no permission: doctor" refused "usermod --append -G kvm" \
    setpriv --reuid=65534 --regid=65534 --clear-groups env VDISKLAB_STATE=/tmp/nobody
cat /tmp/said
modprobe -r kvm_amd kvm
rm -f /dev/kvm
check "no device: doctor" refused "modprobe kvm_amd"
cat /tmp/said
mknod /dev/kvm c 10 232
mv /lib/modules/"$(uname -r)"/kernel/arch/x86/kvm /tmp/kvm-modules && depmod
check "a device file without a driver: doctor" refused "cannot be opened: No such device"
cat /tmp/said
echo "failed: $failed"
[ $failed = 0 ]
