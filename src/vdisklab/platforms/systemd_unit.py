"""A systemd service that starts a guest: systemd.service(5), "Command lines"."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.shell_script import commands_of
from vdisklab.platforms.text_form import TextForm

_SERVICE = re.compile(r"^\[Service\]\s*$", re.MULTILINE)
_EXEC = re.compile(r"^(?P<key>Exec\w+|Environment)\s*=[-@:+!|]*(?P<value>.*)$", re.MULTILINE)


def _recognises(text: GuestText) -> bool:
    return _SERVICE.search(text.text) is not None and _EXEC.search(text.text) is not None


def _rewritten(text: GuestText) -> Iterator[GuestText]:
    """The unit's commands, after its variables, as a shell would have them.

    A `%` specifier stays, as the instance is not known.
    """
    body = re.sub(r"\\\r?\n(?:[ \t]*[#;][^\n]*\n)*", " ", text.text)
    variables: list[str] = []
    commands: list[str] = []
    for match in _EXEC.finditer(body):
        if match["key"] == "Environment":
            argv = next((command.argv for command in commands_of(f": {match['value']}")), (":",))
            pairs = (word.partition("=") for word in argv[1:] if "=" in word)
            variables += (f"export {name}={shlex.quote(value)}" for name, _, value in pairs)
        else:
            commands.append(match["value"].replace("%%", "%"))
    lines = "\n".join((*variables, *commands))
    yield GuestText(f"{lines}\n", text.origin)


FORM = TextForm(recognises=_recognises, rewritten=_rewritten,
    changed_in="the systemd unit",
)  # fmt: skip
