"""The profiles that come with vdisklab, as text."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from importlib import resources
from itertools import chain

from vdisklab.errors import PlanError
from vdisklab.plan.profile import Profile


def builtin_profiles() -> tuple[str, ...]:
    """Names of the profiles that come with vdisklab, sorted."""
    folder = resources.files("vdisklab.workload") / "profiles"
    return tuple(
        sorted(
            entry.name.removesuffix(".toml")
            for entry in folder.iterdir()
            if entry.name.endswith(".toml")
        )
    )


def quick_look_of(name: str) -> str | None:
    """The built-in profile that is a quick look at what another one measures; None without one."""
    short = f"{name}-short"
    return short if short in builtin_profiles() else None


def builtin_profile(name: str) -> Profile:
    """The profile of that name. Raises PlanError naming the nearest one."""
    text = builtin_profile_text(name)
    # Imported late: reading a profile needs pydantic, and most answers read none.
    from vdisklab.plan.profile_file import parse_profile  # noqa: PLC0415

    return parse_profile(text, f"profile {name}")


def builtin_profile_text(name: str) -> str:
    """The TOML text of a profile. Raises PlanError naming the nearest one."""
    profiles = builtin_profiles()
    if name not in profiles:
        close = _nearest(name, profiles)
        suggestion = "" if close is None else f"did you mean {close}? "
        raise PlanError(
            f"there is no profile {name!r}", hint=f"{suggestion}profiles: {', '.join(profiles)}"
        )
    return _text(name)


def _text(name: str) -> str:
    return (resources.files("vdisklab.workload") / "profiles" / f"{name}.toml").read_text("utf-8")


def _nearest(name: str, profiles: Sequence[str]) -> str | None:
    """`marriadb` is misspelt, `sqlite` is a program of `sync-heavy`; else the likest name."""
    word = name.casefold()
    misspelt = difflib.get_close_matches(word, profiles, n=1, cutoff=0.75)
    naming = (each for each in profiles if word in re.findall(r"\w+", _text(each).casefold()))
    likest = difflib.get_close_matches(word, profiles, n=1, cutoff=0.4)
    return next(chain(misspelt, naming, likest), None)
