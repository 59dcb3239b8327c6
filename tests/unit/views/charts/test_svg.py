"""Charts drawn in a process of their own are the same, and a dead one is told."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.unit.views.large import shapely
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.report import report_on
from vdisklab.errors import HostError
from vdisklab.host.waiting import wait_until
from vdisklab.views.charts.figures import figures
from vdisklab.views.charts.svg import CSS, Spec, draw_here, drawing_aside

pytestmark = pytest.mark.slow


def some_specs() -> list[Spec]:
    with shapely() as store:
        specs = (figure.spec for figure in figures(report_on(Analysis.of(store)), CSS))
    return [spec for spec in specs if spec is not None][:3]


def helpers() -> list[int]:
    """The processes that draw for this one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            argv = (entry / "cmdline").read_bytes().split(b"\0")
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            if b"vdisklab.views.charts.svg" in argv and int(parent) == os.getpid():
                found.append(int(entry.name))
    return found


def test_a_process_of_its_own_draws_the_same() -> None:
    specs = some_specs()
    with drawing_aside() as draw:
        drawn = draw(specs)
        assert drawn() == draw_here(specs)()
    assert len(specs) == 3
    assert helpers() == []


def test_nothing_stays_when_nothing_is_drawn() -> None:
    with drawing_aside():
        # A process that has just begun has no arguments yet (fs/exec.c, begin_new_exec).
        wait_until(lambda: len(helpers()) == 1, timeout=30, what="process that draws")
    assert helpers() == []


def test_a_dead_process_is_a_sentence() -> None:
    specs = some_specs()
    with drawing_aside() as draw:
        wait_until(lambda: len(helpers()) == 1, timeout=30, what="process that draws")
        for process in helpers():
            os.kill(process, signal.SIGKILL)
        with pytest.raises(HostError, match="ended with -9") as caught:
            draw(specs)()
    assert "report" in (caught.value.hint or "")
