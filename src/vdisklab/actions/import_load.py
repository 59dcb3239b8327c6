"""Turns traces of other programs into load files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vdisklab.actions.input_file import unreadable
from vdisklab.actions.output_file import output_file
from vdisklab.answers.import_load import ImportedLoad, ImportLoadAnswer
from vdisklab.errors import PlanError
from vdisklab.loads.characteristics import characteristics_of
from vdisklab.loads.likeness import likeness_of
from vdisklab.loads.load_file import MAGIC, SUFFIX, encode
from vdisklab.loads.traces.trace_file import TraceWish, read_trace_file, trace_form
from vdisklab.loads.traces.trace_form import TraceForm


def trace_forms(files: Sequence[Path]) -> tuple[TraceForm, ...]:
    """The form of each file if they are traces; none if they are other files.

    Raises PlanError for traces among other files, and for a load file, which needs no import.
    """
    found = [_form(file) for file in files]
    forms = tuple(form for form in found if form is not None)
    if forms and len(forms) < len(found):
        raise PlanError(
            "some of these files are traces of requests, and others are results",
            hint="import traces and results by two commands",
        )
    if not forms:
        loads = [file for file in files if file.suffix == SUFFIX and _is_load(file)]
        if loads:
            raise PlanError(
                f"{loads[0]} is a load already", hint=f"`vdisklab show {loads[0]}` reads it"
            )
    return forms


def _form(file: Path) -> TraceForm | None:
    if not file.is_file():
        return None  # a pipe: opening it would wait for its writer
    try:
        return trace_form(file)
    except OSError as error:
        raise unreadable(str(file), error) from error


def _is_load(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def import_traces(
    files: Sequence[Path],
    forms: Sequence[TraceForm],
    *,
    wish: TraceWish,
    name: str | None,
    output: Path | None,
) -> ImportLoadAnswer:
    """Writes a load file for each trace: `output`, or one in the current directory with the
    trace's name. Raises PlanError, LoadError, HostError."""
    if output is not None and len(files) > 1:
        raise PlanError("several traces do not fit into one file", hint="leave --output out")
    loads = []
    for file, form in zip(files, forms, strict=True):
        load = read_trace_file(file, form, wish, name or file.name)
        target = output or Path(f"{file.name}{SUFFIX}")
        with output_file(target) as stream:
            stream.write(encode(load))
        loads.append(
            ImportedLoad(
                str(target), load.source.name, form.recorded_by,
                likeness_of(characteristics_of(load)).sentence, load.source.span_us / 1e6,
                len(load), load.source.lost, load.source.notes,
            )
        )  # fmt: skip
    return ImportLoadAnswer(tuple(loads))
