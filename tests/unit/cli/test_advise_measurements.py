"""What `vdisklab advise` has measured next, with what profile, and what it continues."""

from __future__ import annotations

import platform
import re
import shlex
from datetime import timedelta
from pathlib import Path

import pytest

from tests.unit.analysis.made import CAMPAIGN
from tests.unit.cli.advise_guests import SERVERS, SPEEDS, advised, guest, with_image
from tests.unit.cli.test_advice import runs
from tests.unit.loads.loads import load
from tests.unit.stored import Database
from vdisklab.actions.measure import Measured
from vdisklab.cli import advise
from vdisklab.cli.shell.main import main
from vdisklab.errors import EXIT_INTERRUPTED
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import machine_facts
from vdisklab.loads.load import IoKind
from vdisklab.loads.load_file import encode
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.plan.settings import DEFAULT_PROFILE
from vdisklab.units import format_duration
from vdisklab.value import replace


def test_no_page_cache_is_measured_for_a_disk_that_guests_share(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(guest(tmp_path, "raw/none/sata"))
    file.write_text(file.read_text().replace("</disk>", "<shareable/></disk>"))
    (planned,) = advised(capsys, str(file))["planned"]
    assert "raw/none/sata:aio=native" in planned["command"]
    assert "writeback" not in planned["command"]


def test_the_command_that_an_unknown_disk_waits_for_is_printed_at_once(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its row said `run command 2 (--why prints it)`, below stood the command of a kept disk."""
    (tmp_path / "n.xml").write_text(SERVERS)
    plan = {**CAMPAIGN.plan, "cells": list(SPEEDS), "directory": "/proc"}
    here = replace(CAMPAIGN, host=machine_facts(LocalHost()), plan=plan)
    database.write(runs(speeds=SPEEDS), campaigns=[here])
    kept = guest(tmp_path, "raw/none")
    assert advised(capsys, kept)["planned"], "to find out if it is kept on its own file system"
    assert main(["advise", kept, str(tmp_path / "n.xml")]) == 0
    out = capsys.readouterr().out
    assert re.search("web vda .*keep ", out)
    assert re.search("n vda .*unknown .* run the command below", out)
    (command,) = (line for line in out.splitlines() if line.startswith("vdisklab run "))
    assert "myrbd/" in command


def test_one_command_comes_first_and_the_others_with_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several: the first that runs on this host, with its time; each row says where its is."""
    (tmp_path / "n.xml").write_text(SERVERS)
    here = guest(tmp_path, "raw/none")
    arguments = ["advise", str(tmp_path / "n.xml"), here, "--profile", "postgresql"]
    monkeypatch.setattr("sys.argv", ["vdisklab", *arguments])
    assert main(arguments) == 0
    out = capsys.readouterr().out
    commands = [line for line in out.splitlines() if line.startswith("vdisklab run ")]
    assert len(commands) == 1
    assert f"--dir {tmp_path}" in commands[0]
    later = next(line for line in out.splitlines() if line.startswith("# then 9 more commands, of"))
    again = re.search("`vdisklab (.*)` prints them$", later)
    assert again is not None
    assert re.search("web vda .* run the command below", out)
    assert re.search(r"n vda .* run command 2 \(--why prints it\)", out)
    assert main(shlex.split(again[1])) == 0
    whole = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("vdisklab run ") for line in whole) == 10
    spare = "SPARE is the number of a LUN there that nothing uses, never the guest's"
    quick = next(line for line in whole if line.startswith("# command 3, a quick look first"))
    assert spare in quick, "before the first command that overwrites it, not the second"
    assert "run this on a host that reaches the server" in quick


def test_a_quick_look_comes_before_a_database_of_hours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its time, what it does not tell, and the command that answers from it."""
    file = guest(tmp_path, "raw/none")
    monkeypatch.setattr("sys.argv", ["vdisklab", "advise", file, "--profile", "postgresql"])
    (plan,) = advised(capsys, file, "--profile", "postgresql")["planned"]
    assert main(["advise", file, "--profile", "postgresql"]) == 0
    lines = capsys.readouterr().out.splitlines()
    quick = next(line for line in lines if line.startswith("# a quick look first (about "))
    command = lines[lines.index(quick) + 1]
    assert shlex.split(command) == [
        "postgresql-short" if word == "postgresql" else word
        for word in shlex.split(plan["command"])
    ]
    assert "as profile postgresql, but with 150 MB of data, which the guest's memory" in quick
    assert quick.endswith(f"then `vdisklab advise {file} --profile postgresql-short`:")
    minutes = re.search(r"about (\d+) min", quick)
    assert minutes is not None
    assert int(minutes[1]) * 60 < plan["command_seconds"] / 10
    test = "`vdisklab powercut ext4/raw/none --access guest --client postgresql` simulates the cut"
    assert any(test in line for line in lines), "whether its commits survive"
    later = lines[lines.index(command) + 1]
    assert later.startswith("# then one more command, of about ")
    again = f"vdisklab advise {file} --profile postgresql --why"
    assert later.endswith(f" h: `{again}` prints it") or later.endswith(
        f" min: `{again}` prints it"
    )
    assert main(again.split()[1:]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index(command) + 1].startswith("# in full: to find the best of ")
    assert lines[lines.index(command) + 2] == plan["command"]
    for word in ("quick", "mariadb"):
        assert main(["advise", file, "--profile", word]) == 0
        assert "quick look" not in capsys.readouterr().out


def test_a_database_that_this_host_lacks_is_said_above_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = LocalHost.which
    monkeypatch.setattr(
        LocalHost, "which", lambda host, name: None if "mariadb" in name else found(host, name)
    )
    files = [guest(tmp_path, path, name) for path, name in (("raw/none", "a"), ("lvm/none", "b"))]
    assert main(["advise", *files, "--profile", "mariadb"]) == 0
    out = capsys.readouterr().out
    assert out.count("# the data to measure cannot be made: mariadbd is not installed: ") == 1
    assert main(["plan", "raw/none", "--profile", "mariadb", "--dir", str(tmp_path)]) == 0
    note = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("*"))
    assert note.startswith("* `run` will refuse: the data to measure cannot be made: mariadbd is")


def test_what_was_not_measured_is_planned(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = advised(capsys, guest(tmp_path, "raw/none/sata"))
    (group,), (planned,) = document["disks"], document["planned"]
    assert (group["action"], group["measurable"]) == ("unknown", True)
    assert planned["seconds"] > 60
    assert planned["command"].startswith("vdisklab run raw/none/sata raw/writeback/sata ")
    assert f"--dir {tmp_path}" in planned["command"]
    assert "--page-cache cold --baseline raw/none/sata" in planned["command"]
    assert planned["seconds_at_least"] < 600 < planned["seconds_usually"] < planned["seconds"]


def test_images_in_memory_are_measured_from_the_page_cache(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = advised(capsys, guest(tmp_path, "raw/writeback/sata"), "--dir", "/dev/shm")  # noqa: S108
    (planned,) = document["planned"]
    assert "--page-cache warm" in planned["command"]


def test_the_default_cache_mode_is_not_measured_again_under_its_other_name(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (planned,) = advised(capsys, guest(tmp_path, "qcow2/default/sata"))["planned"]
    assert "qcow2/none/sata" in planned["command"]
    assert "qcow2/writeback/sata" not in planned["command"]


def test_each_reason_why_a_disk_cannot_be_measured(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lies.img").write_bytes(b"QFI\xfb" + bytes(4096))
    other = "aarch64" if platform.machine() != "aarch64" else "x86_64"
    arm = Path(guest(tmp_path, "raw/none", "arm"))
    arm.write_text(arm.read_text().replace('arch="x86_64"', f'arch="{other}"'))
    files = [
        guest(tmp_path, "raw/none", "lies"), str(arm), guest(tmp_path, "zvol/none", "device",
        "/dev/nonexistent"),
    ]  # fmt: skip
    document = advised(capsys, *files)
    found = {row["disk"]["domain"]: row for row in document["disks"]}
    assert {name: (row["action"], row["measurable"]) for name, row in found.items()} == {
        "lies": ("unknown", False), "arm": ("unknown", False), "device": ("unknown", False),
    }  # fmt: skip
    assert found["lies"]["reason"].startswith(
        "it is configured as raw, and its file begins like qcow2: "
    )
    machines = f"its guest is {other} and this host is {platform.machine()}: ask on a host"
    assert machines in found["arm"]["reason"]
    assert found["device"]["reason"] == "the layers of its device are not known on this host"
    (plan,) = document["planned"]  # no measurement says anything of what is wrong otherwise
    assert plan["stands_in"] == "node"
    assert " --on DEVICE" in plan["command"]


@pytest.mark.parametrize(
    ("plan", "rounds", "continued"),
    [
        ({"profile": "short", "baseline": "raw/none"}, 5, False),
        ({"profile": "short", "baseline": "raw/none"}, 18, True),
        ({"profile": "quick", "baseline": "raw/none"}, 18, True),
        ({"profile": "mine", "baseline": "raw/none"}, 18, False),
        ({"profile": "short", "baseline": "host"}, 18, False),
    ],
)
def test_a_campaign_of_fewer_rounds_is_continued(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    plan: dict[str, str], rounds: int, *, continued: bool,
) -> None:  # fmt: skip
    """One that was interrupted after three rounds, or --rounds as the answer advised."""
    cells = [f"{path} (cold)" if "default" in path else path for path in SPEEDS]
    here = replace(
        CAMPAIGN,
        host=machine_facts(LocalHost()),
        plan={**CAMPAIGN.plan, **plan, "cells": cells},
    )
    database.write(runs(speeds=SPEEDS), campaigns=[here])
    document = advised(capsys, guest(tmp_path, "raw/none"), "--rounds", str(rounds))
    assert document["disks"][0]["action"] == "keep"
    assert bool(document["planned"]) == continued


@pytest.mark.parametrize(
    ("profiles", "asked", "measured_with", "said"),
    [
        (["postgresql-short"], (), "postgresql-short", ""),
        (["postgresql-short", "short"], (), None, ""),
        (["quick", "postgresql-short"], (), "quick", ""),
        (["postgresql-short"], ("--profile", "quick"), "quick", ""),
        (["boot"], (), None, ""),
        (["mine"], (), None, "measured with 'mine', which is a file: add --profile FILE to"),
    ],
)
def test_what_is_measured_for_a_disk_is_comparable_with_what_is_stored(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    profiles: list[str], asked: tuple[str, ...], measured_with: str | None, said: str,
) -> None:  # fmt: skip
    """The path was measured alone, the newest campaign first."""
    campaigns = [
        replace(
            CAMPAIGN,
            id=f"c{number:07d}",
            started=CAMPAIGN.started - timedelta(days=number),
            host=machine_facts(LocalHost()),
            plan={**CAMPAIGN.plan, "cells": ["raw/none", "host"], "profile": profile,
                  "directory": str(tmp_path)},
        )
        for number, profile in enumerate(profiles)
    ]  # fmt: skip
    alone = [run for run in runs(speeds=SPEEDS) if run.path in ("raw/none", "host")]
    database.write((), campaigns=campaigns)
    database.add(
        replace(run, id=f"{number}{run.id}", campaign=campaign.id)
        for number, campaign in enumerate(campaigns)
        for run in alone
    )
    disk = guest(tmp_path, "raw/none")
    (planned,) = advised(capsys, disk, *asked)["planned"]
    argv = shlex.split(planned["command"])
    assert ("--profile" in argv) == (measured_with is not None)
    assert measured_with is None or argv[argv.index("--profile") + 1] == measured_with
    assert main(["advise", disk, *asked]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert said in out
    assert ("which is a file" in out) == bool(said)


@pytest.mark.parametrize(
    ("plan", "said"),
    [({"rounds": 5}, "measured in 2 of 5 rounds"), ({"race": RaceTerms().as_json()}, "too few")],
)
def test_a_measurement_of_two_rounds_is_said_with_the_command_that_continues(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    plan: dict[str, object], said: str,
) -> None:  # fmt: skip
    disk = guest(tmp_path, "raw/none/sata")
    (planned,) = advised(capsys, disk)["planned"]
    paths = shlex.split(planned["command"].partition(" --")[0])[2:]
    begun = replace(
        CAMPAIGN,
        host=machine_facts(LocalHost()),
        plan={
            **CAMPAIGN.plan, **plan, "cells": paths, "baseline": "raw/none/sata",
            "directory": str(tmp_path), "profile": DEFAULT_PROFILE,
        },
    )  # fmt: skip
    store.write(runs(2, dict.fromkeys(paths, 0.8)), campaigns=[begun])
    assert main(["advise", disk]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "not measured yet" not in out
    assert out.count(said) == 2, "in the table, above the command"
    usually = format_duration(planned["seconds_usually"])
    assert f"; to continue (usually under {usually}, at most " in out
    assert out.endswith(planned["command"])


def test_an_interrupted_measurement_is_said(
    store: Database,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(advise, "measure", lambda *_, **__: Measured(CAMPAIGN.id, interrupted=True))
    arguments = (guest(tmp_path, "raw/none/sata"), "--measure", "--dir", str(tmp_path))
    document = advised(capsys, *arguments, status=EXIT_INTERRUPTED)
    assert document["notes"][0].startswith("Interrupted: ")


def test_a_load_is_answered_only_by_its_own_replays(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "web.load"
    file.write_bytes(encode(load((0, IoKind.WRITE, 0, 4096, 90), (500, IoKind.FLUSH, 0, 0, 900))))
    of_profile = advised(capsys, guest(tmp_path, "raw/default"))
    assert of_profile["disks"][0]["campaign"] is not None
    of_load = advised(capsys, guest(tmp_path, "raw/default"), "--profile", str(file))
    (row,) = of_load["disks"]
    assert row["campaign"] is None
    (planned,) = of_load["planned"]
    assert f"--profile {file}" in planned["command"]


def test_a_profile_is_answered_only_by_campaigns_that_measured_with_it(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A database's commits are another load than the stored campaign's four measurements."""
    disk = guest(tmp_path, "raw/default")
    stored = advised(capsys, disk, "--profile", "quick")
    assert stored["disks"][0]["campaign"] is not None
    of_commits = advised(capsys, disk, "--profile", "postgresql")
    (row,) = of_commits["disks"]
    assert row["campaign"] is None
    assert row["reason"].endswith("measured on this host with the profile postgresql")
    (planned,) = of_commits["planned"]
    assert "--profile postgresql" in planned["command"]


def test_a_disk_in_doubt_has_the_command_that_settles_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script's settings in doubt are not measured: the running QEMU says what they are."""
    file = tmp_path / "vm.sh"
    for name in ("web.raw", "data.raw"):
        with_image(tmp_path / name)
    file.write_text(
        f"#!/bin/sh\n. {tmp_path}/gone.conf\nqemu-system-x86_64 -m 1G "
        f"-drive file={tmp_path}/web.raw,if=virtio,format=raw,cache=$CACHE "
        f"-drive file={tmp_path}/data.raw,if=virtio,format=raw,cache=none\n"
    )
    assert main(["advise", str(file)]) == 0
    out = capsys.readouterr().out
    said = " ".join(out.split())
    assert "2 disks: unknown 2" in said
    assert said.count("run the command below while the guest runs") == 2
    assert "start the guest; while it runs, this reads on its host" in said
    assert not any(line.startswith("vdisklab run ") for line in out.splitlines())
    assert "vdisklab advise" in out.splitlines(), "alone, for all that runs here"


def test_a_guest_that_is_a_database_by_name_is_asked_for_its_commits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reads and writes of other programs would be taken for those of its commits."""
    for name, said in (
        ("pgdb1", "pgdb1 is a database by name: for commits ask `vdisklab advise "),
        ("web", "for a database's commits ask `vdisklab advise "),
    ):
        assert main(["advise", guest(tmp_path, "raw/none", name)]) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert f"The command below measures with profile short; {said}" in out
        assert "--profile postgresql-short`" in out
    assert main(["advise", guest(tmp_path, "raw/none"), "--profile", "etcd"]) == 0
    assert "measures with profile" not in " ".join(capsys.readouterr().out.split())


def test_a_thin_image_is_measured_as_it_was_made_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`audit` looks for this very path after the command that `advise` prints."""
    image = tmp_path / "thin.img"
    with image.open("wb") as file:
        file.truncate(1 << 20)
    for source, is_thin in ((image, True), (None, False)):
        named = None if source is None else str(source)
        assert main(["advise", guest(tmp_path, "raw/none", image=named)]) == 0
        (command,) = [
            line
            for line in capsys.readouterr().out.splitlines()
            if line.startswith("vdisklab run ")
        ]
        assert ("raw:preallocation=off/none" in shlex.split(command)) is is_thin
