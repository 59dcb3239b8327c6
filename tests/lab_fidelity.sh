#!/bin/sh
# Runs inside the lab (script/test-lab fidelity): bench/fidelity.py under KVM. Prints its JSON only.
export VDISKLAB_PATIENCE=8 PYTHONPATH="$PYTHONPATH:/vdisklab/files"
python3 /vdisklab/files/fidelity.py --accelerator kvm --dir /work --guest /vdisklab/files/debian.qcow2 \
    2>/work/errors || cat /work/errors
