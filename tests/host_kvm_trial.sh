#!/bin/sh
# Runs on this machine (script/test-lab kvm-trial): what `doctor` says about its KVM. Once as it is; and
# once with a QEMU whose CPU hides IA32_ARCH_CAPABILITIES. Where QEMU cannot set this register (KVM of
# the module kvm_pvm), it ends at once as it is, and without the register the guest boots and hangs.
set -eu
work=$(mktemp --directory)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
printf '#!/bin/sh
for word; do shift; case $word in host*) word=host,arch-capabilities=off${word#host} ;; esac
set -- "$@" "$word"; done
exec %s "$@"\n' "$(command -v qemu-system-x86_64)" >"$work/bin/qemu-system-x86_64"
chmod +x "$work/bin/qemu-system-x86_64"
said() { # NAME: doctor's lines on KVM, with a new trial
    mkdir --parents "$work/$1/cache"
    for each in guest packages; do ln -s "${VDISKLAB_STATE:-/var/lib/vdisklab}/cache/$each" "$work/$1/cache/"; done
    VDISKLAB_STATE="$work/$1" .venv/bin/vdisklab doctor >"$work/doctor" 2>&1 || true
    sed -n '/^ *KVM /,/^ *QEMU /{/^ *QEMU /d;p}' "$work/doctor" >"$work/lines"
    grep -q KVM "$work/lines" || { cat "$work/doctor"; exit 1; }
    echo "$1:"
    cat "$work/lines"
}
said "as it is"
PATH="$work/bin:$PATH"
said "without arch-capabilities"
