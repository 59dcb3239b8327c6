"""What errors say of programs that failed."""

from __future__ import annotations

import time

import pytest

from vdisklab.errors import CommandError, GuestError, HostError, last_words, shown_command

FIO = ("fio", "--name=write", "--filename=/dev/vdb", "--size=33554432", *["--norandommap=1"] * 9)


def test_fio_says_why_it_failed_although_its_log_of_bandwidth_follows() -> None:
    why = "fio: io_u error on file /dev/vdb: Input/output error: write offset=3, buflen=65536"
    assert last_words(FIO, f"{why}\n1805, 57670, 1, 0, 0\n2004, 58211, 1, 0, 0\n") == why


def test_a_log_alone_is_shown() -> None:
    assert last_words(FIO, "1, 5, 1, 0, 0\n2, 6, 1, 0, 0") == "1, 5, 1, 0, 0 | 2, 6, 1, 0, 0"


def test_a_document_hides_no_reason() -> None:
    assert last_words(("/usr/bin/fio",), 'fio: no room\n{\n"jobs": []\n}\n') == "fio: no room"


def test_other_programs_are_quoted_from_their_end() -> None:
    assert str(CommandError(("mkfs",), 1, "a\nb\n\nc\nd\n")) == "`mkfs` exited with 1: b | c | d"
    assert str(CommandError(("mkfs",), 1, "")) == "`mkfs` exited with 1"


def test_a_long_command_is_shown_by_its_beginning() -> None:
    shown = "fio --name=write --filename=/dev/vdb --size=33554432 …"
    assert shown_command(FIO) == shown
    assert shown_command(FIO[:6]) == " ".join(FIO[:6])


def test_a_script_of_several_lines_is_not_shown_by_its_first() -> None:
    assert shown_command(("sh", "-c", "\nfalse\nexit 1\n", "/mnt a")) == "sh -c … '/mnt a'"
    failed = str(CommandError(("sh", "-c", "\nexit 1\n"), 1, "dd: no room\n"))
    assert failed == "`sh -c …` exited with 1: dd: no room"


@pytest.mark.parametrize("said", ["", " ", "\n", "why", "why\n"])
def test_a_sentence_does_not_end_where_a_program_said_nothing(said: str) -> None:
    """`the guest does not see the disk vdl201f0fda: `"""
    for kind in (GuestError, HostError):
        error = kind(f"the guest does not see the disk: {said}")
        end = "the guest does not see the disk" + ": why" * bool(said.strip())
        assert (str(error), error.message) == (end, end)


def test_a_message_with_many_blanks_inside_is_cut_at_once() -> None:
    """The blanks of a program's output took time that grew as their square."""
    message, begun = f"it said{' ' * 200_000}why", time.process_time()
    assert GuestError(f"{message}: \n").message == message
    assert time.process_time() - begun < 1
