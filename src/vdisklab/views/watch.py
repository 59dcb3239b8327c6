"""The live page."""

from __future__ import annotations

from markupsafe import Markup

from vdisklab.answers.watch import WatchAnswer
from vdisklab.sanitise import sanitise


def live_page(answer: WatchAnswer) -> str:
    """The whole page."""
    lines = (
        Markup("<li>{}</li>").format(sanitise(f"{one.id} {one.label}")) for one in answer.campaigns
    )
    return Markup("<!DOCTYPE html><title>vdisklab</title><ul>{}</ul>").format(
        Markup("").join(lines)
    )
