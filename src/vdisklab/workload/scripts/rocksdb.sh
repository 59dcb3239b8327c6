# The steps around db_bench.
#
#   make DIRECTORY KEYS             makes a database with that many keys
#   copy DIRECTORY SOURCE KEYS      copies the one in SOURCE, or makes one
#   new DIRECTORY                   makes an empty directory
#   stop DIRECTORY                  removes the data

make_data() {
    new_data
    db_bench --benchmarks=fillrandom,compact --db="$data" --num="$1" --value_size=400 \
        --compression_type=none --disable_wal=1 --seed=1 >/dev/null 2>"$data/server.log" ||
        fail "db_bench failed"
    sync
}

stop() {
    rm -rf "$data"
}

case $verb in
make) make_data "$1" ;;
copy)
    need db_bench
    copy_archive "$1"
    [ -e "$data/CURRENT" ] || make_data "$2"
    ;;
new)
    need db_bench
    new_data
    ;;
stop) stop ;;
esac
