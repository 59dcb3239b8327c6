#!/bin/bash
# The .deb, the wheel, the source archive and pipx in a fresh Debian, as root:
# tests/packages_on_debian.sh [SUITE] [DIRECTORY] (trixie)
#
# Makes a chroot of SUITE from this machine's own Debian mirror, builds everything there from the committed
# checkout (script/build, script/build-deb), and asks lintian. A second, empty chroot installs each, lets it
# answer, removes it and looks for what is left. DIRECTORY, if named, keeps the built files. Everything else is
# in a temporary directory that is removed at the end.
set -euo pipefail
suite="${1:-trixie}"
keep="${2:-}"
top="$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)"
source "$top/tests/chroot.sh"
place="$(mktemp -d)"
trap 'rm -rf --one-file-system "$place"' EXIT
builder="$place/builder" clean="$place/clean" version="$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$top/src/vdisklab/__init__.py")"

say() { printf '%s\n' "packages_on_debian: $suite: $*"; }
fail() { say "FAILED: $*" >&2 && exit 1; }
# answers ROOT PROGRAM: it starts, has its data files, and reports a recorded campaign.
answers() {
    [[ "$(inside "$1" "$2" --version)" == *"$version"* ]] || fail "$2 is not version $version"
    inside "$1" sh -ec 'cd "$(mktemp -d)"
        "$0" method --schema rank >/dev/null
        "$0" import /srv/campaign.json.gz --db a.sqlite >/dev/null
        "$0" rank --db a.sqlite >rank && grep -q ext4/qcow2/writeback rank
        "$0" report --db a.sqlite >/dev/null && test -s report.html' "$2" || fail "$2 does not answer"
    inside "$1" "$2" doctor --format json >"$place/doctor.json" || [[ $? -le 8 ]] || fail "$2 doctor"
    grep -q '"vdisklab.doctor/' "$place/doctor.json" || fail "$2 doctor prints no document"
}

begin=$SECONDS
make_system "$suite" "$builder" build-essential,debhelper,lintian,python3-venv,ca-certificates
mkdir -p "$builder/srv/vdisklab"
git -C "$top" archive HEAD | tar -x -C "$builder/srv/vdisklab"
inside "$builder" python3 --version
# As somebody who is not root would build it.
inside "$builder" sh -ec 'useradd --create-home builder && chown -R builder: /srv/vdisklab
    cd /srv/vdisklab && exec su builder --preserve-environment --command "export HOME=/home/builder; script/build-deb && python3 -m venv .venv &&
        .venv/bin/python -m pip --quiet install --require-hashes --only-binary :all: --find-links wheels --requirement requirements.lock &&
        script/build"'
built="$builder/srv/vdisklab/dist"
say "built in $((SECONDS - begin)) s: $(cd "$built" && du -m -- * | tr '\t\n' ' ,')"
inside "$builder" su builder -c "lintian --fail-on error,warning --tag-display-limit 0 /srv/vdisklab/dist/vdisklab_${version}_amd64.deb" ||
    fail "lintian"
