#!/bin/sh
# Runs inside the lab (script/test-lab kvm-trial), once in a lab whose CPU has AMD-V and once in one
# without: what `doctor` says about KVM in each case, and what is to be done. A device that opens and a
# guest that hangs is a case of the machine below the lab: tests/host_kvm_trial.sh.
. /vdisklab/files/lab_checks.sh
says() { # WORDS COMMAND...: doctor's lines on KVM must contain these words
    words="$1"
    shift
    "$@" python3 -m vdisklab doctor >/tmp/doctor 2>&1
    tr -s ' \n' ' ' </tmp/doctor | grep -q "$words" || { cat /tmp/doctor; return 1; }
    grep -A3 "^ *KVM " /tmp/doctor
}
if grep -q -w svm /proc/cpuinfo; then
    check "KVM works" says "a guest booted under KVM"
    indented
    check "KVM works: a run" campaign /work/works.sqlite 1 raw/none $short
    indented | tail -4
    chmod 600 /dev/kvm
    check "no permission" says "usermod --append -G kvm" \
        setpriv --reuid=65534 --regid=65534 --clear-groups env VDISKLAB_STATE=/tmp/nobody
    indented
    modprobe -r kvm_amd kvm
    rm -f /dev/kvm
    check "no device, the CPU has AMD-V" says "modprobe kvm_amd"
    indented
else
    # What systemd does at boot on every Debian: a device file from the module's own list.
    check "the module does not load without hardware" sh -c '! modprobe kvm_amd'
    indented
    check "no device, the CPU has nothing" says "enable nested virtualisation"
    indented
    modprobe kvm
    mknod /dev/kvm c 10 232
    check "module without hardware" says "cannot be opened: No such device"
    indented
fi
echo "failed: $failed"
[ $failed = 0 ]
