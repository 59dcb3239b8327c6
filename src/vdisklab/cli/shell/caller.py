"""How the user started vdisklab: commands that are printed for the user are spelled alike."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from vdisklab.errors import VdisklabError
from vdisklab.host.mounts import may_measure_in
from vdisklab.value import Value, replace

NAME = "vdisklab"

_MEASURING = ("run", "plan")
_ROOT_ALWAYS = ("powercut", "density")  # density for its control
_MEASURES_AGAIN = {"trend": "--confirm", "claims": "--run"}
"""The options of verbs that measure what stored campaigns or claims say, not what is typed."""
_SYSTEM_DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")
"""Where sudo finds programs on Debian: `secure_path` of sudoers(5)."""


_SAME = "the same command"
_NEW = re.compile(r" --new(?= |$)")
"""The option that begins anew what the same command would continue."""


class Caller(Value):
    """The user and the command that started this process.

    `program` is what the user's shell must run to start vdisklab again, quoted, and `whole_program`
    the same in any directory. `command` is the whole command of this process, None for a process
    that is no `vdisklab`. `as_root` stands before a command that needs root, and `root_program` is
    then what starts vdisklab; `as_root` is empty if the user is root or has no sudo.
    """

    program: str = NAME
    whole_program: str = NAME
    command: str | None = None
    as_root: str = ""
    root_program: str = NAME

    @classmethod
    def of_process(cls) -> Self:
        """The caller of this process, from its arguments, user and PATH."""
        return cls.of(sys.argv, os.environ, os.geteuid(), shutil.which, sys.executable)

    @classmethod
    def of(
        cls,
        argv: Sequence[str],
        environment: Mapping[str, str],
        user: int,
        which: Callable[[str], str | None],
        python: str,
    ) -> Self:
        """The caller of a process with these arguments and this environment."""
        started = argv[0] if argv else ""
        if Path(started).name == "__main__.py" and Path(started).parent.name == NAME:
            program = whole = root_program = f"{shlex.quote(python)} -m {NAME}"
        elif Path(started).name == NAME:
            whole = shlex.quote(os.path.abspath(started))  # noqa: PTH100 - a link stays as typed
            program, root_program = _spelled(started, which(NAME), whole)
        else:
            return cls()
        command = f"{program} {shlex.join(argv[1:])}".strip()
        if user == 0:
            # In the shell of the user who called sudo, the same words would read another database.
            sudo = "sudo " if environment.get("SUDO_UID", "0") != "0" and which("sudo") else ""
            return cls(sudo + program, sudo + whole, sudo + command)
        if which("sudo") is None:
            return cls(program, whole, command)
        return cls(program, whole, command, "sudo ", root_program)

    def becomes_root(self, command: str, layered: Collection[str] = ()) -> bool:
        """True if this user must run the command, which begins with `vdisklab`, as root."""
        return bool(self.as_root) and (
            needs_root(command, layered) or writes_where_it_may_not(command)
        )

    def start_of(self, command: str, layered: Collection[str] = ()) -> str:
        """What this user must type instead of the word `vdisklab` at the start of a command."""
        as_root = self.becomes_root(command, layered)
        return f"{self.as_root}{self.root_program}" if as_root else self.program

    def anywhere(self) -> Caller:
        """The same for a reader whose shell may be in another directory."""
        return replace(self, program=self.whole_program)

    def same_command(self, text: str) -> str:
        """The text with this process' command instead of the words `the same command`.

        The sentences say that the command continues, so `--new` is left out.
        """
        if self.command is None:
            return text
        return text.replace(_SAME, f"`{_NEW.sub('', self.command)}`")


def retyped(
    verb: str, instead: str = "", *, flags: Collection[str] = (), valued: Collection[str] = ()
) -> str:
    """`vdisklab VERB` with what this process' user typed after it, without these options; the
    `valued` ones have a value. `instead` are the words for a process that is no `vdisklab`.
    """
    if Caller.of_process().command is None or verb not in sys.argv:
        return f"{NAME} {verb} {instead}".rstrip()
    typed = sys.argv[sys.argv.index(verb) + 1 :]
    return shlex.join([NAME, verb, *without_options(typed, flags=flags, valued=valued)])


def without_options(
    typed: Sequence[str], *, flags: Collection[str] = (), valued: Collection[str] = ()
) -> list[str]:
    """The words of a command without these options; the `valued` ones have a value."""
    return [
        word
        for before, word in pairwise(["", *typed])
        if before not in valued
        and word not in (*flags, *valued)
        and word.partition("=")[0] not in valued
    ]


def _spelled(started: str, found: str | None, whole: str) -> tuple[str, str]:
    """What starts the program `started` again: in the user's shell, and by sudo.

    `found` is the file that the name alone starts in the user's shell.
    """
    with suppress(OSError):
        if found is not None and Path(found).samefile(started):
            directory = str(Path(found).absolute().parent)
            return NAME, NAME if directory in _SYSTEM_DIRECTORIES else whole
    return shlex.quote(started), whole


def needs_root(command: str, layered: Collection[str] = ()) -> bool:
    """True for a command that builds host layers, uses a device or cuts the power of a disk.

    `layered` are the campaigns that did one of these, and the commands of claims that do: `run
    --again` measures such a campaign again, `trend --confirm` and `claims --run` what they answer.
    """
    try:
        _, verb, *argv = shlex.split(command)
    except ValueError:
        return False
    if verb in _ROOT_ALWAYS:
        return True
    if verb in _MEASURES_AGAIN:
        return bool(layered) and _MEASURES_AGAIN[verb] in argv
    again = any(before == "--again" and word in layered for before, word in pairwise(argv))
    return verb in _MEASURING and (again or "--on" in argv or any(map(_has_layers, argv)))


def writes_where_it_may_not(command: str) -> bool:
    """True for a command that measures in a directory in which this user may not make a file, such
    as libvirt's; false for a directory that is not here."""
    try:
        _, verb, *argv = shlex.split(command)
    except ValueError:
        return False
    named = [Path(word) for before, word in pairwise(argv) if before == "--dir"]
    return verb == "run" and not all(map(may_measure_in, named))


def measured_as_root(plan: Mapping[str, Any]) -> bool:
    """True for the stored plan of a campaign that had host layers, or devices below its disks."""
    # A cell's label is its path, and may name the state of the page cache behind it.
    paths = {label.partition(" ")[0] for label in plan.get("cells", ())}
    return bool(plan.get("devices")) or any(map(_has_layers, paths))


def _has_layers(word: str) -> bool:
    # Late: the list of verbs does without the language of paths.
    from vdisklab.path.braces import expand  # noqa: PLC0415
    from vdisklab.path.disk_path import has_known_names, parse_path  # noqa: PLC0415

    with suppress(VdisklabError):
        # Before parsing: what a path may be instead of a word that is none takes a millisecond.
        paths = (parse_path(text) for text in expand(word) if has_known_names(text))
        return any(layer.kind.facts.target is None for path in paths for layer in path.layers)
    return False
