#!/usr/bin/busybox sh
# load-drivers [TIMEOUT [MICROSECONDS]]: waits until the drivers of all buses are loaded and all
# programs are there, polling each MICROSECONDS (10000). Exits with 1 and a message when that failed
# or took more than TIMEOUT seconds (30).
now() {
    read -r up _ </proc/uptime
    centiseconds=${up%.*}${up#*.}
}

now
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
    /usr/bin/busybox usleep "${2:-10000}"
done
