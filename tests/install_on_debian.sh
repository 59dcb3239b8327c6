#!/bin/bash
# script/install in a fresh Debian, as root:
# tests/install_on_debian.sh [SUITE] (trixie)
#
# Makes a chroot with mmdebstrap from this machine's own Debian mirror, copies the committed checkout
# into it, installs, and lets each installed program answer. Prints times and sizes. Everything is
# in a temporary directory that is removed at the end.
set -euo pipefail
suite="${1:-trixie}"
top="$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)"
source "$top/tests/chroot.sh"
place="$(mktemp -d)"
root="$place/root"
trap 'rm -rf --one-file-system "$place"' EXIT

say() { printf '%s\n' "install_on_debian: $suite: $*"; }

begin=$SECONDS
make_system "$suite" "$root"
say "a fresh system: $((SECONDS - begin)) s, $(du -sm "$root" | cut -f 1) MB"
mkdir -p "$root/srv/vdisklab"
git -C "$top" archive HEAD | tar -x -C "$root/srv/vdisklab"

begin=$SECONDS
inside "$root" /srv/vdisklab/script/install
say "script/install: $((SECONDS - begin)) s"
inside "$root" /srv/vdisklab/script/install
say "with programs and environment: $(du -sxm "$root" | cut -f 1) MB, of which .venv \
$(du -sm "$root/srv/vdisklab/.venv" | cut -f 1) MB"
inside "$root" /srv/vdisklab/.venv/bin/python --version
inside "$root" qemu-system-x86_64 --version | head -n 1
inside "$root" sh -c 'cd /tmp && /srv/vdisklab/.venv/bin/vdisklab import \
    /srv/vdisklab/docs/images/campaign.json.gz --db a.sqlite && \
    /srv/vdisklab/.venv/bin/vdisklab report --db a.sqlite && test -s report.html'

inside "$root" sh -c 'mkdir /tmp/work && cd /tmp/work && /srv/vdisklab/.venv/bin/vdisklab run --here \
    --dir /tmp/work --rounds 1 --runtime 1 --size 16M --db ../b.sqlite'
say "the report is written, and a measurement without a guest was made"
