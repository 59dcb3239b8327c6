"""The parts of JUnit's XML that verbs share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from xml.etree import ElementTree as Xml

from vdisklab.path.named_target import as_typed
from vdisklab.sanitise import sanitise_line


def say_once(suite: Xml.Element, sentences: Iterable[str], completed: Callable[[str], str]) -> None:
    """Ends a suite with what holds for all its cases."""
    text = " ".join(sentences)
    if text:
        Xml.SubElement(suite, "system-out").text = xml_text(completed(text))


def xml_text(outside: str) -> str:
    """One line that any XML parser accepts: XML cannot represent the two noncharacters."""
    return (
        as_typed(sanitise_line(outside)).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
    )
