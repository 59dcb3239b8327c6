#!/bin/sh
# Runs inside the lab (script/test-lab neighbour): what a guest that writes in bulk costs a guest that commits,
# on one ext4 and with a volume each, with guests under KVM.
# The disk takes 200 ms for a write and 400 ms for a flush (dm-delay), so that it decides, and not the emulated
# processor. An emulated lab is too slow for the victim's 50 commits a second, and for the control of `density`:
# the victim commits once a second here, and there is no control.
. /vdisklab/files/lab_checks.sh
rounds="${ROUNDS:-3}" disk=/dev/disk/by-id/virtio-disk1 slow=/dev/mapper/slow
modprobe dm-delay &&
    dmsetup create slow --table "0 $(blockdev --getsz $disk) delay $disk 0 20 $disk 0 200 $disk 0 400" || exit
cat >/tmp/density.py <<'P'
import sys
from vdisklab.actions import guest_capacity
from vdisklab.cli.shell.main import main
guest_capacity.run_control = lambda *_: None
sys.exit(main(["density", *sys.argv[1:]]))
P
profiles="$(python3 -c 'import vdisklab.workload; print(vdisklab.workload.__path__[0])')/profiles"
sed 's/rate_iops = 50/rate_iops = 1/' "$profiles/quiet-commits.toml" >/tmp/slow-commits.toml
python3 /tmp/density.py ext4/raw/none ext4/raw:preallocation=off/none lvm/none --thin \
    --victim /tmp/slow-commits.toml --neighbour bulk-write --rounds "$rounds" --size 32M --runtime 30 --ramp 2 \
    --guest-cpus 1 --guest-memory 192M --on $slow --destroy $slow --dir /work --db /work/neighbour.sqlite --why ||
    failed=$((failed + 1))
# A victim alone, and one beside a neighbour, on each of three paths.
check "all were measured under KVM" python3 "$carried/lab_under_kvm.py" /work/neighbour.sqlite $((6 * rounds))
indented
echo "failed: $failed"
[ $failed = 0 ]
