#!/bin/sh
# Runs inside the lab (script/test-lab fidelity, fidelity-debian, parameters): bench/fidelity.py under
# KVM, with the disks in memory. Prints its progress, then JSON. The file `options` has the part's own
# options.
carried=/vdisklab/files
export PYTHONPATH="$PYTHONPATH:$carried"
mount -t tmpfs tmpfs /mnt
echo never >/sys/kernel/mm/transparent_hugepage/enabled # by chance one guest would have them
# shellcheck disable=SC2046
python3 "$carried/fidelity.py" --cpus 1 --runtime 3 --ramp 0 --accelerator kvm --dir /mnt \
    --below "$(cat "$carried/below")" $(cat "$carried/options")
