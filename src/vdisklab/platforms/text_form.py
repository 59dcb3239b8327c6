"""Ways to write guests down that are no platform's own: a script, a unit, a playbook, a paste.

Each is rewritten into texts that a platform reads: a unit becomes its command line, a `qm set` the
lines of VMID.conf. A form is one file with a `FORM` and one row in `FORMS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module

from vdisklab.errors import PlanError
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.shell_script import sourced_files
from vdisklab.value import Value, replace

FORMS = (
    "pasted", "ansible_commands", "readconfig", "container_run", "systemd_unit", "process_list",
    "info_block", "qm_commands", "virt_install", "virsh_attach", "monitor_commands", "terraform",
    "packer", "ansible", "compose",
)  # fmt: skip
"""The files of the forms, the outermost first: what was pasted may be any other."""

_MOST_TEXTS = 2000
"""Texts that one file may become: each costs a reader's start."""


def _nothing(_text: GuestText) -> tuple[str, ...]:
    return ()


class TextForm(Value, kw_only=True):
    """One form: `rewritten` gives the texts of platforms that a text stands for.

    `shares` is True where the text may hold guests of other
    forms, too, as a script does. `changed_in` names the program that writes the guest anew, so that
    a change belongs into its file; empty where the platform's own line is the change. `names` gives
    the names of files, beside the text's own, that it gets values from; it may raise PlanError.
    """

    recognises: Callable[[GuestText], bool]
    rewritten: Callable[[GuestText], Iterable[GuestText]]
    shares: bool = False
    changed_in: str = ""
    names: Callable[[GuestText], Iterable[str]] = _nothing


@cache
def all_forms() -> tuple[TextForm, ...]:
    """The forms in the order of their rows."""
    return tuple(import_module(f"vdisklab.platforms.{name}").FORM for name in FORMS)


def files_named(text: GuestText) -> tuple[str, ...]:
    """The names of files that a text gets values from; none of a broken one, which is refused where
    it is read."""
    found = list(sourced_files(text.text))
    for form in all_forms():
        with suppress(PlanError):
            found += form.names(text)
    return tuple(dict.fromkeys(found))


def rewritten_texts(text: GuestText) -> Iterator[GuestText]:
    """The texts that a text stands for: itself, unless it is of a form.

    Raises PlanError for a broken text, and for one that stands for too many.
    """
    for number, rewritten in enumerate(_rewritten(text, all_forms())):
        if number >= _MOST_TEXTS:
            raise PlanError(
                f"{text.origin} has more than {_MOST_TEXTS} guests", hint="split the file"
            )
        yield rewritten


def _rewritten(text: GuestText, forms: tuple[TextForm, ...]) -> Iterator[GuestText]:
    keep = True
    for number, form in enumerate(forms):
        if not form.recognises(text):
            continue
        keep &= form.shares
        for inner in form.rewritten(text):
            named = replace(
                inner,
                required=text.required,
                changed_in=text.changed_in or form.changed_in,
                changed_at=text.changed_at or inner.changed_at,
            )
            yield from _rewritten(named, forms[number + 1 :])
        if not form.shares:
            return
    if keep:
        yield text
