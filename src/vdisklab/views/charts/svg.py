"""Charts as SVG: drawn in a separate process, and cleaned for the page.

vl-convert needs most of a second before it can draw its first chart, and blocks its process during
that time. So a helper process starts while the numbers are still being read.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any
from xml.etree.ElementTree import Element, tostring

from defusedxml.ElementTree import fromstring

from vdisklab.errors import HostError, extra_hint

Spec = dict[str, Any]

Draw = Callable[[Sequence[Spec]], Callable[[], list[str]]]
"""Starts to draw charts as SVG; the returned function waits for them."""

_SMALLEST: Spec = {"data": {"values": [{}]}, "mark": "point"}


def converter() -> Any:  # noqa: ANN401 - a module
    """vl-convert, which draws charts. Raises HostError if it is not installed: it takes 84 MB."""
    try:
        import vl_convert  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise HostError(
            "drawing charts needs the Python package vl-convert-python, which is not installed",
            hint=extra_hint("charts"),
        ) from error
    return vl_convert


def can_draw() -> bool:
    """True if charts can be drawn here."""
    return find_spec("vl_convert") is not None


def draw_here(specs: Sequence[Spec]) -> Callable[[], list[str]]:
    """Draws in this process, when the result is requested."""
    return lambda: [converter().vegalite_to_svg(spec) for spec in specs]


@dataclass(frozen=True, slots=True)
class _Helper:
    """The process that draws one batch of charts and ends, and the thread that talks to it."""

    process: subprocess.Popen[str]
    talking: ThreadPoolExecutor

    def draw(self, specs: Sequence[Spec]) -> Callable[[], list[str]]:
        request = "".join(f"{json.dumps(spec)}\n" for spec in specs)
        answer: Future[tuple[str, str]] = self.talking.submit(self.process.communicate, request)

        def drawn() -> list[str]:
            charts = [json.loads(line) for line in answer.result()[0].splitlines()]
            if self.process.returncode or len(charts) != len(specs):
                raise HostError(
                    f"the process that draws the charts ended with {self.process.returncode}",
                    hint="run `vdisklab report` again, or --format csv, which draws nothing",
                )
            return charts

        return drawn


@contextmanager
def drawing_aside() -> Iterator[Draw]:
    """Yields a function that draws charts once, in a process that starts immediately.

    Where charts cannot be drawn, no process is started. The function that waits for the charts
    raises HostError if the process has failed.
    """
    if not can_draw():
        yield draw_here
        return
    argv = (sys.executable, "-m", __name__)
    with (
        ThreadPoolExecutor(1) as talking,
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            yield _Helper(process, talking).draw
        finally:
            process.kill()  # no effect if it has already ended


def main() -> None:
    """Reads one chart per line and prints its SVG as one line of JSON, until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends this process
    draw_here([_SMALLEST])()
    for line in sys.stdin:
        (drawn,) = draw_here([json.loads(line)])()
        print(json.dumps(drawn))


if __name__ == "__main__":
    main()


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of a chart; `highlight` marks the answer, `muted` the other cells."""

    ink: str
    grid: str
    bar: str
    highlight: str
    muted: str
    paper: str | None


LIGHT = Palette("#1b1f24", "#d8dde3", "#3b78b5", "#c4570c", "#8a939d", "#ffffff")
CSS = Palette("#010203", "#010204", "#010205", "#010206", "#010207", None)

_VARIABLES = {CSS.ink: "ink", CSS.grid: "line", CSS.bar: "bar", CSS.highlight: "highlight",
              CSS.muted: "muted"}  # fmt: skip


_SVG = "{http://www.w3.org/2000/svg}"


_ELEMENTS = frozenset({"svg", "g", "path", "rect", "line", "text", "tspan", "circle", "defs",
                       "clipPath", "title"})  # fmt: skip


_REFERENCE = re.compile(r"url\((?!#)|javascript:|data:", re.IGNORECASE)


def for_page(svg: str, name: str, description: str) -> str:
    """A drawn chart for a page: only drawing elements, colours of the style sheet, a description.

    Labels hold names from outside, so the renderer's output is not trusted: elements that do not
    draw, event handlers and references to other documents are removed.
    """
    root: Element = fromstring(svg)
    _keep_drawing(root)
    for attribute in ("class", "version"):
        root.attrib.pop(attribute, None)
    root.set("role", "img")
    root.set("aria-label", description)
    width, height = root.attrib.pop("width", ""), root.attrib.pop("height", "")
    root.set("viewBox", root.get("viewBox") or f"0 0 {width} {height}")
    # Full size on a wide screen, smaller on a narrow one.
    root.set("class", "chart")
    root.set("width", width)
    text = tostring(root, encoding="unicode")
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var(--{variable})")
    # Identifiers must be unique in the page, so they differ from figure to figure.
    text = re.sub(r'(id="|url\(#)', rf"\g<1>{name}-", text)
    return text.replace("ns0:", "").replace("xmlns:ns0", "xmlns")


def _keep_drawing(element: Element) -> None:
    for child in list(element):
        # The tag of a comment or a processing instruction is a function.
        if str(child.tag).removeprefix(_SVG) not in _ELEMENTS:
            element.remove(child)
        else:
            _keep_drawing(child)
    for name, value in list(element.attrib.items()):
        bare = name.rpartition("}")[2].lower()
        if bare.startswith(("on", "aria-")) or bare in ("href", "style", "role") or (
            _REFERENCE.search(value)
        ):  # fmt: skip
            del element.attrib[name]
