# A replay of a recorded load: sh -s -- VERB DIRECTORY …, where DIRECTORY is made for it.
#
#   make DIRECTORY COMPILER          compiles replay.c, and lays it beside the plan into DIRECTORY/data
#   unpack DIRECTORY SOURCE DEVICE   copies both from the file SOURCE, or the disk with that serial number
#   run DIRECTORY PART PLACES MODE TARGET LIMIT [DELAY] [LOG]
#                                    prints the texts PART and PLACES, and what the program prints
#   remove DIRECTORY DEVICE

verb=$1 directory=$2
shift 2
export LC_ALL=C

# Sets `queue` to the file that says whether the guest merges requests to a disk.
queue_of() {
    queue=/sys/class/block/${1##*/}/queue/nomerges
    [ -b "$1" ] && [ -w "$queue" ]
}

case $verb in
make)
    cd "$directory" && mkdir data || exit 1
    # Without libraries it runs in any guest of this architecture; not every system has the static ones.
    "$1" -O2 -pthread -static -o data/replay replay.c 2>/dev/null ||
        "$1" -O2 -pthread -o data/replay replay.c || exit 1
    mv plan data/
    ;;
unpack)
    mkdir -p "$directory" || exit 1
    if [ -f "$1" ]; then
        exec tar -xf "$1" -C "$directory"
    fi
    for disk in /sys/block/vd*; do
        serial=
        # virtio_blk ends the number without a line feed, so `read` fails but has read it.
        read -r serial <"$disk/serial"
        [ "$serial" != "$1" ] || source=/dev/${disk##*/}
    done 2>/dev/null
    [ -n "$source" ] || { echo "the disk $1 with the load is not there" >&2 && exit 1; }
    tar -xf "$source" -C "$directory" || exit 1
    # The recorded requests are those that the guest's kernel had merged already.
    if queue_of "$2"; then
        read -r before <"$queue" && echo "$before" >"$directory/nomerges"
        echo 2 >"$queue"
    fi
    ;;
run)
    printf 'part %s\nplaces %s\n' "$1" "$2"
    mode=$3
    shift 3
    exec "$directory/data/replay" "$mode" "$directory/data/plan" "$@"
    ;;
remove)
    if [ -f "$directory/nomerges" ] && queue_of "$1"; then
        read -r before <"$directory/nomerges" && echo "$before" >"$queue"
    fi
    rm -rf "$directory"
    ;;
esac