say "lintian is content"
[[ -z "$keep" ]] || cp "$built"/* "$keep/"

make_system "$suite" "$clean"
mkdir -p "$clean/srv/dist"
cp "$built"/* "$clean/srv/dist/"
cp "$top/docs/images/campaign.json.gz" "$clean/srv/"
inside "$clean" sh -ec 'apt-get --quiet --quiet update'

# Before Python is there: what pip and pipx need, and where each of them puts its files.
inside "$clean" sh -ec 'apt-get --quiet --quiet --yes install --no-install-recommends pipx python3-venv ca-certificates >/dev/null
    python3 -m venv /opt/wheel && /opt/wheel/bin/pip install --quiet --only-binary :all: /srv/dist/*.whl
    python3 -m venv /opt/source && /opt/source/bin/pip install --quiet /srv/dist/*.tar.gz
    PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/opt/bin pipx install /srv/dist/*.whl >/dev/null 2>&1'
for program in /opt/wheel/bin/vdisklab /opt/source/bin/vdisklab /opt/bin/vdisklab; do
    answers "$clean" "$program"
done
for made in wheel source; do
    [[ -s "$clean/opt/$made/share/man/man1/vdisklab.1" ]] || fail "the $made has no manual page"
done
inside "$clean" sh -ec '/opt/wheel/bin/pip uninstall --quiet --yes vdisklab
    PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/opt/bin pipx uninstall vdisklab >/dev/null 2>&1
    ! find /opt/wheel /opt/bin /opt/pipx/venvs -ipath "*vdisklab*" -not -name "__pycache__" | grep .' ||
    fail "pip or pipx left files"
say "pip (wheel, source archive) and pipx: installed, answered, removed"

# What a machine is refused: pip says which Python is needed.
cat >"$clean/srv/older.py" <<'PYTHON'
import sys
from pip._internal.cli.main import main
sys.exit(main(["download", "--no-deps", "--python-version", "3.10", "--only-binary", ":all:", "--dest", "/tmp", *sys.argv[1:]]))
PYTHON
inside "$clean" sh -c '/opt/source/bin/python /srv/older.py /srv/dist/*.whl' >"$place/older" 2>&1 && fail "Python 3.10 is taken"
grep -q "requires a different Python: 3.10.* not in '>=3.11'" "$place/older" || { cat "$place/older"; fail "Python 3.10 is refused without the reason"; }

before="$(inside "$clean" find / -xdev -path /proc -prune -o -path '*vdisklab*' -print | sort)"
begin=$SECONDS
inside "$clean" sh -ec 'apt-get --quiet --quiet --yes install --no-install-recommends /srv/dist/*.deb man-db bash-completion systemd >/dev/null 2>&1' ||
    fail "apt-get does not install the package"
say "the package with QEMU and fio: $((SECONDS - begin)) s"
answers "$clean" /usr/bin/vdisklab
inside "$clean" qemu-system-x86_64 --version | head -n 1
inside "$clean" sh -ec 'man -l /usr/share/man/man1/vdisklab.1.gz | grep -q "vdisklab recommend"' || fail "the manual page lacks a verb"
inside "$clean" bash -ec '. /usr/share/bash-completion/completions/vdisklab
    COMP_WORDS=(vdisklab rec) COMP_CWORD=1
    _vdisklab_completion vdisklab rec vdisklab && [[ " ${COMPREPLY[*]} " == *" recommend "* ]]' || fail "bash does not complete"
for unit in vdisklab-again@x.timer vdisklab-again@x.service vdisklab-watch.service vdisklab-fleet-scheduler.service vdisklab-fleet-worker.service; do
    inside "$clean" systemd-analyze verify "$unit" >"$place/unit" 2>&1 || { cat "$place/unit" && fail "$unit"; }
done
inside "$clean" su -s /bin/sh -c 'mkdir /tmp/nobody && cd /tmp/nobody &&
    VDISKLAB_STATE=/tmp/nobody/state vdisklab run --here --dir /tmp/nobody --rounds 1 --runtime 1 --size 16M >log 2>&1 || { cat log; exit 1; }' nobody ||
    fail "nobody cannot measure"
inside "$clean" sh -ec 'dpkg --verify vdisklab && apt-get --quiet --quiet --yes purge vdisklab >/dev/null' || fail "it is not removed"
after="$(inside "$clean" find / -xdev -path /proc -prune -o -path '*vdisklab*' -print | sort)"
left="$(comm -13 <(printf '%s\n' "$before") <(printf '%s\n' "$after"))"
# What vdisklab has measured and made stays: it is the user's.
left="$(grep -v -e ^/root/ -e ^/var/lib/vdisklab -e ^/var/cache/apt -e ^/var/cache/man -e '^/tmp/' -e '^/run/' -e ^/var/log <<<"$left" || true)"
[[ -z "$left" ]] || fail "left behind: $left"
say "the package was installed, answered, and was removed"
