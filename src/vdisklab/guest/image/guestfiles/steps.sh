#!/usr/bin/busybox sh
# steps COUNT PROGRAM ARGUMENT...: runs a program of COUNT parts, each of which waits for the host.
# Part N writes `ready N` to descriptor 3, waits for a line from the pipe /run/vdisklab/steps/N, works, and
# writes `done N`. Descriptor 3 is the virtio port vdisklab.steps. The host writes N to it to start
# part N, and `end` after the last one. When the program has ended, `ended` goes to the host.
directory=/run/vdisklab/steps
count=$1
shift

for port in /sys/class/virtio-ports/*; do
    read -r name <"$port/name"
    [ "$name" = vdisklab.steps ] && break
done
[ "$name" = vdisklab.steps ] || {
    echo "the port vdisklab.steps is missing" >&2
    exit 1
}
exec 3<>"/dev/${port##*/}"

# Starting a program costs tens of milliseconds under emulation, so the pipes stay for the next one.
pipes=
number=$count
while [ "$number" -gt 0 ]; do
    [ -p "$directory/$number" ] || pipes="$pipes $directory/$number"
    number=$((number - 1))
done
if [ -n "$pipes" ]; then
    /usr/bin/busybox mkdir -p "$directory"
    # shellcheck disable=SC2086  # one word per pipe
    /usr/bin/busybox mkfifo $pipes || exit 1
fi

(
    "$@"
    status=$?
    echo ended >&3
    exit $status
) &
while read -r step <&3 && [ "$step" != end ]; do
    echo >"$directory/$step"
done
wait $!
