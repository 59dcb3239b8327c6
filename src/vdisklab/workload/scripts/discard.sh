# The steps around a deleted file: sh -s -- VERB DIRECTORY …, on the guest's file system there.
#
#   fill DIRECTORY MIB       trims what is free already, and writes a file
#   delete DIRECTORY [trim]  deletes it, with `trim` followed by fstrim. Prints what was used before
#                            and after in KiB, and what fstrim said

verb=$1 directory=$2
shift 2
export LC_ALL=C

used() {
    df -kP "$directory" | awk 'NR == 2 { print $3 }'
}

# The guest's discards reach the image, and the host's file system passes them on with its next
# commit, after 5 seconds at most.
settle() {
    sync
    sleep 6
}

case $verb in
fill)
    fstrim "$directory" 2>/dev/null
    # Random bytes: zeros might be written as a hole.
    dd if=/dev/urandom of="$directory/deleted" bs=1M count="$1" 2>/dev/null || exit 1
    settle
    ;;
delete)
    before=$(used)
    rm "$directory/deleted" || exit 1
    sync
    [ "$1" != trim ] || fstrim -v "$directory" 2>&1
    settle
    echo "used $before $(used)"
    ;;
esac
