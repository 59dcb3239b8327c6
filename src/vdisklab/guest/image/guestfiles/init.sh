#!/usr/bin/busybox sh
# The guest's first process: as little as it takes for the agent to answer. Starting a program
# costs tens of milliseconds under emulation, so one call mounts all and one loads all.
/usr/bin/busybox mount -a
/usr/bin/busybox modprobe -a virtio_pci virtio_console
export PATH=/usr/sbin:/usr/bin HOME=/root
/usr/lib/vdisklab/prepare &

# The host names the port a moment after it appeared; which number it has depends on the slots.
port=
turns=0
while [ -z "$port" ]; do
    for candidate in /sys/class/virtio-ports/*; do
        if read -r name <"$candidate/name" && [ "$name" = org.qemu.guest_agent.0 ]; then
            port=/dev/${candidate##*/}
        fi
    done 2>/dev/null
    turns=$((turns + 1))
    [ $turns -lt 200 ] || /usr/bin/busybox usleep 2000
done

# When the agent ends, so does the first process: the kernel panics, and QEMU ends (-no-reboot).
exec /usr/sbin/qemu-ga -m virtio-serial -p "$port" -t /run
