#!/bin/bash
# script/install, the Containerfile, pip and pipx in a fresh Debian, as root:
# tests/install_on_debian.sh [SUITE] (trixie)
#
# Makes a chroot with mmdebstrap from this machine's own Debian mirror, copies the committed checkout
# into it, installs, and lets each installed program answer. Prints times and sizes. Everything is
# in a temporary directory that is removed at the end.
set -euo pipefail
suite="${1:-trixie}"
top="$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)"
mirror="$(apt-get indextargets --format '$(REPO_URI)' 'Component: main' | grep -v security | head -n 1)"
place="$(mktemp -d)"
root="$place/root"
trap 'rm -rf --one-file-system "$place"' EXIT

say() { printf '%s\n' "install_on_debian: $suite: $*"; }

begin=$SECONDS
mmdebstrap --quiet --variant=minbase "$suite" "$root" "deb $mirror $suite main"
say "a fresh system: $((SECONDS - begin)) s, $(du -sm "$root" | cut -f 1) MB"
mkdir -p "$root/srv/vdisklab"
git -C "$top" archive HEAD | tar -x -C "$root/srv/vdisklab"
cp /etc/resolv.conf "$root/etc/resolv.conf"
# What a machine behind a proxy has: the settings of apt and pip, and certificates of its own.
for file in /etc/pip.conf /etc/apt/apt.conf.d/*proxy* /usr/local/share/ca-certificates/*.crt; do
    [[ ! -e "$file" ]] || install -D -m 644 "$file" "$root$file"
done

inside() {
    # shellcheck disable=SC2016
    env --unset=PIP_FIND_LINKS TMPDIR=/tmp \
        unshare --mount --pid --fork --kill-child sh -c '
            mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"
        ' "$root" "$@"
}

begin=$SECONDS
inside /srv/vdisklab/script/install
say "script/install: $((SECONDS - begin)) s"
inside /srv/vdisklab/script/install
say "with programs and environment: $(du -sxm "$root" | cut -f 1) MB, of which .venv \
$(du -sm "$root/srv/vdisklab/.venv" | cut -f 1) MB"
inside /srv/vdisklab/.venv/bin/python --version
inside qemu-system-x86_64 --version | head -n 1
inside sh -c 'cd /tmp && /srv/vdisklab/.venv/bin/vdisklab import \
    /srv/vdisklab/docs/images/campaign.json.gz --db a.sqlite && \
    /srv/vdisklab/.venv/bin/vdisklab report --db a.sqlite && test -s report.html'

# What `podman build` would run: the Containerfile's RUN, on its place in the image.
begin=$SECONDS
cp -a "$root/srv/vdisklab" "$root/opt/vdisklab"
rm -rf "$root/opt/vdisklab/.venv"
inside sh -ec "$(sed -n '/^RUN /,/[^\\]$/p' "$top/Containerfile" | sed '1s/^RUN //')"
inside vdisklab --version
say "the Containerfile's commands: $((SECONDS - begin)) s"

# pip and pipx take the wheel, with nothing compiled.
inside sh -ec 'apt-get --quiet --quiet update
    DEBIAN_FRONTEND=noninteractive apt-get --quiet --quiet --yes install --no-install-recommends pipx man-db
    /srv/vdisklab/script/build /tmp/wheel
    python3 -m venv /tmp/pip
    /tmp/pip/bin/pip install --quiet --only-binary :all: /tmp/wheel/*.whl
    PIPX_HOME=/tmp/pipx PIPX_BIN_DIR=/tmp/bin pipx install --quiet /tmp/wheel/*.whl' >/dev/null
for program in /tmp/pip/bin/vdisklab /tmp/bin/vdisklab; do
    inside "$program" --version
    inside sh -ec "cd /tmp && $program report --db a.sqlite && test -s report.html"
done
inside man -l /tmp/pip/share/man/man1/vdisklab.1 | grep -q 'vdisklab recommend'
say "pip and pipx: $(du -sm "$root/tmp/pip" | cut -f 1) MB in the environment of the wheel"

inside sh -c 'mkdir /tmp/work && cd /tmp/work && /srv/vdisklab/.venv/bin/vdisklab run --here \
    --dir /tmp/work --rounds 1 --runtime 1 --size 16M --db ../b.sqlite'
say "the report is written, and a measurement without a guest was made"
