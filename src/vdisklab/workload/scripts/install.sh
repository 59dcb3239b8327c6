# sh -s -- TARGET PACKAGES LOG: installs an operating system onto the file system mounted at TARGET,
# as debootstrap(8) and mmdebstrap(1) do: the essential packages' files first, so that there is a
# shell to run maintainer scripts with, then all packages by the dpkg among them, in a chroot.
# PACKAGES is a directory, or the serial number of a virtio disk with one.
# Prints key=value lines. What dpkg says goes to LOG.

fail() {
    echo "$1: $(tail -n 3 "$log" 2>/dev/null | tr '\n' '|')" >&2
    # Nothing of ours may keep the target busy.
    unmount_packages 2>/dev/null
    exit 1
}

# Prints where the real program of that name is: busybox has smaller ones, which its shell prefers.
real_program() {
    for place in /usr/bin /bin; do
        [ -x "$place/$1" ] && echo "$place/$1" && return 0
    done
    return 1
}

# Hundredths of a second.
now() {
    read -r up _ </proc/uptime
    echo "${up%.*}${up#*.}"
}

# Sets `disk`.
find_disk() {
    for disk in /sys/block/vd*; do
        serial=
        # virtio_blk ends the number without a line feed, so `read` fails but has read it.
        read -r serial <"$disk/serial"
        [ "$serial" = "$1" ] && return 0
    done 2>/dev/null
    return 1
}

mount_packages() {
    mkdir -p "$carried" "$target/proc"
    if [ -d "$1" ]; then
        mount --bind "$1" "$carried" || fail "the packages cannot be bound"
    else
        find_disk "$1" || fail "the disk with the packages ($1) is missing"
        mount -t ext4 -o ro "/dev/${disk##*/}" "$carried" || fail "the packages cannot be mounted"
    fi
    mount -t proc proc "$target/proc" || fail "/proc cannot be mounted"
}

unmount_packages() {
    umount "$target/proc" && umount "$carried" && rmdir "$carried"
}

# Debian's layout since version 12; tar and dpkg follow these links.
merge_usr() {
    for name in bin sbin lib lib64; do
        mkdir -p "$target/usr/$name" && ln -s "usr/$name" "$target/$name" || return 1
    done
}

make_devices() {
    mkdir -p "$target/dev"
    while read -r name major minor; do
        mknod -m 666 "$target/dev/$name" c "$major" "$minor" || return 1
    done <<DEVICES
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
DEVICES
}

extract_first() {
    while read -r deb; do
        "$dpkg_deb" --fsys-tarfile "$carried/$deb" >"$log.fifo" &
        "$tar" -C "$target" --keep-directory-symlink -x -f - <"$log.fifo" || return 1
        wait $! || return 1
    done <"$carried/first"
}

# What dpkg needs before its first package, and a policy that starts no service.
prepare_dpkg() {
    mkdir -p "$target/var/lib/dpkg/info" "$target/var/lib/dpkg/updates" "$target/usr/sbin" &&
        : >"$target/var/lib/dpkg/status" && : >"$target/var/lib/dpkg/available" &&
        printf '#!/bin/sh\nexit 101\n' >"$target/usr/sbin/policy-rc.d" &&
        chmod 755 "$target/usr/sbin/policy-rc.d"
}

# dpkg as it is: it syncs each file and its database, as it does on every Debian.
run_dpkg() {
    chroot "$target" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C \
        DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true \
        dpkg --force-depends "$@" >>"$log" 2>&1
}

inside() {
    sed "s|^|$inner/|" "$carried/$1"
}

install_all() {
    # Owners of files are looked up by name, so the names come first.
    # shellcheck disable=SC2046  # names of packages hold no blanks
    run_dpkg --install $(inside first | grep '/base-passwd_') || fail "dpkg --install base-passwd"
    # shellcheck disable=SC2046
    run_dpkg --install $(inside first | grep -v '/base-passwd_') || fail "dpkg --install"
    if [ -s "$carried/rest" ]; then
        # shellcheck disable=SC2046
        run_dpkg --unpack $(inside rest) || fail "dpkg --unpack"
        run_dpkg --configure --pending || fail "dpkg --configure"
    fi
}

confirm() {
    # shellcheck disable=SC2016  # dpkg-query's own variable
    chroot "$target" dpkg-query -W -f '${db:Status-Status}\n' >"$log.states"
    states=$(sort -u "$log.states" | tr '\n' ' ')
    [ "$states" = "installed " ] || fail "not all packages are installed ($states)"
    echo "packages=$(wc -l <"$log.states")"
    rm -f "$log.states"
    echo "files=$(cat "$target"/var/lib/dpkg/info/*.list | wc -l)"
}

main() {
    target=$1 log=$3 inner=/vdisklab-packages
    carried=$target$inner
    : >"$log"
    dpkg_deb=$(real_program dpkg-deb) || fail "this machine has no dpkg-deb"
    tar=$(real_program tar) || fail "this machine has no tar"
    rm -f "$log.fifo"
    mkfifo "$log.fifo" || fail "mkfifo"
    mount_packages "$2"
    begin=$(now)
    merge_usr || fail "the first directories cannot be made"
    make_devices || fail "mknod"
    extract_first || fail "a package cannot be unpacked"
    prepare_dpkg || fail "dpkg's database cannot be made"
    extracted=$(now)
    install_all
    sync
    end=$(now)
    rm -f "$log.fifo"
    echo "extract_hundredths=$((extracted - begin))"
    echo "total_hundredths=$((end - begin))"
    confirm
    unmount_packages || fail "the packages cannot be unmounted"
}

main "$@" </dev/null
