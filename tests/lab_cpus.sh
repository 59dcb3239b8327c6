#!/bin/sh
# Runs inside the lab (script/test-lab cpus): makes KVM guests that run nothing, and removes them, for
# two minutes. Each makes the lab's kernel replace instructions of its scheduler twice
# (docs/decisions/0015).
echo "kernel $(uname -r), $(nproc) × $(sed -n 's/^model name[^:]*: //p;T;q' /proc/cpuinfo)"
(while :; do
    dd if=/dev/zero of=/work/file bs=64k count=500 conv=fsync 2>/dev/null
    md5sum /work/file >/dev/null
    find /usr -type f >/dev/null
done) &
exec python3 - 120 <<'PYTHON'
import fcntl, os, sys, time

CREATE_VM, CREATE_IRQCHIP, CREATE_VCPU = 0xAE01, 0xAE60, 0xAE41  # <linux/kvm.h>
kvm = os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC)
begin = said = time.monotonic()
guests = 0
while time.monotonic() - begin < float(sys.argv[1]):
    guest = fcntl.ioctl(kvm, CREATE_VM, 0)
    fcntl.ioctl(guest, CREATE_IRQCHIP)
    for cpu in [fcntl.ioctl(guest, CREATE_VCPU, number) for number in range(2)]:
        os.close(cpu)
    os.close(guest)
    guests += 1
    if time.monotonic() - said > 1 or guests == 1:
        said = time.monotonic()
        print(f"guests made in {said - begin:.0f} s: {guests}", flush=True)
print(f"whole; guests made: {guests}", flush=True)
PYTHON
