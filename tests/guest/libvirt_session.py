"""Run inside `unshare --mount --pid --fork --kill-child --mount-proc`: a libvirtd of our own.

Reads the domains' XML files that are named as arguments; for each it prints one line of JSON with
what QEMU says of its disk. After `--audit` they are only defined, the last one is started, and
what `vdisklab audit --libvirt qemu:///system` prints is printed. After `--attach` each further file
is a disk, attached to the running guest of the first file. Sockets, configuration and state
lie on file systems in memory that only this mount namespace sees, and every process ends with the
PID namespace. What libvirt learns of each QEMU it keeps in the directory that LIBVIRT_CACHE names,
if there is one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

_CACHE = "/var/cache/libvirt"
_PRIVATE = ("/run", "/etc/libvirt", "/var/lib/libvirt", "/var/log", _CACHE)
_QEMU_CONF = 'security_driver = "none"\nuser = "root"\ngroup = "root"\nnamespaces = []\n'
_USERS = {
    "/etc/passwd": "libvirt-qemu:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin",
    "/etc/group": "libvirt-qemu:x:64055:",
}
_START_SECONDS = 40.0
_AT_ONCE = 4


def run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def name_its_user(file: str, line: str) -> None:
    """libvirtd looks its default user up before it reads whom it is told to take.

    The package libvirt-daemon-system makes him, which would also start libvirtd on the host.
    """
    text = Path(file).read_text()
    if not any(each.startswith("libvirt-qemu:") for each in text.splitlines()):
        ours = Path("/run") / Path(file).name
        ours.write_text(text.rstrip("\n") + f"\n{line}\n")
        run("mount", "--bind", str(ours), file)


def start_daemons() -> None:
    for place in _PRIVATE:
        Path(place).mkdir(
            parents=True, exist_ok=True
        )  # the packages make some at their first start
        run("mount", "-t", "tmpfs", "tmpfs", place)
    if cache := os.environ.get("LIBVIRT_CACHE"):
        run("mount", "--bind", cache, _CACHE)
    Path("/etc/libvirt/qemu.conf").write_text(_QEMU_CONF)
    for file, line in _USERS.items():
        name_its_user(file, line)
    Path("/var/log/libvirt").mkdir()
    run("virtlogd", "-d")
    run("libvirtd", "-d")
    deadline = time.monotonic() + _START_SECONDS
    while subprocess.run(("virsh", "-q", "uri"), capture_output=True, check=False).returncode:
        if time.monotonic() > deadline:
            sys.exit("libvirtd does not answer")
        time.sleep(0.1)


def query(domain: str, command: str, **arguments: str) -> Any:  # noqa: ANN401
    request = json.dumps({"execute": command, "arguments": arguments})
    return json.loads(run("virsh", "qemu-monitor-command", domain, request))["return"]


def name_in(file: str) -> str:
    """The name of the domain that the file defines."""
    name = ElementTree.parse(file).findtext("name")  # noqa: S314 - the test wrote it
    assert name
    return name


def look(file: str, disk: str | None = None) -> dict[str, Any]:
    run("virsh", "define", file)
    domain = name_in(file)
    try:
        # Paused: its devices exist, and its firmware does not burn our CPU.
        run("virsh", "start", domain, "--paused")
        if disk is not None:
            run("virsh", "attach-device", domain, disk, "--live", "--config")
        seen = {
            "nodes": query(domain, "query-named-block-nodes"),
            "blocks": query(domain, "query-block"),
            "iothreads": query(domain, "query-iothreads"),
            "xml": run("virsh", "dumpxml", domain),
        }
        run("virsh", "destroy", domain)
    finally:
        run("virsh", "undefine", "--nvram", domain)
    return seen


def audit(files: Sequence[str]) -> str:
    """The audit of all guests that this libvirt knows, as the verb prints it."""
    for file in files:
        run("virsh", "define", file)
    domains = run("virsh", "list", "--all", "--name").split()
    run("virsh", "start", domains[-1], "--paused")
    try:
        kvm = query(domains[-1], "query-kvm")
        print(f"QEMU's query-kvm: {json.dumps(kvm)}", file=sys.stderr)
        if "type='kvm'" in run("virsh", "dumpxml", domains[-1]) and not kvm["enabled"]:
            sys.exit("a domain of type kvm runs without KVM")
        arguments = ("audit", "--libvirt", "qemu:///system", "--format", "json")
        return run(sys.executable, "-m", "vdisklab", *arguments)
    finally:
        run("virsh", "destroy", domains[-1])
        for domain in domains:
            run("virsh", "undefine", "--nvram", domain)


def become_reaper() -> None:
    """Process 1 takes in orphans: libvirt waits until QEMUs that it killed are gone altogether."""
    work = os.fork()
    while work:
        ended, status = os.wait()
        if ended == work:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    become_reaper()
    start_daemons()
    if sys.argv[1:2] == ["--audit"]:
        print(audit(sys.argv[2:]))
        sys.exit()
    if sys.argv[1:2] == ["--attach"]:
        for name in sys.argv[3:]:
            print(json.dumps(look(sys.argv[2], name)), flush=True)
        sys.exit()
    # Several at once: libvirt waits longer for each QEMU to begin and to end than both work.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for seen in pool.map(look, sys.argv[1:]):
            print(json.dumps(seen), flush=True)
