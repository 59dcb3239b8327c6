"""A server in a file beside the guests, and a guest that names it by address or host name."""

from __future__ import annotations

import pytest

from vdisklab.platforms.configured_disk import ConfiguredDisk, in_doubt
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.reading import DisklessGuest, GuestText
from vdisklab.platforms.registry import read_guests
from vdisklab.platforms.risk_kinds import ServerMayLose

UNSAFE = "qemu-nbd --fork -t --cache=unsafe -f raw"
SCRIPT = f"""#!/bin/sh
{UNSAFE} -x data -p 10810 /srv/data.img
{UNSAFE} \\
   -x wal -p 10811 /srv/wal.img
qemu-nbd --fork -t --cache=none -f raw -x safe -p 10812 /srv/safe.img
nbdkit -p 10813 --filter=fua file /srv/e.img fuamode=discard
nbdkit -i 10.0.0.7 -p 10814 memory 1G
{UNSAFE} -b 127.0.0.1 -x local -p 10815 /srv/local.img
tgtadm --lld iscsi --op new --mode target --tid 1 -T iqn.a:pg
tgtadm --lld iscsi --op new --mode logicalunit --tid 1 --lun 1 -b /dev/shm/a.img
"""
UNIT = f"""[Unit]
Description=exports
[Service]
Type=forking
ExecStart=/usr/bin/{UNSAFE} \\
  -x data -p 10810 /srv/data.img
"""


def read(place: str, server: str = SCRIPT, name: str = "serve.sh") -> ConfiguredDisk:
    command = f"qemu-system-x86_64 -name g -drive file={place},format=raw,if=virtio,cache=none\n"
    (disk,) = read_guests([GuestText(command, "g.sh"), GuestText(server, name)])
    return disk


@pytest.mark.parametrize(
    ("place", "host", "line"),
    [
        ("nbd://10.0.0.5:10810/data", "10.0.0.5", 2),
        ("nbd://nas.lab:10811/wal", "nas.lab", 3),
        ("nbd:nas:10811:exportname=wal", "nas", 3),
        ("nbd://[2001:db8::5]:10813/any", "2001:db8::5", 6),
        ("nbd://nas:10814", "nas", 7),
        ("iscsi://10.0.0.5/iqn.a:pg/1", "10.0.0.5", 10),
    ],
)
def test_a_server_that_may_be_the_disks_puts_it_in_doubt(place: str, host: str, line: int) -> None:
    disk = read(place)
    assert disk.lost_below is None
    assert in_doubt(disk).startswith(f"if {host} is the machine of serve.sh, ")
    (risk,) = (each for each in risks(disk) if isinstance(each, ServerMayLose))
    if line != 10:  # two lines of tgtadm
        assert f"line {line} of serve.sh serves this disk, and flushed data is lost" in str(risk)
    assert "Change its server in " in str(risk)


@pytest.mark.parametrize(
    "place",
    [
        "nbd://nas:10812/safe",
        "nbd://nas:10810/other",
        "nbd://nas:10811/data",
        "nbd://10.0.0.8:10814",
        "nbd://nas:10815/local",
        "nbd+unix:///data?socket=/run/s",
        "iscsi://nas/iqn.a:pg/2",
    ],
)
def test_another_port_export_or_address_is_another_server(place: str) -> None:
    disk = read(place)
    assert not in_doubt(disk)
    assert disk.lost_below is None


@pytest.mark.parametrize(
    "place", ["nbd://localhost:10810/data", "nbd://127.0.0.1:10810/data", "nbd://10.0.0.7:10814"]
)
def test_this_machine_and_the_address_that_it_is_bound_to_are_the_server(place: str) -> None:
    disk = read(place)
    assert disk.lost_below is not None
    assert disk.lost_if is None


@pytest.mark.parametrize("name", ["nbd@.service", "serve.sh"])
def test_the_line_of_a_unit_is_the_one_in_its_file(name: str) -> None:
    text = UNIT if name.endswith("service") else f"#!/bin/sh\n\n\n\n{UNSAFE} -x data -p 10810 /a\n"
    far = read("nbd://nas:10810/data", text, name)
    assert f"line 5 of {name} serves this disk" in in_doubt(far)
    near = read("nbd://localhost:10810/data", text, name)
    assert near.below_instead.startswith(f"Change its server in line 5 of {name}: ")


def test_a_unit_of_a_server_alone_is_said_and_not_refused() -> None:
    found: list[DisklessGuest] = []
    assert not read_guests([GuestText(UNIT, "nbd.service")], diskless=found)
    assert found[0].why.startswith("a systemd unit that starts 1 server of disks and no guest")
    assert "cache mode unsafe drops flushes" in found[0].why


def test_a_disk_of_the_kernels_client_is_in_doubt_too() -> None:
    disk = read("/dev/nbd2", f"{SCRIPT}nbd-client nas 10810 /dev/nbd2 -N data\n")
    assert in_doubt(disk).startswith("if nas is the machine of serve.sh")


TEMPLATE = """[Service]
ExecStart=/usr/bin/qemu-nbd --persistent --export-name=%i --cache=unsafe /srv/nbd/%i.img
"""


@pytest.mark.parametrize(
    ("name", "is_it"),
    [
        ("qemu-nbd@web.service", True),
        ("etc/systemd/system/nbd@web.service", True),
        ("qemu-nbd@mail.service", False),
        ("qemu-nbd@.service", True),  # any instance
    ],
)
def test_an_instance_of_a_unit_serves_the_disk_of_its_name(name: str, is_it: bool) -> None:
    disk = read("nbd://nas:10809/web", TEMPLATE, name)
    assert bool(in_doubt(disk)) is is_it
    assert not is_it or f"line 2 of {name} serves this disk" in in_doubt(disk)
