#!/bin/sh
# Runs inside an arm64 lab (script/test-lab arm): a power cut of a guest's raw and qcow2 disk under KVM.
failed=0
for path in ext4/raw/none ext4/qcow2/none; do
    python3 -m vdisklab powercut "$path" --access guest --client flushes --writes 12 --states 20 \
        --accelerator kvm --dir /work --db /work/powercut.sqlite || failed=1
done
exit $failed
