"""The output of ps(1), in any of its formats: a process a line, its arguments without quotes.

An argument with a blank in it cannot be told from two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.text_form import TextForm

_PROGRAM = (
    r"(?:\S*/)?(?:qemu-system-\w+|qemu-kvm|kvm|qemu-nbd|qemu-storage-daemon|nbdkit|virtiofsd)"
)
_PROCESS = re.compile(
    rf"^(?=[^\n]{{0,120}}?\b[0-9]+\s)[ \t]*(?:[\w.+:-]{{1,32}}[ \t]+)?[0-9]+[ \t]"
    rf"[^\n\"'{{=]{{0,120}}?"
    rf"(?<![\w-])(?P<command>{_PROGRAM}[ \t]+-[^\n]*)$",
    re.MULTILINE,
)


def _recognises(text: GuestText) -> bool:
    return _PROCESS.search(text.text) is not None


def _rewritten(text: GuestText) -> Iterator[GuestText]:
    for match in _PROCESS.finditer(text.text):
        yield GuestText("\0".join(match["command"].split()), text.origin)


FORM = TextForm(recognises=_recognises, rewritten=_rewritten)
