#!/usr/bin/busybox sh
# find-disk SERIAL TIMEOUT: waits until the disk with that serial number is there, and prints its
# facts as key=value lines. Exits with 1 and a message after TIMEOUT seconds.
# The shell itself reads every file: starting a program for each would take seconds.
serial=$1

now() {
    read -r up _ </proc/uptime
    centiseconds=${up%.*}${up#*.}
}

# Where each driver of Linux 6.1 shows the number: virtio_blk beside the disk; nvme in the
# controller; scsi and libata in page 0x80 of the vital product data, behind a header of four bytes;
# usb-storage (which asks for no pages) in the USB device, four levels above the SCSI device.
has_serial() {
    for file in "$1/serial" "$1/device/serial" "$1/device/../../../../serial"; do
        if [ -e "$file" ]; then
            found=
            read -r found <"$file"
            [ "$found" = "$serial" ] && return 0
        fi
    done
    [ -e "$1/device/vpd_pg80" ] || return 1
    # The shell skips the header's zero bytes, which leaves two bytes before the number; when the
    # length is ten, it is a line feed. An ATA serial number is padded with spaces.
    while IFS= read -r found || [ -n "$found" ]; do
        while [ "$found" != "${found% }" ]; do found=${found% }; done
        case $found in
        "$serial" | ?"$serial" | ??"$serial") return 0 ;;
        esac
    done <"$1/device/vpd_pg80"
    return 1
}

# Sets `disk`. A disk of size 0 is not set up yet.
find_disk() {
    for disk in /sys/block/*; do
        case $disk in
        */loop* | */ram* | */sr* | */fd*) continue ;;
        esac
        [ -b "/dev/${disk##*/}" ] || continue
        # The queue's files come a moment after the disk; the link `bdi` after all of them
        # (device_add_disk in block/genhd.c of Linux 6.1).
        [ -e "$disk/bdi" ] && [ -e "$disk/queue/write_cache" ] && has_serial "$disk" || continue
        read -r sectors <"$disk/size" && [ "$sectors" -gt 0 ] && return 0
    done 2>/dev/null
    return 1
}

# Prints `$1=` and the content of the file $2 of the disk's queue, if this kernel has it.
show() {
    if [ -e "$disk/queue/$2" ]; then
        read -r value <"$disk/queue/$2"
        echo "$1=$value"
    fi
}

# Sets `disk` to the one that has the queues. Since QEMU 10 its NVMe controllers can have several
# paths, so Linux makes nvme0n1 a disk without queues above nvme0c0n1, which has no device file
# (nvme_mpath_alloc_disk in drivers/nvme/host/multipath.c).
find_queues() {
    for path in "${disk%n*}"c*n"${disk##*n}"; do
        [ ! -e "$path/mq" ] || disk=$path
    done
    echo "queues_of=${disk##*/}"
}

# The driver of the SCSI host (virtio_scsi, ata_piix, ahci, usb-storage, uas), as the driver of all
# these disks is "sd".
show_driver() {
    cd -P "$disk/device/../.." 2>/dev/null
    host=/sys/class/scsi_host/${PWD##*/}/proc_name
    if [ -e "$host" ]; then
        read -r driver <"$host"
    elif [ -e "$disk/device/driver" ]; then
        cd -P "$disk/device/driver" && driver=${PWD##*/}
    else
        driver=${disk##*/}
        driver=${driver%%[0-9]*}
    fi
    echo "driver=$driver"
}

# The feature bits that driver and device agreed on, the lowest first; no line for other disks.
show_virtio_features() {
    cd -P "$disk/device" 2>/dev/null || return 0
    while [ "$PWD" != / ] && [ ! -f features ]; do
        cd ..
    done
    [ ! -f features ] || { read -r bits <features && echo "virtio_features=$bits"; }
}

now
deadline=$((centiseconds + $2 * 100))
until find_disk; do
    if [ -e /run/vdisklab/failed ]; then
        read -r reason </run/vdisklab/failed
        echo "the guest is not ready: $reason" >&2
        exit 1
    fi
    now
    if [ "$centiseconds" -ge "$deadline" ]; then
        echo "no disk with serial number $serial within $2 s" >&2
        exit 1
    fi
    /usr/bin/busybox usleep 5000
done

echo "device=/dev/${disk##*/}"
echo "size_bytes=$((sectors * 512))"
show logical_block_size logical_block_size
show physical_block_size physical_block_size
show write_cache write_cache
show fua fua
show rotational rotational
show discard_max_bytes discard_max_bytes
show discard_granularity discard_granularity
show read_ahead_kb read_ahead_kb
show max_sectors_kb max_sectors_kb
show_driver
show_virtio_features
find_queues
show nr_requests nr_requests
show wbt_lat_usec wbt_lat_usec
if [ -e "$disk/queue/scheduler" ]; then
    read -r value <"$disk/queue/scheduler"
    case $value in
    *\[*) value=${value#*\[} value=${value%%\]*} ;;
    esac
    echo "scheduler=$value"
fi
set -- "$disk"/mq/*
[ -e "$1" ] || shift
echo "nr_hw_queues=$#"
