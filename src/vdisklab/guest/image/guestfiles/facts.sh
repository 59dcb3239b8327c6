#!/usr/bin/busybox sh
# facts: prints kernel, CPUs, memory, page size, clock and command line as key=value lines.
read -r release </proc/sys/kernel/osrelease
echo "kernel=$release"
set -- /sys/devices/system/cpu/cpu[0-9]*
echo "cpus=$#"
read -r _ kib _ </proc/meminfo
echo "memory_bytes=$((kib * 1024))"
while read -r name kib _; do
    [ "$name" = KernelPageSize: ] && break
done </proc/self/smaps
echo "page_size=$((kib * 1024))"
read -r clock </sys/devices/system/clocksource/clocksource0/current_clocksource
echo "clocksource=$clock"
read -r line </proc/cmdline
echo "command_line=$line"
