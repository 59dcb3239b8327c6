# The steps around sysbench's database tests, on MariaDB.
#
#   make DIRECTORY ROWS                    makes a data directory with four tables of ROWS rows
#   copy DIRECTORY SOURCE ROWS             copies the one in SOURCE; makes one if there is none, or
#                                          if it is another version's
#   start DIRECTORY NAME=VALUE…            starts the server with these settings
#   warm DIRECTORY SYSBENCH…               runs sysbench
#   before DIRECTORY FILE                  writes settings, counters and the disk's fdatasync time
#   after DIRECTORY FILE                   appends counters
#   stop DIRECTORY                         ends the server and removes the data

ask() {
    (cd "$data" && mariadb --no-defaults --socket=mysql.sock --user=root -NB -e "$1")
}

version() {
    mariadbd --no-defaults --version | sed 's/.*Ver \([0-9]*\.[0-9]*\).*/\1/'
}

make_data() {
    new_data
    unprivileged mariadb-install-db --no-defaults --datadir=. --skip-test-db \
        --auth-root-authentication-method=normal >"$directory/install.log" 2>&1 || {
        tail -n 3 "$directory/install.log" >&2
        exit 1
    }
    rm -f "$directory/install.log"
    version >"$data/vdisklab.version"
    start innodb_flush_log_at_trx_commit=0 innodb_doublewrite=0 innodb_buffer_pool_size=256M
    ask "CREATE DATABASE sbtest" || fail "the server does not answer"
    (cd "$data" && sysbench oltp_read_write --db-driver=mysql --mysql-user=root \
        --mysql-socket=/proc/self/cwd/mysql.sock --tables=4 --table_size="$1" prepare >/dev/null) ||
        fail "sysbench could not make its tables"
    ask "SHUTDOWN" || fail "the server does not stop"
    gone || fail "the server does not stop"
    rm -f "$data/server.log"
    sync
}

copy_data() {
    need mariadbd mariadb sysbench
    copy_archive "$1"
    read -r made 2>/dev/null <"$data/vdisklab.version" && [ "$made" = "$(version)" ] ||
        make_data "$2"
}

gone() {
    turns=0
    while read -r server 2>/dev/null <"$data/mariadbd.pid" && runs "$server"; do
        turns=$((turns + 1))
        [ "$turns" -lt 600 ] || return 1
        sleep 0.5
    done
}

start() {
    [ $# -eq 0 ] || printf -- '--%s\n' "$@" >"$data/vdisklab.options"
    (
        # Nobody may wait for the server's output.
        exec </dev/null >/dev/null 2>&1
        # shellcheck disable=SC2046  # an option each
        unprivileged mariadbd --no-defaults --datadir=. --socket=mysql.sock --skip-networking \
            --pid-file=mariadbd.pid --log-error=server.log $(cat "$data/vdisklab.options")
    ) &
    turns=0
    until ask "SELECT 1" >/dev/null 2>&1; do
        kill -0 $! 2>/dev/null || fail "the server does not start"
        turns=$((turns + 1))
        [ "$turns" -lt 600 ] || fail "the server does not answer"
        sleep 0.5
    done
}

stop() {
    if read -r server 2>/dev/null <"$data/mariadbd.pid" && runs "$server"; then
        kill "$server"
        gone
    fi
    remove_data
}

settings() {
    ask "SELECT 'setting', lower(variable_name), variable_value
        FROM information_schema.global_variables WHERE variable_name IN (
        'innodb_buffer_pool_size', 'innodb_doublewrite', 'innodb_flush_log_at_trx_commit',
        'innodb_flush_method', 'innodb_log_file_size', 'log_bin', 'version')" | tr '\t' ' '
    echo "setting data_bytes $(ask "SELECT sum(data_length + index_length)
        FROM information_schema.tables WHERE table_schema = 'sbtest'")"
}

counters() {
    ask "SELECT '$1', lower(variable_name), variable_value
        FROM information_schema.global_status WHERE variable_name IN (
        'com_commit', 'innodb_data_fsyncs', 'innodb_data_reads', 'innodb_data_writes',
        'innodb_dblwr_writes', 'innodb_os_log_fsyncs', 'innodb_os_log_written')" | tr '\t' ' '
    read -r cpu </proc/stat
    echo "$1 $cpu"
}

case $verb in
make) make_data "$1" ;;
copy) copy_data "$@" ;;
start) start "$@" ;;
warm)
    cd "$data" || exit 1
    # sysbench 1.0 gives its threads 30 s to start. In an emulated guest of 192 MiB on a busy host
    # that was too short for the first time, and it has no option for it.
    for _ in 1 2 3; do
        said=$("$@") && exit
        case $said in *"failed to initialize within"*) ;; *) break ;; esac
    done
    # It writes its errors to standard output.
    fail "sysbench failed: $(echo "$said" | grep FATAL | tail -n 2 | tr '\n' '|')"
    ;;
before) { settings && probe && counters before; } >"$1" || fail "the server does not answer" ;;
after) counters after >>"$1" || fail "the server does not answer" ;;
stop) stop ;;
esac
