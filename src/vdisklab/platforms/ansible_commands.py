"""Guests that tasks of Ansible start or make by `command`, `shell` and `raw` (ansible.builtin), as
the commands that a shell would run.

What the text says of Jinja's variables is filled in as for its modules (`ansible`); another
expression stands as `{{name}}`, a word whose value is not known.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from vdisklab.platforms.ansible import filled, has_module, playbook_of, tasks_of
from vdisklab.platforms.reading import GuestText, is_deep, tree
from vdisklab.platforms.text_form import TextForm
from vdisklab.platforms.where_set import only_line, set_in

_BUILTIN = r"ansible\.(?:builtin|legacy)\."
_TASK = re.compile(
    rf"(?m)^[ \t]*(?:-[ \t]+)?['\"]?(?:{_BUILTIN})?(?:command|shell|raw)['\"]?[ \t]*:"
)
_PLAYBOOK = re.compile(
    rf"(?m)^(?:-[ \t]+(?:name|hosts|block|command|shell|raw)[ \t]*:|[ \t]*(?:-[ \t]+)?{_BUILTIN})"
)
"""A list of plays or tasks, or a module by its whole name."""

_OTHER = re.compile(r"(?m)^(?:apiVersion|services)[ \t]*:")
_MODULE = re.compile(r"command|shell|raw")
_PROGRAM = re.compile(
    r"\bqemu-|\bqm[ \t]|\bkvm\b|virt-install|\bvirsh\b|\bpvesh\b|(?:docker|podman) run"
)
_EXPRESSION = re.compile(r"\{\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}\}|\{%.*?%\}", re.DOTALL)
_NAMED = re.compile(r"\{\{-?\s*([A-Za-z_][\w.\[\]'\"]*)")
_OF_COMMANDS = re.compile(
    r"\b(?:qm|pvesh|virsh|virt-install|docker|podman|kvm|qemu-[\w-]+)(?=[ \t])"
)
_MOST_TASKS = 2000


def _recognises(text: GuestText) -> bool:
    body = text.text
    is_playbook = all(each.search(body) for each in (_TASK, _PLAYBOOK, _PROGRAM))
    return is_playbook and _OTHER.search(body) is None


def _rewritten(text: GuestText) -> Iterator[GuestText]:
    lines: list[str] = []
    documents = playbook_of(text, "its tasks are not read")
    for name, task, variables in islice(tasks_of(documents, _MODULE), _MOST_TASKS):
        given = task.get(name)
        if is_deep(given):
            continue
        first = _line_of(text, given)
        lines += [""] * max(0, first - 1 - len(lines))  # each in its own line
        before = _environment(tree(task, "environment"), variables)
        lines += f"{before}{_command(name, given, variables)}".split("\n")
    place = {"": set_in(text, "cache", only_line(text.text, r"\bcache\b"), "its task")}
    yield GuestText("\n".join(lines) + "\n", text.origin, changed_at=place)
    if has_module(text):
        yield GuestText(_OF_COMMANDS.sub("task", text.text), text.origin)


def _command(name: str, given: object, variables: Mapping[str, Any]) -> str:
    """A task's command. An expression of Jinja whose value the text does not have is one word."""
    argv = tree(given).get("argv")
    if isinstance(argv, list):
        return " ".join(_quoted(each, variables) for each in argv)
    spelled = given if isinstance(given, str) else str(tree(given).get("cmd", ""))
    text = _as_words(str(filled(spelled, variables)))
    if name.endswith("command"):  # whose line breaks end no command
        return text.replace("\\\n", " ").replace("\n", " ")
    return text


def _quoted(value: object, variables: Mapping[str, Any]) -> str:
    return shlex.quote(_as_words(str(filled(value, variables))))


def _environment(given: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
    """The assignments of the variables that a task's commands get."""
    return "".join(
        f"{name}={_quoted(value, variables)}; "
        for name, value in given.items()
        if re.fullmatch(r"[A-Za-z_]\w*", str(name))
    )


def _as_words(text: str) -> str:
    """A text in which each expression of Jinja is one word, `{{name}}`."""

    def named(match: re.Match[str]) -> str:
        name = _NAMED.match(match[0])
        return "" if match[0].startswith("{%") else f"{{{{{name[1] if name else '…'}}}}}"

    return _EXPRESSION.sub(named, text)


def _line_of(text: GuestText, given: object) -> int:
    """The line in which a command begins, if it stands so in the text; else 1."""
    argv = tree(given).get("argv")
    spelled = given if isinstance(given, str) else str(tree(given).get("cmd", argv or ""))
    first = next((line.strip() for line in spelled.split("\n") if line.strip()), "")
    place = text.text.find(first[:40]) if first else -1
    return 1 if place < 0 else text.text.count("\n", 0, place) + 1


FORM = TextForm(recognises=_recognises, rewritten=_rewritten, changed_in="Ansible")
