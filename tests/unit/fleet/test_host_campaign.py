"""What a worker does: one command at a time, found again after a restart, stopped cleanly."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest

from vdisklab.fleet.host_campaign import (
    RETRIES,
    check_here,
    child_environment,
    host_facts,
    host_state,
    last_lines,
    measure_here,
    running,
    stop_here,
)
from vdisklab.host.waiting import wait_until

TASK = json.dumps({"arguments": ["raw/none", "--rounds", "3"], "db": "postgresql://v@db/v"})


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a shell script in the place of Python; it notes how it was called."""
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("VDISKLAB_DB", raising=False)
    calls = tmp_path / "calls"

    def install(body: str) -> Path:
        script = tmp_path / "python"
        script.write_text(f'#!/bin/bash\necho "$VDISKLAB_DB $*" >> {calls}\n{body}\n')
        script.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(script))
        return calls

    return install


def test_the_command_runs_in_its_own_session(program: Callable[[str], Path]) -> None:
    calls = program("echo working; ps -o sid= -p $$ | tr -d ' '; exit 8")
    answer = json.loads(measure_here(TASK))
    assert answer["status"] == 8
    assert answer["lines"][0] == "working"
    assert int(answer["lines"][1]) != os.getsid(0)
    assert calls.read_text() == "postgresql://v@db/v -m vdisklab run raw/none --rounds 3\n"


def test_the_answer_names_the_campaigns_of_this_command_only(
    program: Callable[[str], Path],
) -> None:
    program('printf "3f2a0b1c\\n77aa" > "$VDISKLAB_CAMPAIGNS_FILE"; echo done')
    assert json.loads(measure_here(TASK))["campaigns"] == ["3f2a0b1c", "77aa"]
    program("echo done")
    assert json.loads(measure_here(TASK))["campaigns"] == []


def test_the_hosts_own_database_wins() -> None:
    environment = {"VDISKLAB_DB": "postgresql://own", "PGPASSWORD": "secret"}
    assert (
        child_environment(environment, "postgresql://theirs")["VDISKLAB_DB"] == "postgresql://own"
    )
    assert child_environment({}, "postgresql://theirs")["VDISKLAB_DB"] == "postgresql://theirs"


def test_a_killed_command_is_given_again_on_a_clean_host(
    program: Callable[[str], Path], tmp_path: Path
) -> None:
    ledger = tmp_path / "state" / "ledger"
    ledger.mkdir(parents=True)
    entry = '{"add": 1, "kind": "mount", "name": "/mnt/x", "detail": {}}'
    calls = program(
        f'[[ "$3" == clean ]] && rm {ledger}/1.jsonl\n'
        f"[[ -e {tmp_path}/again ]] && exit 0\n"
        f"touch {tmp_path}/again; echo '{entry}' > {ledger}/1.jsonl; kill -9 $$"
    )
    assert json.loads(measure_here(TASK))["status"] == 0
    ids = [line.split()[3] for line in calls.read_text().splitlines()]
    assert ids == ["run", "clean", "run"]


@pytest.mark.parametrize(
    ("said", "times"), [("the database d does not answer: refused", 2), ("no password", 1)]
)
def test_a_database_that_restarts_is_waited_for(
    program: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    times: int,
) -> None:
    monkeypatch.setattr("vdisklab.fleet.host_campaign.DATABASE_SECONDS", 0)
    calls = program(
        f"[[ -e {tmp_path}/again ]] && exit 0\n"
        f"touch {tmp_path}/again; echo 'error: {said}'; echo 'hint: start it'; exit 7"
    )
    assert json.loads(measure_here(TASK))["status"] == (0 if times == 2 else 7)
    assert calls.read_text().count(" run ") == times


def test_a_command_that_is_always_killed_is_given_up(program: Callable[[str], Path]) -> None:
    calls = program("kill -9 $$")
    assert json.loads(measure_here(TASK))["status"] == -9
    assert calls.read_text().count(" run ") == 1 + RETRIES


def test_a_second_command_waits_for_the_first(
    program: Callable[[str], Path], tmp_path: Path
) -> None:
    program(f"echo begin >> {tmp_path}/log; sleep 0.3; echo end >> {tmp_path}/log")
    threads = [threading.Thread(target=measure_here, args=(TASK,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (tmp_path / "log").read_text().split() == ["begin", "end"] * 2


def test_stopping_interrupts_and_waits(program: Callable[[str], Path], tmp_path: Path) -> None:
    program(f"trap 'sleep 0.3; echo clean > {tmp_path}/clean; exit 130' INT\n"
            "echo measuring; for _ in {1..400}; do sleep 0.05; done")  # fmt: skip
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda: answers.append(measure_here(TASK))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: "measuring" in host_state(), timeout=120, what="campaign")
    assert stop_here() == "stopped"
    assert (tmp_path / "clean").exists()
    for thread in threads:
        thread.join(20)
    assert [json.loads(answer)["status"] for answer in answers] == [130, 130]
    assert running() is None
    assert stop_here() == "nothing was running"


def test_a_command_that_ignores_the_signal_is_reported(program: Callable[[str], Path]) -> None:
    program("trap '' INT; echo ready; exec sleep 60")
    thread = threading.Thread(target=measure_here, args=(TASK,))
    thread.start()
    wait_until(lambda: "ready" in host_state(), timeout=120, what="campaign")
    assert "still runs" in stop_here(deadline=0.1)
    campaign = running()
    if campaign is not None:
        os.kill(campaign["pid"], signal.SIGKILL)
    thread.join(20)
    assert not thread.is_alive()


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TextIO]:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path))
    with (tmp_path / "fleet.lock").open("a+") as file:
        yield file


def test_who_looks_is_not_taken_for_a_campaign(lock: TextIO) -> None:
    """Both the heartbeat and a stop look, and the last campaign's number is still in the file."""
    lock.write('{"pid": 1, "since": 2}')
    lock.flush()
    with Path(lock.name).open() as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert running() is None


def test_a_campaign_that_is_just_being_started_runs(lock: TextIO) -> None:
    """Its lock is older than its number."""
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.write('{"pid": 7, ')
    lock.flush()
    timer = threading.Timer(0.3, lambda: print('"since": 2}', file=lock, flush=True))
    timer.start()
    assert running() == {"pid": 7, "since": 2}
    timer.join()


def test_no_campaign_is_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path))
    assert host_state() == "{}"
    assert last_lines(tmp_path / "missing") == []


def test_the_last_lines_are_whole_and_say_something(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 9000 + b"\n\nround 1\rround 2\n\xff\n")
    assert last_lines(log)[-3:] == ["round 1", "round 2", "\N{REPLACEMENT CHARACTER}"]


def test_a_host_has_facts() -> None:
    assert host_facts()["kernel"] == os.uname().release


def test_an_unreachable_database_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path))
    monkeypatch.delenv("VDISKLAB_DB", raising=False)
    started = time.monotonic()
    answer = json.loads(check_here("postgresql://v:hidden@127.0.0.1:1/v", str(tmp_path)))
    assert answer["database"]
    assert "hidden" not in answer["database"]
    assert answer["leftovers"] == 0
    assert answer["directory"] == ""
    assert answer["free_bytes"] > 0
    assert time.monotonic() - started < 15
