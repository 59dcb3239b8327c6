#!/bin/sh
# Runs inside the lab (script/test-lab kvm-libvirt): a domain of `export` that a real libvirtd starts
# under KVM, and its audit.
. /vdisklab/files/lab_checks.sh
exported() { # a domain of type kvm, started by libvirt and audited
    truncate -s 64M /work/disk.raw
    python3 -m vdisklab export raw/none --to libvirt --source /work/disk.raw >/work/domain.xml ||
        return
    grep -q "type='kvm'\|type=\"kvm\"" /work/domain.xml || { cat /work/domain.xml; return 1; }
    tar --skip-old-files -xf "$carried/libvirt.tar" -C / && ldconfig
    libvirtd --version
    unshare --mount --pid --fork --kill-child --mount-proc \
        python3 "$carried/libvirt_session.py" --audit /work/domain.xml
}
check "libvirt starts an exported domain of type kvm" exported
indented
echo "failed: $failed"
[ $failed = 0 ]
