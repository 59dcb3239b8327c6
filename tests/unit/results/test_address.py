"""What of a database's address may be shown, in a command that is to be pasted."""

from __future__ import annotations

import pytest

from vdisklab.answers.missing_cells import run_command
from vdisklab.plan.settings import Request
from vdisklab.results.database import without_password


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("results.sqlite", "results.sqlite"),
        ("sqlite:////srv/results.sqlite", "sqlite:////srv/results.sqlite"),
        ("postgresql://me@server/lab", "postgresql://me@server/lab"),
        ("postgresql://me:s3cret@server:5433/lab", "postgresql://me@server:5433/lab"),
        ("postgresql://me@/lab?host=/run&password=s3cret", "postgresql://me@/lab?host=%2Frun"),
    ],
)
def test_a_password_is_left_out_and_nothing_else(given: str, shown: str) -> None:
    assert without_password(given) == shown


def test_a_command_to_paste_holds_no_password() -> None:
    command = run_command(Request(paths=("raw/none",), db="postgresql://me:s3cret@server/lab"))
    assert command.endswith("--db postgresql://me@server/lab")
