"""QEMU's settings as `KEY=VALUE,…` (util/keyval.c), which a shell needs no quotes for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def keyval(settings: Mapping[str, Any], implied: str = "") -> str:
    """The settings of an argument; as JSON if they have a list.

    The value of the `implied` key comes first, without its name.
    """
    pairs = dict(_dotted(settings))
    if any(isinstance(value, list | tuple | dict) for value in pairs.values()):
        return json.dumps(settings)
    first = [str(pairs.pop(implied))] if implied in pairs else []
    said = {True: "on", False: "off"}
    spelled = (
        f"{key}={said[value] if isinstance(value, bool) else value}".replace(",", ",,")
        for key, value in pairs.items()
    )
    return ",".join([*first, *spelled])


def _dotted(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _dotted(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value
