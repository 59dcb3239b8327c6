"""A scheduler and two workers: the contract, and who is let in."""

from __future__ import annotations

import json
import logging
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import dask
import psutil
import pytest
from distributed import Client

from tests.unit.fleet.nodes import Fleet, fleet_in, free_port
from vdisklab.cli.shell.main import main
from vdisklab.errors import HostError, PlanError
from vdisklab.fleet.answer import FleetDoctorAnswer
from vdisklab.fleet.certificates import FleetRole, make_certificates
from vdisklab.fleet.coordinator import (
    CampaignRun,
    FleetMember,
    HostResult,
    check_hosts,
    choose_members,
    connected,
    members,
    stop_hosts,
    task_of,
)
from vdisklab.fleet.quiet_settings import SETTINGS, apply_settings, check_address, own_versions
from vdisklab.fleet.systemd_unit import systemd_unit
from vdisklab.fleet.view import doctor_tables
from vdisklab.host.waiting import wait_until


@pytest.fixture(scope="module")
def port() -> int:
    """Where the worker kvm1 is told to listen."""
    return free_port()


@pytest.fixture(scope="module")
def fleet(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet_in(tmp_path_factory.mktemp("fleet")) as fleet:
        fleet.scheduler()
        wait_until(lambda: "listens" in fleet.log("scheduler"), timeout=240, what="scheduler")
        fleet.worker("kvm1", port=port)
        fleet.worker("kvm2")
        for name in ("kvm1", "kvm2"):
            wait_until(lambda: "is a worker" in fleet.log(name), timeout=240, what=name)  # noqa: B023
        yield fleet


def names_of(fleet: Fleet) -> list[str]:
    try:
        with connected(fleet.address, fleet.security()) as client:
            return [member.name for member in members(client)]
    except HostError:
        return []


def test_both_hosts_are_there_with_facts_and_versions(fleet: Fleet) -> None:
    with connected(fleet.address, fleet.security()) as client:
        there = members(client)
    assert [dict(member.versions) for member in there] == [own_versions()] * 2
    assert all(member.facts["kernel"] for member in there)
    assert all(not member.campaign for member in there)


def test_each_host_runs_the_command_as_a_child(fleet: Fleet) -> None:
    said: list[str] = []
    campaign = CampaignRun(("kvm1", "kvm2"), task_of(["--help"], None), 60, said.append)
    results = campaign.wait(fleet.address, fleet.security())
    assert [(result.host, result.status) for result in results] == [("kvm1", 0), ("kvm2", 0)]
    assert sorted(said) == ["kvm1: done", "kvm2: done"]
    for name in ("kvm1", "kvm2"):
        assert "vdisklab run" in (fleet.state(name) / "fleet.log").read_text()


def test_a_task_stays_on_its_host_and_one_that_never_comes_is_given_up(fleet: Fleet) -> None:
    for name in ("kvm1", "kvm2"):
        (fleet.state(name) / "fleet.log").unlink(missing_ok=True)
    campaign = CampaignRun(("kvm2", "kvm9"), task_of(["--nonsense"], None), 3, lambda _: None)
    started = time.monotonic()
    there, absent = campaign.wait(fleet.address, fleet.security())
    assert time.monotonic() - started < 60
    assert (there.status, absent.status) == (2, None)
    assert there.sentence.startswith("failed with status 2: No such option: --nonsense (")
    assert absent.sentence == "gave up: not there for 3 s"
    assert not (fleet.state("kvm1") / "fleet.log").exists()


def test_why_a_host_has_no_numbers_is_said_with_its_hint() -> None:
    broken = HostResult("a", 3, ("trying", "error: the directory is read-only", "hint: --dir"))
    assert broken.sentence == "failed with status 3: the directory is read-only (--dir)"
    nothing = HostResult("a", 8, ("4 cells failed", "no ranking: every run failed", "hint: runs 4"))
    assert nothing.sentence == "done, but cells failed: every run failed (runs 4)"
    assert HostResult("a", 8, ("a ranking",)).sentence == "done, but cells failed"
    assert HostResult("a", 3, ("killed",)).sentence == "failed with status 3: killed"


def test_an_answer_that_cannot_be_fetched_is_no_reason_to_measure_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Shut:
        """A task that has ended, on a host whose port is shut."""

        status = "finished"

        def done(self) -> bool:
            return True

        def result(self, timeout: float) -> str:
            raise TimeoutError(f"after {timeout} s")

    cancelled: list[object] = []
    client = SimpleNamespace(cancel=lambda tasks, force: cancelled.extend(tasks))
    task = Shut()
    monkeypatch.setattr("vdisklab.fleet.coordinator._submitted", lambda *_: task)
    monkeypatch.setattr("vdisklab.fleet.coordinator.members", lambda _: [])
    said: list[str] = []
    CampaignRun(("kvm1",), "", 60, said.append)._collect(cast("Client", client))
    assert said[0].startswith("kvm1: gave up: it has ended, but the scheduler cannot reach")
    assert cancelled == [task]


def test_an_empty_name_is_no_host_to_wait_for() -> None:
    with pytest.raises(PlanError, match="--hosts names no host"):
        choose_members([member("a")], [""])


def test_a_worker_without_a_scheduler_says_so_without_dasks_words(tmp_path: Path) -> None:
    with fleet_in(tmp_path) as fleet:
        # Dask itself tries for 30 s.
        fleet.worker("kvm1", DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT="2s")
        wait_until(lambda: "waiting" in fleet.log("kvm1"), timeout=240, what="the worker's word")
        said = fleet.log("kvm1")
    assert "it does not answer, or refuses this certificate" in " ".join(said.split())


def test_stop_and_doctor_ask_each_host(fleet: Fleet) -> None:
    with connected(fleet.address, fleet.security()) as client:
        assert stop_hosts(client, ["kvm1"]) == {"kvm1": "nothing was running"}
        nowhere = str(fleet.directory / "nowhere")
        checks = check_hosts(client, "postgresql://v:hidden@127.0.0.1:1/v", nowhere)
    assert [check["host"] for check in checks] == ["kvm1", "kvm2"]
    assert all(check["database"] and "hidden" not in check["database"] for check in checks)
    assert all(check["versions"] == "" for check in checks)
    assert all("nowhere does not exist (mkdir -p" in check["directory"] for check in checks)


def test_the_verbs_show_the_hosts(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--scheduler", fleet.address, "--tls", str(fleet.tls)]
    assert main(["fleet", "status", *arguments, "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [host["host"] for host in shown["hosts"]] == ["kvm1", "kvm2"]
    assert main(["fleet", "stop", *arguments, "--hosts", "kvm1", "--hosts", "kvm9"]) == 3
    assert capsys.readouterr().out == "kvm1: nothing was running\nkvm9: is not there\n"


def test_every_open_port_wants_a_certificate_of_the_authority(fleet: Fleet) -> None:
    ports = {
        connection.laddr.port
        for node in fleet.nodes.values()
        for connection in psutil.Process(node.pid).net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    assert len(ports) == 3  # one for each node: no dashboard, no HTTP
    anonymous = ssl.create_default_context(cafile=fleet.tls / "ca.pem")
    anonymous.check_hostname = False
    for port in ports:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            first_answer(port, anonymous)


def first_answer(port: int, context: ssl.SSLContext) -> bytes:
    """In TLS 1.3 a refusal comes after the handshake, with the first answer."""
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain) as encrypted,
    ):
        return encrypted.recv(1)


def test_a_worker_listens_on_its_port_and_says_when_another_has_it(
    fleet: Fleet, port: int, tmp_path: Path
) -> None:
    with connected(fleet.address, fleet.security()) as client:
        addresses = {member.name: member.address for member in members(client)}
    assert addresses["kvm1"].endswith(f":{port}")
    twin = Fleet(tmp_path, fleet.port)
    shutil.copytree(fleet.tls, twin.tls)
    twin.worker("kvm4", port=port)
    try:
        assert twin.nodes["kvm4"].wait(240) == HostError.exit_code
    finally:
        twin.end()
    assert twin.log("kvm4").splitlines() == [
        f"error: port {port} of this host is in use",
        "hint: choose another one with --port",
    ]


def test_a_client_of_another_authority_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    make_certificates(tmp_path / "tls", datetime.now(UTC))
    stranger = Fleet(tmp_path, fleet.port)
    with (
        pytest.raises(HostError, match="does not answer, or refuses this certificate"),
        connected(fleet.address, stranger.security()),
    ):
        pass


def test_a_worker_of_another_authority_is_not_taken(fleet: Fleet, tmp_path: Path) -> None:
    make_certificates(tmp_path / "tls", datetime.now(UTC))
    stranger = Fleet(tmp_path, fleet.port)
    stranger.worker("kvm66")
    try:
        wait_until(lambda: "waiting" in stranger.log("kvm66"), timeout=240, what="refusal")
        assert "kvm66" not in names_of(fleet)
    finally:
        stranger.end()


def test_every_setting_is_one_of_dask() -> None:
    defaults: dict[str, object] = {}
    for layer in dask.config.defaults:
        dask.config.update(defaults, layer)
    missing = object()
    for name in SETTINGS:
        assert dask.config.get(name, missing, config=defaults) is not missing, name


def test_dask_says_nothing_itself() -> None:
    apply_settings()
    names = [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]
    assert "distributed.client" in names
    assert not any(logging.getLogger(name).isEnabledFor(logging.ERROR) for name in names)


@pytest.mark.parametrize("address", ["tcp://db1:8786", "db1", "tls://", "tls://db1:x"])
def test_an_address_without_tls_is_refused(address: str) -> None:
    with pytest.raises(PlanError):
        check_address(address)


def test_an_address_has_a_default_port() -> None:
    assert check_address("tls://db1") == "tls://db1:8786"
    assert check_address("tls://[::1]") == "tls://[::1]:8786"
    assert check_address("tls://db1:9") == "tls://db1:9"


def member(name: str, cpu: str = "Xeon", version: str | None = None) -> FleetMember:
    versions = own_versions() | ({} if version is None else {"vdisklab": version})
    return FleetMember(name, f"tls://{name}", versions, {"cpu": cpu}, "", {}, 0.0)


def test_hosts_are_chosen_by_name_and_fact() -> None:
    there = [member("a"), member("b", "EPYC"), member("c", "EPYC")]
    assert choose_members(there, ["all"]) == ("a", "b", "c")
    assert choose_members(there, ["cpu=EPYC"]) == ("b", "c")
    assert choose_members(there, ["c", "z"]) == ("c", "z")
    assert choose_members(there, ["c", "a", "cpu=EPYC"]) == ("c",)
    for wanted, message in (("cpu=Z80", "no host has cpu=Z80"), ("color=red", "unknown fact")):
        with pytest.raises(PlanError, match=message):
            choose_members(there, [wanted])
    with pytest.raises(PlanError, match="no host meets all of: z, cpu=EPYC"):
        choose_members(there, ["z", "cpu=EPYC"])
    with pytest.raises(PlanError, match="no worker is connected"):
        choose_members([], ["all"])


def test_different_versions_are_refused_with_both_named() -> None:
    version = own_versions()["vdisklab"]
    with pytest.raises(
        HostError, match=rf"a has vdisklab 9\.9 .*, this end has vdisklab {version}"
    ):
        choose_members([member("a", version="9.9")], ["all"])


def test_a_single_host_never_imports_dask() -> None:
    code = (
        "import sys; from vdisklab.cli.shell.main import build_app; build_app();"
        "print([name for name in ('dask', 'distributed', 'cryptography') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["run", "raw/none"], 2, "one PostgreSQL, which all hosts reach"),
        (["run", "raw/none", "--db", "x.sqlite"], 2, "one PostgreSQL, which all hosts reach"),
        (["run", "raw/none", "--db", "postgresql://d/v", "--new"], 2, "begin again at each retry"),
        (["run", "raw/nonsense", "--db", "postgresql://d/v"], 2, "nonsense"),
        (["run", "raw/none", "--db", "postgresql://d/v"], 2, "no directory is named"),
        (["run", "raw/none", "--db", "postgresql://d/v", "--dir", "x"], 2, "no directory is named"),
        (
            ["run", "t/raw/none", "--db", "postgresql://d/v", "--target", "t=nbd://h/e"],
            2,
            "target t is one disk on a server, and each host would write to it",
        ),
        (["doctor", "--db", "postgresql://d/v", "--dir", "x"], 2, "no directory is named"),
        (
            ["run", "raw/none", "--db", "postgresql://d/v", "--dir", "/x", "--give-up", "soon"],
            2,
            "not a duration",
        ),
        (
            ["run", "raw/none", "--db", "postgresql://d/v", "--dir", "/x"],
            3,
            "client.pem is missing",
        ),
        (["run", "raw/none", "--db", "postgresql://d/v", "--host", "a"], 2, "--guest, --hosts,"),
        (["run", "raw/none", "--db", "postgresql://d/v", "--bloks", "3"], 2, "fleet run --help"),
        (["status"], 3, "client.pem is missing"),
    ],
)
def test_bad_requests_are_refused_before_anything_is_sent(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    message: str,
) -> None:
    monkeypatch.delenv("VDISKLAB_DB", raising=False)
    make_certificates(tmp_path / "tls", datetime.now(UTC))
    (tmp_path / "tls" / "client.pem").unlink()
    ends = ["--scheduler", "tls://127.0.0.1:1", "--tls", str(tmp_path / "tls")]
    assert main(["fleet", *arguments, *ends]) == status
    assert message in capsys.readouterr().err


def test_a_scheduler_that_is_away_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vdisklab.fleet.coordinator.CONNECT_SECONDS", 0.5)
    make_certificates(tmp_path / "tls", datetime.now(UTC))
    ends = ["--scheduler", "tls://127.0.0.1:1", "--tls", str(tmp_path / "tls")]
    assert main(["fleet", "status", *ends]) == 3
    assert "the scheduler tls://127.0.0.1:1 does not answer" in capsys.readouterr().err


def test_a_fleet_without_workers_is_not_called_ready() -> None:
    (table,) = doctor_tables(FleetDoctorAnswer("tls://db1:8786", ()))
    (note,) = table.notes
    assert note.startswith("No worker is there")


def test_a_name_in_a_unit_is_quoted() -> None:
    unit = systemd_unit(
        ["/usr/bin/vdisklab", "fleet", "worker", "--as", 'a "b" %h$'], of_scheduler=False
    )
    assert 'ExecStart=/usr/bin/vdisklab fleet worker --as "a \\"b\\" %%h$$"' in unit
    assert "KillMode=process" in unit
    with pytest.raises(PlanError):
        systemd_unit(["a\nb"], of_scheduler=True)


def test_a_scheduler_without_a_place_for_its_state_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_certificates(tmp_path / "tls", datetime.now(UTC))
    (tmp_path / "file").touch()
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "file"))
    arguments = [
        "fleet",
        "scheduler",
        "--listen",
        "tls://127.0.0.1:0",
        "--tls",
        str(tmp_path / "tls"),
    ]
    assert main(arguments) == HostError.exit_code
    assert re.search(r"error: \S*/file\S* cannot be written: ", capsys.readouterr().err)
    unit = systemd_unit(["/usr/bin/vdisklab"], of_scheduler=True)
    assert "StateDirectory=vdisklab" in unit  # all else is read-only


def test_the_roles_have_their_own_files() -> None:
    assert [str(role) for role in FleetRole] == ["scheduler", "worker", "client"]
