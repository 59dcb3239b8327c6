"""A systemd service that starts a guest: systemd.service(5), "Command lines".

The variables of `EnvironmentFile=` win over those of `Environment=`, wherever they stand
(systemd.exec(5)).
"""

from __future__ import annotations

import re
import shlex
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import islice

from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.shell_script import commands_of
from vdisklab.platforms.text_form import TextForm
from vdisklab.platforms.where_set import NO_FLUSH, only_line, set_in

_SERVICE = re.compile(r"^\[Service\]\s*$", re.MULTILINE)
_EXEC = re.compile(
    r"^(?P<key>Exec\w+|Environment(?:File)?)\s*=[-@:+!|]*(?P<value>.*)$", re.MULTILINE
)


_MOST_FILES = 20
_FILE = re.compile(r"\bfile(?:name)?=([^,\s\"']+)")
_MODE = re.compile(r"\bcache=(?:\$\{?(?P<name>\w+))?")
_USED = re.compile(r"\$\{?(\w+)\}?")
_OWN_NAME = re.compile(r"\b(?:node-name|id)=([\w.-]+)")
_VARIABLE = re.compile(r"^[ \t]*(?P<name>[A-Za-z_]\w*)=(?P<value>.*)$", re.MULTILINE)
_CONTINUED = re.compile(r"\\\r?\n(?:[ \t]*[#;][^\n]*\n)*")


def _recognises(text: GuestText) -> bool:
    return _SERVICE.search(text.text) is not None and _EXEC.search(text.text) is not None


def _rewritten(text: GuestText) -> Iterator[GuestText]:
    """The unit's commands, after its variables, as a shell would have them.

    A `%` specifier stays, as the instance is not known.
    """
    variables: dict[str, str] = {}
    of_files: dict[str, str] = {}
    places: dict[str, str] = {}
    unknown: dict[str, int] = {}
    commands: dict[int, str] = {}
    body = _CONTINUED.sub(lambda broken: " " + "\v" * broken[0].count("\n"), text.text)
    breaks = [each.start() for each in re.finditer("[\n\v]", body)]
    for match in _EXEC.finditer(body):
        value = match["value"].replace("\v", "")
        line = 1 + bisect_left(breaks, match.start())
        if match["key"] == "Environment":
            variables |= _pairs(value)
        elif match["key"] == "EnvironmentFile":
            found = text.files.get(value.strip())
            unknown |= {} if found is not None else {f". {shlex.quote(value.strip())}": line}
            of_file = {} if found is None else _of_file(found)
            of_files |= of_file
            places |= {name: _in_file(name, value.strip(), found or "") for name in of_file}
        else:
            commands[line] = value.replace("%%", "%")
    values = variables | of_files
    set_ = [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
    first = min((*unknown.values(), *commands, text.text.count("\n") + 1))
    before = {first: "; ".join((*set_, *unknown))} if set_ or unknown else {}
    last = max((first, *commands))
    each = ("; ".join(filter(None, (before.get(n), commands.get(n)))) for n in range(1, last + 1))
    lines = "\n".join(each)  # each in its own line, which a doubt names
    yield GuestText(f"{lines}\n", text.origin, changed_at=_places(text, values, places))


def _places(
    text: GuestText, values: Mapping[str, str], of_files: Mapping[str, str]
) -> dict[str, str]:
    """Where the cache mode of each file, node and drive is set, in a line that has one file alone:
    in its own words, or in those of the variable it is, whose place in a file of variables is in
    `of_files`. A file is named by the `values` of its variables."""
    found = {"": f"its cache mode in {text.origin}"}
    for number, line in enumerate(text.text.splitlines(), 1):
        drives = [each for each in line.split() if _FILE.search(each)]
        if len(drives) == 1:
            (drive,) = drives
            named = [*_FILE.findall(drive)[:1], *_OWN_NAME.findall(drive)]
            keys = [_USED.sub(lambda name: values.get(name[1], name[0]), each) for each in named]
            found |= dict.fromkeys(keys, _place(text, drive, number, of_files))
    return found


def _in_file(name: str, file: str, text: str) -> str:
    """The place of a variable in a file of variables."""
    return set_in(GuestText(text, file), name, only_line(text, rf"(?m)^[ \t]*{name}="))


def _place(text: GuestText, drive: str, number: int, of_files: Mapping[str, str]) -> str:
    mode = _MODE.search(drive)
    if mode is not None and mode["name"] in of_files:
        return of_files[mode["name"]]
    if mode is not None and mode["name"]:
        line = only_line(text.text, rf"\b{mode['name']}=")
        return set_in(text, mode["name"], line)
    if "node-name=" in drive:  # a -blockdev has flags, and no mode
        return set_in(text, NO_FLUSH if NO_FLUSH in drive else "cache.direct", number)
    return set_in(text, "cache=", number)


def _pairs(value: str) -> Mapping[str, str]:
    """The variables of one `Environment=`, or of a value as it quotes them."""
    argv = next((command.argv for command in commands_of(f": {value}")), (":",))
    pairs = (word.partition("=") for word in argv[1:] if "=" in word)
    return {name: word for name, _, word in pairs}


def _of_file(text: str) -> Mapping[str, str]:
    """The variables of an environment file: the rest of a line, without its quotes."""
    found: dict[str, str] = {}
    for match in _VARIABLE.finditer(_CONTINUED.sub(" ", text)):
        value = match["value"].strip()
        is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        found[match["name"]] = value[1:-1] if is_quoted else value
    return found


def _names(text: GuestText) -> Iterator[str]:
    if _recognises(text):
        files = (each for each in _EXEC.finditer(text.text) if each["key"] == "EnvironmentFile")
        yield from (each["value"].strip() for each in islice(files, _MOST_FILES))


FORM = TextForm(recognises=_recognises, rewritten=_rewritten,
    changed_in="the systemd unit", names=_names,
)  # fmt: skip
