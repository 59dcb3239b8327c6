# Comes before a database's own script: sh -s -- VERB DIRECTORY … The database is DIRECTORY/data, with
# the server's socket and log. Servers refuse root, so root runs them as the user 65534.

verb=$1 directory=$2
shift 2
data=$directory/data
export LC_ALL=C
# The directory for temporary files may be root's alone, and the server is another user.
unset TMPDIR

fail() {
    said=$(tail -n 3 "$data/server.log" 2>/dev/null | sed '$!s/$/ | /' | tr -d '\n')
    echo "$1${said:+; the last lines of its log: $said}" >&2
    [ "$verb" != make ] || stop
    exit 1
}

# A guest of the user may lack the database.
need() {
    for program in "$@"; do
        command -v "$program" >/dev/null ||
            fail "there is no $program here: install it in the guest, or leave out --guest"
    done
}

# Prints where the real program of that name is: busybox's shell prefers its own.
real() {
    for place in /usr/bin /bin /usr/local/bin; do
        [ ! -x "$place/$1" ] || { echo "$place/$1" && return; }
    done
    echo "$1"
}

# Runs a program in the data directory as an unprivileged user. If that user may not reach it, it is
# bound to /mnt, which only the program and its children see.
unprivileged() {
    cd "$data" || exit 1
    if [ "$(id -u)" != 0 ]; then
        "$@"
        return
    fi
    nobody="$(real setpriv) --reuid 65534 --regid 65534 --clear-groups --"
    # Shared memory in a namespace of its own ends with a server that is killed. The micro guest has
    # no such program, and ends as a whole.
    alone=/usr/bin/unshare
    [ -x "$alone" ] || alone=
    if $nobody sh -c 'cd "$1"' sh "$data" 2>/dev/null; then
        ${alone:+$alone --ipc} $nobody "$@"
    else
        # shellcheck disable=SC2086  # several words
        set -- $nobody "$@"
        unshare --ipc --mount --propagation private \
            sh -c 'mount --bind . /mnt && cd /mnt && exec "$@"' sh "$@"
    fi
}

# True if that process runs. What is left of one that was killed, and that nobody waited for, does not.
runs() {
    read -r _ _ state _ 2>/dev/null <"/proc/$1/stat" && [ "$state" != Z ]
}

# Removes the data, after it has ended what a server that was killed has left.
remove_data() {
    cd / || exit 1
    for process in /proc/[0-9]*; do
        [ "$process/cwd" -ef "$data" ] || continue
        # A person may look at the data, too.
        case $(readlink "$process/exe") in
        *postgres* | *mariadbd* | *mysqld*) kill -9 "${process#/proc/}" ;;
        esac
    done 2>/dev/null
    rm -rf "$data" "$directory/probe"
}

# A data directory of an earlier run that was killed is in the way, and of no use.
new_data() {
    rm -rf "$data" && mkdir -m 700 "$data" || exit 1
    [ "$(id -u)" != 0 ] || chown 65534:65534 "$data" || exit 1
}

# Prints where the data is: the file itself, or the disk with that serial number.
source_of() {
    [ ! -f "$1" ] || { echo "$1" && return; }
    for disk in /sys/block/vd*; do
        # virtio_blk ends the number without a line feed, so `read` fails but has read it.
        serial=
        read -r serial <"$disk/serial"
        [ "$serial" != "$1" ] || echo "/dev/${disk##*/}"
    done 2>/dev/null
}

# Copies the data directory in SOURCE, if there is such a file or disk.
copy_archive() {
    source=$(source_of "$1")
    [ -n "$source" ] || return 0
    new_data
    "$(real tar)" -xf "$source" -C "$directory" || exit 1
    [ "$(id -u)" != 0 ] || chown -R 65534:65534 "$data" || exit 1
}

# Writes of 8 KiB that are synced one after the other, into a file that has its blocks; four times,
# because the fastest says what the disk can do.
probe() {
    dd if=/dev/zero of="$directory/probe" bs=8k count=32 conv=fsync 2>/dev/null || return
    for _ in 1 2 3 4; do
        line=$("$(real dd)" if=/dev/zero of="$directory/probe" bs=8k count=32 oflag=dsync \
            conv=notrunc 2>&1) || return
        line=${line##*copied, }
        echo "probe 32 ${line%% *}"
    done
}
