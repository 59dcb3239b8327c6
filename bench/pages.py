"""What the benchmarks share: options of simulations, and tables in a page of the documentation."""

from __future__ import annotations

import argparse
import re
from pathlib import Path


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


def simulation_options(
    description: str | None, count: str, names: list[str]
) -> argparse.ArgumentParser:
    """The options of a program of simulations; `count` is the option with their number."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(count, type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--json", type=Path, help="keep all numbers here; others in it stay")
    parser.add_argument("--from", dest="kept", type=Path, help="simulate nothing, read this")
    parser.add_argument("--docs", type=Path, help="write the tables into this page")
    return parser
