#!/bin/sh
# Runs inside the lab (script/test-lab fidelity): bench/fidelity.py under KVM. Prints its JSON only.
carried=/vdisklab/files
export VDISKLAB_PATIENCE=8 PYTHONPATH="$PYTHONPATH:$carried"
python3 "$carried/fidelity.py" --pairs 6 --cpus 1 --runtime 4 --ramp 2 --accelerator kvm --dir /work \
    --below "$(cat "$carried/below")" \
    --guest "$carried/debian.qcow2" 2>/work/errors || { cat /work/errors; exit 1; }
