#!/bin/bash
# The Containerfile's image, built by podman from the committed checkout and asked, as root:
# tests/container_on_debian.sh
#
# No registry is needed: the image that FROM names is made from this machine's own Debian mirror. The commands are
# those of docs/install.md; the guest is emulated. Everything is in a temporary directory that is removed at the end.
set -euo pipefail
top="$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)"
source "$top/tests/chroot.sh"
place="$(mktemp -d)"
export CONTAINERS_CONF="$place/containers.conf" CONTAINERS_STORAGE_CONF="$place/storage.conf"
version="$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$top/src/vdisklab/__init__.py")"
base="$(sed -n 's/^FROM //p' "$top/Containerfile")"

say() { printf '%s\n' "container_on_debian: $*"; }
fail() { say "FAILED: $*" >&2 && exit 1; }
remove() {
    podman rm --all --force >/dev/null 2>&1 || true
    podman rmi --all --force >/dev/null 2>&1 || true
    umount "$place/store/overlay" 2>/dev/null || true # containers/storage leaves it bound to itself
    rm -rf --one-file-system "$place"
}
trap remove EXIT

# podman's own limits are more than a machine in a sandbox may set; crun takes no mixture of both kinds of cgroups.
cat >"$CONTAINERS_CONF" <<'TOML'
[containers]
default_ulimits = ["nofile=1024:4096", "nproc=4096:4096"]
netns = "host"
[engine]
runtime = "runc"
TOML
cat >"$CONTAINERS_STORAGE_CONF" <<TOML
[storage]
driver = "overlay"
graphroot = "$place/store"
runroot = "$place/run"
TOML

begin=$SECONDS
suite="${base#debian:}"
make_system "${suite%-slim}" "$place/base"
# What a slim image has besides: no manual pages, and nothing is started.
printf 'path-exclude /usr/share/%s/*\n' doc man locale >"$place/base/etc/dpkg/dpkg.cfg.d/docker"
printf '#!/bin/sh\nexit 101\n' >"$place/base/usr/sbin/policy-rc.d"
chmod +x "$place/base/usr/sbin/policy-rc.d"
tar --create --directory "$place/base" . | podman import --quiet - "docker.io/library/$base" >/dev/null
rm -rf --one-file-system "$place/base"
say "a stand-in for $base: $((SECONDS - begin)) s"

begin=$SECONDS
mkdir "$place/checkout"
git -C "$top" archive HEAD | tar --extract --directory "$place/checkout"
for ignored in .git/ $(sed 's/\*/x/' "$top/.gitignore"); do # what a used checkout holds besides
    mkdir -p "$place/checkout/$ignored"
    touch "$place/checkout/${ignored%/}/ignored-by-git"
done
(cd "$place/checkout" && podman build --pull=never -t vdisklab .) || fail "podman build"
say "podman build: $((SECONDS - begin)) s, $(podman images --format '{{.Size}}' vdisklab), $(podman --version)"
taken="$(podman run --rm --entrypoint find vdisklab /opt/vdisklab -name ignored-by-git)"
[[ -z "$taken" ]] || fail "the image took $taken"

[[ "$(podman run --rm vdisklab --version)" == *"vdisklab $version"*QEMU*fio* ]] || fail "--version"
podman run --rm vdisklab >"$place/doctor" || { cat "$place/doctor" && fail "doctor"; }
grep -q "A guest's disk can be measured here" "$place/doctor" || { cat "$place/doctor" && fail "doctor"; }
# Not into grep -q, which closes the pipe while podman still writes.
podman run --rm vdisklab doctor --format json >"$place/doctor.json" || fail "doctor --format json"
grep -q '"main_job": true' "$place/doctor.json" || fail "doctor --format json"
say "doctor is content"

begin=$SECONDS
mkdir "$place/work" "$place/state" # as a fleet has its state on the node
# The seccomp filter of Debian 12's podman hides libaio from the host's fio (docs/install.md).
podman run --rm --network none --security-opt seccomp=unconfined -v "$place/work:/work" \
    -v "$place/state:/var/lib/vdisklab" vdisklab run raw/none{,/sata} \
    --db /work/results.sqlite --accelerator tcg --rounds 1 --size 32M --runtime 1 --ramp 0 || fail "a guest's run"
podman run --rm -v "$place/work:/work" vdisklab table --db /work/results.sqlite >"$place/table" || fail "table"
grep -q "raw/none/sata" "$place/table" || fail "table"
[[ "$(ls "$place/work")" == results.sqlite ]] || fail "left in /work: $(ls "$place/work")"
say "a guest was measured in the container, without a network: $((SECONDS - begin)) s"
