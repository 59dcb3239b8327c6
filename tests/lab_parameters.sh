#!/bin/sh
# Runs inside the lab (script/test-lab parameters): bench/fidelity.py --parameters under KVM. Prints
# its JSON only.
carried=/vdisklab/files
export VDISKLAB_PATIENCE=8 PYTHONPATH="$PYTHONPATH:$carried"
python3 "$carried/fidelity.py" --parameters --pairs 8 --cpus 1 --runtime 4 --ramp 2 --only tsc "root port" log lpj initcalls \
    --accelerator kvm --dir /work \
    --below "$(cat "$carried/below")" 2>/work/errors || { cat /work/errors; exit 1; }
