# shellcheck shell=sh
# Sourced by lab_targets.sh inside the lab: a kernel NFS server, LIO with open-iscsi, and nvmet over TCP,
# all on loopback; made by configfs and the servers' own programs.
iqn=iqn.2026-11.org.vdisklab.lab:t
nqn=nqn.2026-11.org.vdisklab.lab
lio=/sys/kernel/config/target
portal=$lio/iscsi/$iqn/tpgt_1
nvmet=/sys/kernel/config/nvmet
network() {
    ip link set lo up
    for module in nfsd nfs nfsv4 target_core_mod target_core_file iscsi_target_mod iscsi_tcp nvmet_tcp \
        nvme_tcp; do
        modprobe "$module" || return
    done
    mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
    mkdir -p /run/rpc_pipefs /etc/iscsi /var/lib/nfs /run/lock/iscsi
}
start_nfs() { # DIRECTORY OPTIONS: exports it, and serves NFS version 4.2
    mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
    exportfs -o "$2,no_subtree_check,no_root_squash,fsid=1" "127.0.0.1:$1"
    echo 10 >/proc/fs/nfsd/nfsv4leasetime 2>/dev/null
    echo 10 >/proc/fs/nfsd/nfsv4gracetime 2>/dev/null
    pgrep -x rpc.mountd >/dev/null || rpc.mountd --no-udp --no-nfs-version 3
    rpc.nfsd --no-udp --no-nfs-version 3 --nfs-version 4.2 4
}
stop_nfs() { rpc.nfsd 0; }
mount_nfs() { # DIRECTORY MOUNTPOINT
    mkdir -p "$2"
    mount -t nfs4 -o vers=4.2,hard,proto=tcp "127.0.0.1:$1" "$2"
}
start_lio() { # NAME FILE BYTES CACHE: a fileio LUN; CACHE 1 claims a write cache, 0 claims none. Both are
# buffered in the server's memory.
    mkdir -p "$lio/core/fileio_0/$1"
    printf 'fd_dev_name=%s,fd_dev_size=%s,fd_buffered_io=1' "$2" "$3" >"$lio/core/fileio_0/$1/control"
    echo 1 >"$lio/core/fileio_0/$1/enable"
    echo "$4" >"$lio/core/fileio_0/$1/attrib/emulate_write_cache"
    printf '%s' "$1" >"$lio/core/fileio_0/$1/wwn/vpd_unit_serial"
    mkdir -p "$portal/np/127.0.0.1:3260"
    lun="$portal/lun/lun_$(find "$portal/lun" -maxdepth 1 -name 'lun_*' | wc -l)"
    mkdir -p "$lun"
    ln -s "$lio/core/fileio_0/$1" "$lun/it"
    for attribute in authentication=0 generate_node_acls=1 demo_mode_write_protect=0 cache_dynamic_acls=1; do
        echo "${attribute#*=}" >"$portal/attrib/${attribute%=*}"
    done
    echo 1 >"$portal/enable"
}
login_iscsi() { # waits until udev knows the disks
    [ -e /etc/iscsi/initiatorname.iscsi ] ||
        echo "InitiatorName=iqn.2026-11.org.vdisklab.lab:host" >/etc/iscsi/initiatorname.iscsi
    pgrep -x iscsid >/dev/null || iscsid
    iscsiadm -m discovery -t sendtargets -p 127.0.0.1 && iscsiadm -m node -T $iqn -p 127.0.0.1 --login
    udevadm settle
}
logout_iscsi() { iscsiadm -m node -T $iqn -p 127.0.0.1 --logout; }
lun() { # NUMBER: the device of a LUN, by the kernel's name
    readlink -f "/dev/disk/by-path/ip-127.0.0.1:3260-iscsi-$iqn-lun-$1"
}
start_nvmet() { # DEVICE-OR-FILE
    mkdir -p "$nvmet/subsystems/$nqn/namespaces/1" "$nvmet/ports/1"
    echo 1 >"$nvmet/subsystems/$nqn/attr_allow_any_host"
    printf '%s' "$1" >"$nvmet/subsystems/$nqn/namespaces/1/device_path"
    echo 1 >"$nvmet/subsystems/$nqn/namespaces/1/enable"
    for line in addr_trtype=tcp addr_adrfam=ipv4 addr_traddr=127.0.0.1 addr_trsvcid=4420; do
        echo "${line#*=}" >"$nvmet/ports/1/${line%=*}"
    done
    ln -s "$nvmet/subsystems/$nqn" "$nvmet/ports/1/subsystems/$nqn"
}
connect_nvme() { nvme connect -t tcp -a 127.0.0.1 -s 4420 -n $nqn "$@" && udevadm settle; }
