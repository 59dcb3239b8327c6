# sh -s -- VERB DIRECTORY …: the steps around pgbench, in DIRECTORY on the measured disk. The data
# directory is DIRECTORY/data; the server's socket and log are in it. PostgreSQL refuses root, so
# root runs it as the user 65534.
#
#   make DIRECTORY SCALE                   makes a data directory with pgbench's tables
#   copy DIRECTORY SOURCE SCALE            copies the data directory in SOURCE, a tar file or the
#                                          serial number of a virtio disk with one. Without such a
#                                          disk, or if it is another major version's, makes one
#   start DIRECTORY RATE NAME=VALUE…       starts the server with these settings
#   warm DIRECTORY PERCENT PGBENCH…        runs pgbench, then a checkpoint. Writes PERCENT of the
#                                          transactions per second to data/vdisklab.rate
#   before DIRECTORY FILE                  writes settings, counters and the disk's fdatasync time
#   after DIRECTORY FILE LOG               appends counters, and pgbench's log as a histogram
#   stop DIRECTORY                         ends the server and removes the data

verb=$1 directory=$2
shift 2
data=$directory/data
PATH=$(ls -d /usr/lib/postgresql/*/bin /usr/pgsql-*/bin 2>/dev/null | sort -rV | tr '\n' ':')$PATH
export PATH LC_ALL=C PGUSER=postgres PGDATABASE=postgres PGHOST=/proc/self/cwd

fail() {
    echo "$1: $(tail -n 3 "$data/server.log" 2>/dev/null | tr '\n' '|')" >&2
    [ "$verb" != make ] || stop
    exit 1
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
    if $nobody sh -c 'cd "$1"' sh "$data" 2>/dev/null; then
        $nobody "$@"
    else
        # shellcheck disable=SC2086  # several words
        set -- $nobody "$@"
        unshare --mount --propagation private \
            sh -c 'mount --bind . /mnt && cd /mnt && exec "$@"' sh "$@"
    fi
}

# A data directory of an earlier run that was killed is in the way, and of no use.
new_data() {
    rm -rf "$data" && mkdir -m 700 "$data" || exit 1
    [ "$(id -u)" != 0 ] || chown 65534:65534 "$data" || exit 1
}

make_data() {
    new_data
    unprivileged initdb -D . -U postgres -A trust -k --locale=C -E UTF8 --no-instructions \
        >/dev/null || exit 1
    # With the least WAL there is no log of the rows.
    start fsync=off wal_level=minimal max_wal_senders=0 maintenance_work_mem=256MB
    (cd "$data" && pgbench -i -q -s "$1" 2>&1 && psql -qc CHECKPOINT) || fail "pgbench -i failed"
    unprivileged pg_ctl -D . -s -w -t 600 stop || fail "the server does not stop"
    rm -f "$data/server.log"
    sync
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

copy_data() {
    source=$(source_of "$1")
    if [ -n "$source" ]; then
        new_data
        "$(real tar)" -xf "$source" -C "$directory" || exit 1
        [ "$(id -u)" != 0 ] || chown -R 65534:65534 "$data" || exit 1
    fi
    own=$(postgres --version) || fail "there is no PostgreSQL"
    own=${own#*) }
    read -r version 2>/dev/null <"$data/PG_VERSION" && [ "$version" = "${own%%.*}" ] || make_data "$2"
}

# The last setting of a name counts.
start() {
    [ -e "$data/postgresql.conf.plain" ] || cp -p "$data/postgresql.conf" "$data/postgresql.conf.plain"
    cp "$data/postgresql.conf.plain" "$data/postgresql.conf"
    {
        echo "listen_addresses = ''"
        echo "unix_socket_directories = '.'"
        echo "unix_socket_permissions = 0700"
        # Without files of time zones and shared memory, which a small guest lacks.
        echo "timezone = GMT"
        echo "log_timezone = GMT"
        echo "dynamic_shared_memory_type = sysv"
        printf "%s\n" "$@" | sed "s/=/ = '/; s/\$/'/"
    } >>"$data/postgresql.conf"
    unprivileged pg_ctl -D . -l server.log -s -w -t 300 start >/dev/null ||
        fail "the server does not start"
}

stop() {
    [ ! -e "$data/postmaster.pid" ] || unprivileged pg_ctl -D . -s -m immediate -w -t 300 stop
    rm -rf "$data" "$directory/probe"
}

counters() {
    for view in pg_stat_wal pg_stat_bgwriter pg_stat_checkpointer pg_stat_database; do
        condition=
        [ $view != pg_stat_database ] || condition="WHERE datname = 'postgres'"
        # pg_stat_checkpointer is of version 17.
        row=$(psql -AtXqc "SELECT row_to_json(v) FROM $view v $condition" 2>/dev/null) &&
            echo "$1 $view $row"
    done
    read -r cpu </proc/stat
    echo "$1 $cpu"
}

settings() {
    psql -AtXqc "SELECT 'setting ' || name || ' ' || setting FROM pg_settings WHERE name IN (
        'autovacuum', 'block_size', 'checkpoint_timeout', 'data_checksums', 'fsync',
        'full_page_writes', 'jit', 'max_wal_size', 'server_version', 'shared_buffers',
        'synchronous_commit', 'wal_sync_method')"
    echo "setting scale $(psql -AtXqc 'SELECT count(*) FROM pgbench_branches')"
    echo "setting data_bytes $(psql -AtXqc "SELECT pg_database_size('postgres')")"
}

# Writes of 8 KiB that are synced one after the other, into a file that has its blocks.
probe() {
    dd if=/dev/zero of="$directory/probe" bs=8k count=64 conv=fsync 2>/dev/null || return
    line=$("$(real dd)" if=/dev/zero of="$directory/probe" bs=8k count=64 oflag=dsync conv=notrunc 2>&1) ||
        return
    line=${line##*copied, }
    echo "probe 64 ${line%% *}"
}

# Latencies to three digits, in microseconds; transactions of each second.
histogram() {
    cat "$1".* | awk '
        $3 !~ /^[0-9]+$/ { failed++; next }
        {
            time = $3 + 0; sum += time; count++; step = 1
            if (time > most) most = time
            while (time >= 1000 * step) step *= 10
            latency[int(time / step) * step]++; second[$5]++
        }
        END {
            printf "log %d %d %.0f %.0f\n", count, failed, sum, most
            for (time in latency) printf "latency %.0f %d\n", time, latency[time]
            for (time in second) printf "second %.0f %d\n", time, second[time]
        }'
    rm -f "$1".*
}

case $verb in
make) make_data "$1" ;;
copy) copy_data "$@" ;;
start) start "$@" ;;
warm)
    cd "$data" || exit 1
    percent=$1
    shift
    said=$("$@") || fail "pgbench failed"
    echo "$said" | sed -n 's/^tps = \([0-9.]*\) .*/\1/p' |
        awk "{ printf \"%.3f\n\", \$1 * $percent / 100 }" >vdisklab.rate
    psql -qXc CHECKPOINT || fail "the checkpoint failed"
    ;;
before)
    cd "$data" || exit 1
    { settings && probe && counters before; } >"$1" || fail "the server does not answer"
    ;;
after)
    cd "$data" || exit 1
    { counters after && histogram "$2"; } >>"$1" || fail "the server does not answer"
    ;;
stop) stop ;;
esac
