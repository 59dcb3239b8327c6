"""`-readconfig FILE` of QEMU (qemu(1)): the groups of a file as arguments, in its place.

A group `[drive "d0"]` with lines `key = "value"` is `-drive id=d0,key=value`; one without a name
has no id (util/qemu-config.c, qemu_config_foreach). The file is beside the text, or a text after
`<<` in it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import islice, takewhile

from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.text_form import TextForm
from vdisklab.value import replace

_OPTION = re.compile(r"(?<!\S)--?readconfig[ \t]+(?P<file>[^\s'\"$;&|<>]+)")
_GROUP = re.compile(r'^[ \t]*\[(?P<group>[\w-]+)(?:[ \t]+"(?P<id>[^"\n]*)")?\][ \t]*$')
_SETTING = re.compile(r'^[ \t]*(?P<key>[\w.-]+)[ \t]*=[ \t]*"(?P<value>[^"\n]*)"[ \t]*$')
_WRITES = re.compile(r"<<-?[ \t]*['\"]?(?P<end>\w+)")
_MOST_FILES, _LONGEST = 20, 50_000


def _recognises(text: GuestText) -> bool:
    return any(_content(text, match["file"]) is not None for match in _OPTION.finditer(text.text))


def _rewritten(text: GuestText) -> Iterator[GuestText]:
    def replaced(match: re.Match[str]) -> str:
        content = _content(text, match["file"])
        return match[0] if content is None else shlex.join(_arguments(content))

    yield replace(text, text=_OPTION.sub(replaced, text.text))


def _content(text: GuestText, file: str) -> str | None:
    """The file's text: beside the script, or written by it with `cat > FILE <<EOF`."""
    found = text.files.get(file)
    if found is not None:
        return found[:_LONGEST]
    lines = text.text[:_LONGEST].split("\n")
    heads = (each for each in enumerate(lines, 1) if file in each[1] and "<<" in each[1])
    for number, line in islice(heads, _MOST_FILES):
        match = _WRITES.search(line)
        if match is not None and re.search(rf">[ \t]*['\"]?{re.escape(file)}(?![\w./-])", line):
            body = [*takewhile(lambda each: each.strip() != match["end"], lines[number:])]  # noqa: B023
            if number + len(body) < len(lines):
                return "\n".join(body)
    return None


def _arguments(content: str) -> Iterator[str]:
    """The groups as options; a line that is not understood ends in a word that no option has."""
    option = ""
    settings: list[str] = []
    for line in content.splitlines():
        group, setting = _GROUP.match(line), _SETTING.match(line)
        if group is not None:
            yield from _one(option, settings)
            option = group["group"]
            settings = [f"id={group['id'].replace(',', ',,')}"] if group["id"] else []
        elif setting is not None:
            settings.append(f"{setting['key']}={setting['value'].replace(',', ',,')}")
        elif line.strip() and not line.lstrip().startswith("#"):
            yield from ("-drive", f"$line: {line.strip()[:60]}")
    yield from _one(option, settings)


def _one(option: str, settings: list[str]) -> Iterator[str]:
    if not option:
        return
    first = [each for each in settings if each.startswith(("driver=", "qom-type=", "type="))]
    rest = [each for each in settings if each not in first]
    yield from (f"-{option}", ",".join((*first, *rest)))


def _names(text: GuestText) -> Iterator[str]:
    yield from islice((match["file"] for match in _OPTION.finditer(text.text)), _MOST_FILES)


FORM = TextForm(recognises=_recognises, rewritten=_rewritten, names=_names)
