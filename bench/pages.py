"""Writes a benchmark's tables into a page of the documentation."""

from __future__ import annotations

import re


def with_tables(page: str, name: str, tables: str) -> str:
    """The page with the tables between the marks of `name`. Raises ValueError without marks."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    text, count = re.subn(
        f"({re.escape(start)}).*?({re.escape(end)})",
        lambda match: f"{match[1]}\n\n{tables}\n\n{match[2]}",
        page,
        flags=re.DOTALL,
    )
    if count != 1:
        raise ValueError(f"the page lacks the marks {start} and {end}")
    return text
