#!/usr/bin/busybox sh
# load-drivers [TIMEOUT]: waits until the drivers of all buses are loaded and all programs are there.
# Polls ever less often: on a busy machine, starting `usleep` takes a tenth of a second of what the
# drivers need. Exits with 1 and a message when that failed or took more than TIMEOUT seconds (30).
now() {
    read -r up _ </proc/uptime
    centiseconds=${up%.*}${up#*.}
}

now
pause=10000
deadline=$((centiseconds + ${1:-30} * 100))
while [ ! -e /run/vdisklab/ready ]; do
    if [ -e /run/vdisklab/failed ]; then
        read -r reason </run/vdisklab/failed
        echo "the guest is not ready: $reason" >&2
        exit 1
    fi
    now
    if [ "$centiseconds" -ge "$deadline" ]; then
        echo "the guest's drivers are not loaded after ${1:-30} s" >&2
        exit 1
    fi
    /usr/bin/busybox usleep "$pause"
    pause=$((pause + pause / 4))
done
