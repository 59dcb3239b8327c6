#!/bin/sh
# Runs inside the lab (script/test-lab operations): the life of disks on thin LVM and ZFS, counted; what
# is done below an image by ZFS, thin LVM and md; both with guests. The last line counts what failed.
# vdisklab is killed at each step of a clone's life. PARTS names some of: life killed operations during guests.
. /vdisklab/files/lab_checks.sh
cp "$carried/life.py" "$carried/machine.py" /tmp/
PARTS="${PARTS:-life killed operations during guests}"
lived() { python3 /tmp/life.py /work --sizes 32M --paths lvmthin/none zvol/none zfs/raw/none lvm/none; }
killed() { python3 "$carried/lab_life_killed.py" /work; }
did() { python3 "$carried/lab_operations.py" /work; }
with_guests() { # DATABASE RUNS VERB WORDS...: each cell must be measured under KVM; shows VERB's answer
    database="$1" runs="$2" verb="$3"
    shift 3
    status=0
    python3 -m vdisklab run "$@" --rounds 1 --ramp 0.5 --size 32M --dir /work --db "$database" >/tmp/said 2>&1 ||
        { status=$?; tail -5 /tmp/said; }
    python3 -m vdisklab "$verb" --db "$database" --why
    python3 "$carried/lab_under_kvm.py" "$database" "$runs" && [ $status = 0 ]
}
part() { # NAME COMMAND...: shows what it prints as it prints it
    name="$1"
    shift
    if "$@" 2>&1; then echo "ok $name"; else echo "FAILED $name"; failed=$((failed + 1)); fi
}
for each in $PARTS; do
    case "$each" in
    life) part "the life of disks" lived ;;
    killed) part "SIGKILL at each step of a clone's life" killed ;;
    operations) part "below an image" did ;;
    during) part "below a guest" with_guests /work/during.sqlite 11 during '{zvol/none,zfs/raw/none,lvmthin/none,md:level=1/ext4/raw/none}' \
        --during host-snapshot,host-snapshot:delete,scrub,zfs-send --runtime 2 --load 20 --page-cache cold ;;
    guests) part "the life of guests' disks" with_guests /work/life.sqlite 3 life \
        lvmthin/none/virtio:made=thin-snapshot zvol/none/virtio:made=zvol-clone zfs/raw/none/virtio:made=zfs-clone \
        --profile life --runtime 3 ;;
    esac
done
check "nothing is left" sh -c '! { vgs --noheadings; zpool list -H; losetup -a; ls -d /work/vdisklab-*; } 2>/dev/null | grep .'
indented
echo "failed: $failed"
[ $failed = 0 ]
