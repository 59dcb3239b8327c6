#!/bin/sh
# Runs on this machine (script/test-lab kvm-trial): what `doctor` says about its KVM. Once as it is; and
# once with a QEMU whose CPU hides IA32_ARCH_CAPABILITIES. KVM of the module kvm_pvm does not let QEMU
# set this register, so QEMU ends at once. With the register hidden, QEMU goes on and the guest hangs.
set -eu
cache=$(realpath --canonicalize-missing "${VDISKLAB_STATE:-/var/lib/vdisklab}/cache")
work=$(mktemp --directory)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
printf '#!/bin/sh
for word; do shift; case $word in host*) word=host,arch-capabilities=off${word#host} ;; esac
set -- "$@" "$word"; done
exec %s "$@"\n' "$(command -v qemu-system-x86_64)" >"$work/bin/qemu-system-x86_64"
chmod +x "$work/bin/qemu-system-x86_64"
# `doctor` tests KVM with the cached kernel, which the first campaign with a guest downloads.
.venv/bin/vdisklab run raw/writeback --dir "$work" --db "$work/first.sqlite" --profile tests/lab_proof.toml \
    --rounds 1 --size 16M --runtime 1 --ramp 0 --baseline none >"$work/first" 2>&1 ||
    { cat "$work/first"; exit 1; }
said() { # NAME: doctor's lines on KVM, with a new trial
    mkdir --parents "$work/$1/cache"
    for each in guest kernel packages; do
        [ ! -e "$cache/$each" ] || ln -s "$cache/$each" "$work/$1/cache/"
    done
    VDISKLAB_STATE="$work/$1" .venv/bin/vdisklab doctor >"$work/doctor" 2>&1 || true
    sed -n '/^ *KVM /,/^ *QEMU /{/^ *QEMU /d;p}' "$work/doctor" >"$work/lines"
    if grep -q "not tested" "$work/lines" ||
        ! grep -q "a guest booted under KVM\|remedy:" "$work/lines"; then
        cat "$work/doctor"
        exit 1
    fi
    echo "$1:"
    cat "$work/lines"
}
said "as it is"
PATH="$work/bin:$PATH"
said "without arch-capabilities"
