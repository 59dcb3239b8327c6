# The steps around pgbench, in DIRECTORY on the measured disk.
#
#   make DIRECTORY SCALE                   makes a data directory with pgbench's tables; with SCALE 0
#                                          a small one with the extension amcheck instead
#   copy DIRECTORY SOURCE SCALE            copies the data directory in SOURCE, a tar file or the
#                                          serial number of a virtio disk with one. Without such a
#                                          disk, or if it is another major version's, makes one
#   start DIRECTORY NAME=VALUE…            starts the server with these settings
#   warm DIRECTORY PERCENT PGBENCH…        runs pgbench, then a checkpoint. Writes PERCENT of the
#                                          transactions per second to data/vdisklab.rate
#   before DIRECTORY FILE                  writes settings, counters and the disk's fdatasync time
#   after DIRECTORY FILE LOG               appends counters, and pgbench's log as a histogram
#   stop DIRECTORY                         ends the server and removes the data
#   client DIRECTORY                       runs psql on the started server
#   version DIRECTORY                      prints the server's version

PATH=$(ls -d /usr/lib/postgresql/*/bin /usr/pgsql-*/bin 2>/dev/null | sort -rV | tr '\n' ':')$PATH
export PATH PGUSER=postgres PGDATABASE=postgres PGHOST=/proc/self/cwd

make_data() {
    new_data
    small=
    [ "$1" != 0 ] || small=--wal-segsize=1
    unprivileged initdb -D . -U postgres -A trust -k --locale=C -E UTF8 --no-instructions \
        ${small:+"$small"} >/dev/null || exit 1
    # With the least WAL there is no log of the rows.
    start fsync=off wal_level=minimal max_wal_senders=0 maintenance_work_mem=256MB
    if [ "$1" = 0 ]; then
        (cd "$data" && printf "%s;\n" "CREATE EXTENSION amcheck" CHECKPOINT "ALTER DATABASE template0
            IS_TEMPLATE false" "DROP DATABASE template0" |
            psql -qXv ON_ERROR_STOP=1) || fail "PostgreSQL's amcheck cannot be installed"
    else
        (cd "$data" && pgbench -i -q -s "$1" 2>&1 && psql -qc CHECKPOINT) || fail "pgbench -i failed"
    fi
    unprivileged pg_ctl -D . -s -w -t 600 stop || fail "the server does not stop"
    rm -f "$data/server.log"
    sync
}

copy_data() {
    need postgres pg_ctl psql pgbench
    copy_archive "$1"
    own=$(postgres --version)
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
    if read -r server 2>/dev/null <"$data/postmaster.pid" && runs "$server"; then
        unprivileged pg_ctl -D . -s -m immediate -w -t 300 stop
    fi
    remove_data
}

counters() {
    for view in pg_stat_wal pg_stat_bgwriter pg_stat_checkpointer pg_stat_database; do
        condition=
        [ $view != pg_stat_database ] || condition="WHERE datname = 'postgres'"
        # pg_stat_checkpointer is of version 17; the log is kept for what matters.
        row=$(PGOPTIONS=-clog_min_messages=panic psql -AtXqc "SELECT row_to_json(v) FROM $view v $condition" 2>/dev/null) &&
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
client)
    cd "$data" || exit 1
    exec psql -XqAtv ON_ERROR_STOP=1
    ;;
version) postgres --version ;;
esac
