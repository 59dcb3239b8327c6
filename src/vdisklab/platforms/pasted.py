"""A text from a terminal or a web page: with a shell's prompt, in a fence, between words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.shell_script import commands_of
from vdisklab.platforms.text_form import TextForm

_FENCE = re.compile(
    r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(?P<inside>.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.M | re.S
)
_PROMPT = re.compile(
    r"^(?:\(\w+\) ?)?\[?[\w.-]{1,64}@[\w.-]{1,64}[^\n$#]{0,120}[$#] ?(?P<command>.*)$", re.MULTILINE
)
_DOMAIN = re.compile(
    r"^[ \t>]*<domain(?:snapshot)?\b.*?^[ \t>]*</domain(?:snapshot)?>", re.M | re.S
)


def _recognises(text: GuestText) -> bool:
    body = text.text
    if _FENCE.search(body) or _PROMPT.search(body[:4096]):
        return True
    return _DOMAIN.search(body) is not None and not body.lstrip("\ufeff \t\r\n").startswith("<")


def _rewritten(text: GuestText) -> Iterator[GuestText]:
    body = text.text
    if _FENCE.search(body):
        for match in _FENCE.finditer(body):
            line = text.first_line + body.count("\n", 0, match.start("inside"))
            yield GuestText(match["inside"], text.origin, first_line=line)
    elif _PROMPT.search(body[:4096]):
        yield from _of_terminal(text)
    else:
        for match in _DOMAIN.finditer(body):
            yield GuestText(
                re.sub(r"^[ \t]*>[ \t]?(?=[ <])", "", match[0], flags=re.M), text.origin
            )


def _of_terminal(text: GuestText) -> Iterator[GuestText]:
    """What each command printed, and the commands themselves, which may start a guest."""
    prompts = [*_PROMPT.finditer(text.text)]
    ends = [*(match.start() for match in prompts[1:]), len(text.text)]
    for match, end in zip(prompts, ends, strict=True):
        output = text.text[match.end() : end].strip("\n")
        if output.strip():
            yield GuestText(output + "\n", _named(match["command"], text.origin))
        if match["command"].strip():
            # A command that continues in the next lines has its arguments there.
            line = text.first_line + text.text.count("\n", 0, match.start())
            yield GuestText(f"{match['command']}\n{output}\n", text.origin, first_line=line)


def _named(command: str, origin: str) -> str:
    """The place that gives the output its name: the VMID of `qm config`, a file that is shown."""
    argv = next((part.argv for part in commands_of(command)), ())
    rest = [word for word in argv if not word.startswith("-") and word != "sudo"]
    match [PurePath(word).name for word in rest[:1]], rest[1:]:
        case ["qm"], ["config" | "pending" | "showcmd", vmid, *_]:
            return f"{origin}/{PurePath(vmid).name}.conf"
        case ["virsh"], [*_, "dumpxml", guest] | ["dumpxml", guest, *_]:
            return f"{origin}/{PurePath(guest).name}.xml"
        case ["cat" | "less" | "more" | "head"], [*_, file]:
            return f"{origin}/{PurePath(file).name}"
        case _:
            return origin


FORM = TextForm(recognises=_recognises, rewritten=_rewritten)
