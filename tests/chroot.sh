# A fresh Debian in a directory, for tests that install: sourced by tests/*_on_debian.sh.
# shellcheck shell=bash

# The Debian mirror that this machine itself uses.
mirror_here() { apt-get indextargets --format '$(REPO_URI)' 'Component: main' | grep -v security | head -n 1; }

# make_system SUITE ROOT [PACKAGES]: with this machine's settings of apt and pip, and its certificates.
make_system() {
    local mirror file
    mirror="$(mirror_here)"
    mmdebstrap --quiet --variant=minbase ${3:+--include="$3"} "$1" "$2" "deb $mirror $1 main"
    cp /etc/resolv.conf "$2/etc/resolv.conf"
    for file in /etc/pip.conf /etc/apt/apt.conf.d/*proxy* /usr/local/share/ca-certificates/*.crt /etc/ssl/certs/ca-certificates.crt; do
        [[ ! -e "$file" ]] || install -D -m 644 "$file" "$2$file"
    done
}

# inside ROOT PROGRAM...: in namespaces of its own, so nothing that it starts or mounts is left.
inside() {
    # shellcheck disable=SC2016
    env --unset=PIP_FIND_LINKS --unset=PYTHONPATH --unset=VDISKLAB_DB --unset=VDISKLAB_STATE \
        TMPDIR=/tmp HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        unshare --mount --pid --fork --kill-child sh -c '
            mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"
        ' "$@"
}
