#!/bin/sh
# @what@
#
#   sh SCRIPT [DIRECTORY]    the run's directory was @directory@
#
# Needs QEMU, qemu-img and python3. Everything that it makes is in DIRECTORY/repeat-…, and is removed at the end.
set -eu
work=$(mktemp -d "${1:-.}/repeat-XXXXXX")
work=$(cd "$work" && pwd)
qemu=
trap '[ -z "$qemu" ] || kill "$qemu" 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
for file in @files@; do
    test -e "$file" || { echo "$file is gone: measure once with vdisklab, which makes it again" >&2; exit 1; }
done

# The image; random bytes, because zeros and holes are faster than data.
head -c @size@ /dev/urandom >"$work/random"
@image@
rm "$work/random"

# The guest. Its monitor, agent and port for steps are sockets here; vdisklab passes open descriptors.
@qemu@ &
qemu=$!

# Plugs the disk in, runs each program in the guest, and prints its numbers.
python3 - "$work" <<'PYTHON'
import base64, json, os, shlex, socket, sys, time

work = sys.argv[1]
plug = @plug@
programs = @programs@
image, page_cache, ready, find = @rest@


def connect(name):
    channel = socket.socket(socket.AF_UNIX)
    for _ in range(100):
        try:
            channel.connect(f"{work}/{name}")
            return channel
        except OSError:
            time.sleep(0.1)
    sys.exit(f"QEMU has no socket {name}")


def answer(channel, request, seconds=600):
    channel.settimeout(seconds)
    channel.sendall(json.dumps(request).encode() + b"\n")
    while True:
        text = b""
        while not text.endswith(b"\n"):
            text += channel.recv(65536)
        for line in text.splitlines():
            said = json.loads(line.lstrip(b"\xff"))
            if "error" in said:
                sys.exit(said["error"]["desc"])
            if "return" in said:
                return said["return"]


def in_guest(words):
    request = {"path": words[0], "arg": words[1:], "capture-output": True}
    pid = answer(agent, {"execute": "guest-exec", "arguments": request})["pid"]
    while True:
        state = answer(agent, {"execute": "guest-exec-status", "arguments": {"pid": pid}})
        if state["exited"]:
            break
        time.sleep(0.5)
    printed = base64.b64decode(state.get("out-data", "")).decode(errors="replace")
    if state.get("exitcode"):
        sys.exit(f"{shlex.join(words)}: {base64.b64decode(state.get('err-data', '')).decode()}")
    return printed


def set_page_cache():
    descriptor = os.open(f"{work}/{image}", os.O_RDONLY)
    os.fsync(descriptor)
    if page_cache == "warm":
        while os.read(descriptor, 1 << 20):
            pass
    else:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


agent = connect("agent")
for attempt in range(300):  # until the guest has booted
    try:
        answer(agent, {"execute": "guest-sync", "arguments": {"id": attempt}}, seconds=2)
        break
    except TimeoutError:
        pass
else:
    sys.exit("the guest does not answer")
time.sleep(2)
agent.setblocking(False)
try:
    agent.recv(1 << 20)  # answers to earlier attempts
except BlockingIOError:
    pass
in_guest(ready)
monitor = connect("monitor")
answer(monitor, {"execute": "qmp_capabilities"})
for command in plug:
    answer(monitor, json.loads(json.dumps(command).replace("@WORK@", work)))
in_guest(find)
for program in programs:
    set_page_cache()
    printed = in_guest(program)
    try:
        job = json.loads(printed[printed.index("{"):])["jobs"][0]
    except (ValueError, KeyError):
        print(shlex.join(program), printed, sep="\n")
        continue
    for way in ("read", "write", "trim"):
        if job[way]["total_ios"]:
            print(f"{job['jobname']}: {way} {job[way]['bw_bytes'] / 1e6:.1f} MB/s, {job[way]['iops']:.0f} IOPS")
answer(monitor, {"execute": "quit"})
PYTHON
qemu=
