"""The command line: verbs, signals, error messages, exit status, standard streams."""

from __future__ import annotations

import codecs
import errno
import gc
import inspect
import io
import logging
import os
import re
import shlex
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Annotated, TextIO

import typer

from vdisklab import __version__
from vdisklab.cli.shell.verbs import PACKAGE, imported_verb, listed_verbs, verb_files
from vdisklab.errors import (
    EXIT_INTERRUPTED,
    INTERRUPTS,
    HostError,
    PlanError,
    ReaderGoneError,
    VdisklabError,
)
from vdisklab.sanitise import sanitise

EXIT_BUG = 70
_SQLITE = b"SQLite format 3\0"
_LONGEST_MESSAGE = 2000
_PLAIN_WORDS = (
    (r"'[^']*' is not a valid int(eger)?(?=\.|$)", "a whole number is expected"),
    (r"'[^']*' is not a valid float(?=\.|$)", "a number is expected"),
    # Some versions of typer check values by pydantic.
    ("Value error, ", ""),
    ("Input should be less than or equal to ", "at most "),
    ("Input should be greater than or equal to ", "at least "),
    (
        "Input should be a valid integer, "
        "(unable to parse string as an integer|got a number with a fractional part)",
        "a whole number is expected",
    ),
    (
        "Input should be a valid number, unable to parse string as a number",
        "a number is expected",
    ),
)
"""What typer says of a wrong value, and what vdisklab says."""

_NEAREST = {
    **dict.fromkeys("─━–—−", "-"), **dict.fromkeys("│┃", "|"), "…": "...", "×": "x", "≤": "<=",
    "≥": ">=", "±": "+-", "µ": "u", "→": "->", "·": ".", "“": '"', "”": '"', "’": "'",
    **dict.fromkeys("▏▎▍▌▋▊▉█", "#"), "\N{NO-BREAK SPACE}": " ",
}  # fmt: skip

_LOOK_ALIKE = "vdisklab.look-alike"


def _show_version(wanted: bool) -> None:
    if wanted:
        for line in version_lines():
            typer.echo(sanitise(line))
        raise typer.Exit


def version_lines() -> Iterator[str]:
    """The versions of vdisklab and of the programs that decide what is measured."""
    # Imported late: the list of verbs is shown without them.
    from vdisklab.host.command import LocalHost  # noqa: PLC0415
    from vdisklab.host.facts import fio_version, qemu_version  # noqa: PLC0415

    host = LocalHost()
    yield f"vdisklab {__version__}"
    yield f"QEMU {qemu_version(host) or 'not found'}"
    yield f"fio {fio_version(host) or 'not found'}"


def _root(
    debug: Annotated[
        bool, typer.Option("--debug", help="Log every command; show tracebacks.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Print the versions of vdisklab, QEMU and fio.",
        ),
    ] = False,
) -> None:
    """Measure every way of giving a KVM guest a local disk, and learn which one to use."""
    del version
    if debug:
        logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, format="%(message)s")
    else:  # SQLAlchemy logs, with a traceback, what becomes a sentence anyway
        logging.basicConfig(handlers=[logging.NullHandler()])


def build_app(only: str | None = None, package: str = PACKAGE) -> typer.Typer:
    """The command line with one verb, or with all; each verb is one file."""
    # Imported late: the list of verbs has no command to complete.
    from vdisklab.cli.shell.named import Verb  # noqa: PLC0415

    app = _app()
    commands = []
    verbs = [imported_verb(verb_files(package)[only])] if only else listed_verbs(package)
    for verb in verbs:
        name, panel = verb.file.name, verb.panel
        function = getattr(import_module(verb.file.module), verb.file.function)
        if verb.is_group:
            group = function()
            app.add_typer(group, name=name, help=verb.docstring, rich_help_panel=panel)
            commands += group.registered_commands
        else:
            app.command(name, cls=Verb, rich_help_panel=panel)(function)
    for command in (*app.registered_commands, *commands):
        command.help = _help_text(getattr(command.callback, "__doc__", None) or "")
    return app


def _app() -> typer.Typer:
    app = typer.Typer(
        name="vdisklab",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    return app


def app_for(
    arguments: Sequence[str], environment: Mapping[str, str], package: str = PACKAGE
) -> typer.Typer:
    """The command line with the verb that these arguments, or the words to complete, name.

    Importing all verbs takes a second, so without a known verb (help, a misspelled one) the others
    are there by name and docstring only.
    """
    typed = arguments
    if "_VDISKLAB_COMPLETE" in environment:
        line = environment.get("COMP_WORDS", environment.get("_TYPER_COMPLETE_ARGS", ""))
        # The last word is not complete: `run` may become `runs`. bash joins words with newlines.
        typed = re.split(r"\s", line)[1:-1]
    named = next((word for word in typed if not word.startswith("-")), None)
    if named in verb_files(package):
        return build_app(named, package)
    app = _app()
    for verb in listed_verbs(package):
        text = _help_text(verb.docstring)
        app.command(verb.file.name, help=text, rich_help_panel=verb.panel)(_not_loaded)
    return app


def _not_loaded() -> None:
    """Stands for a verb in the list of verbs."""


def _help_text(docstring: str) -> str:
    """A verb's docstring with each paragraph on one line; typer wraps them.

    Examples are lines of their own, indented alike.
    """
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    lines = (" ".join(paragraph.split()) for paragraph in paragraphs)
    return "\n\n".join(f"  {line}" if line.startswith("vdisklab ") else line for line in lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb; returns the exit status. No exception leaves it."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        _open_standard_streams()
    _turn_signals_into_interrupts()
    if os.geteuid() == 0:  # no file of root's may be written by others, whatever the umask was
        os.umask(os.umask(0o022) | 0o022)
        from vdisklab.host.writing import own_temporary_directory  # noqa: PLC0415 - for root alone

        own_temporary_directory()
    try:
        # Inside the try: on a busy machine this takes seconds, and Ctrl-C may come meanwhile.
        command = typer.main.get_command(app_for(arguments, os.environ))
        if argv is None:
            # What was loaded stays, and answers on many cells stay too until they are written:
            # looking at them for garbage again and again took a quarter of `rank`'s time.
            gc.freeze()
            gc.set_threshold(50_000, 20, 100)
            gc.enable()
        status: object = command.main(args=arguments, prog_name="vdisklab", standalone_mode=False)
        sys.stdout.flush()  # its error is still in time for a sentence and a status
    except (VdisklabError, MemoryError) as error:
        if isinstance(error, MemoryError):
            error = HostError("there is not enough memory", hint="end other programs")
        error.hint = _database_hint(arguments) or error.hint
        _print_error(error)
        return error.exit_code
    except typer.TyperException as error:
        message = _plain(error.format_message())
        if message:  # otherwise no verb was named, and the help was shown
            print(f"error: {_shortened(message)}", file=sys.stderr)
            hint = _database_hint(arguments) or _help_hint(error, arguments)
            print(f"hint: {hint}", file=sys.stderr)
        return PlanError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except (ReaderGoneError, BrokenPipeError):
        sys.stderr.close()
        return 0
    except Exception as error:  # noqa: BLE001 - the edge: a bug still ends in one sentence
        print(f"error: this is a bug in vdisklab: {type(error).__name__}: {error}", file=sys.stderr)
        print("hint: run `vdisklab --debug VERB …` and report what it prints", file=sys.stderr)
        if "--debug" in arguments:
            traceback.print_exc()
        return EXIT_BUG
    return status if isinstance(status, int) else 0


def _database_hint(arguments: Sequence[str]) -> str | None:
    """The same command with --db, if an argument that is no option's value is a database of SQLite.

    None if there is none, or if --db is there.
    """
    if "--db" in arguments or arguments[:1] in (["import"], ["export-data"]):
        return None
    from vdisklab.host.mounts import is_visible_file  # noqa: PLC0415 - for errors only

    for place, word in enumerate(arguments[1:], 1):
        if not arguments[place - 1].startswith("-") and is_visible_file(Path(word)):
            with suppress(OSError), Path(word).open("rb") as file:
                if file.read(len(_SQLITE)) == _SQLITE:
                    argv = [*arguments[:place], "--db", *arguments[place:]]
                    return f"to read this database: `vdisklab {shlex.join(argv)}`"
    return None


def _help_hint(error: typer.TyperException, arguments: Sequence[str]) -> str:
    """The hint for a mistake on the command line: the command that lists what is possible."""
    context = getattr(error, "ctx", None)
    command = "vdisklab" if context is None else context.command_path
    verb = next((word for word in arguments if not word.startswith("-")), "")
    if command == "vdisklab" and verb in verb_files():
        command = f"vdisklab {verb}"  # typer names no command for an option without its value
    if command == "vdisklab":
        return "`vdisklab --help` lists the verbs"
    takes = f"`{command} --help` shows what it takes"
    is_json = getattr(error, "option_name", None) == "--json"
    return f"write --format json; {takes}" if is_json else takes


def _plain(message: str) -> str:
    """Typer's message in plain words: typer, or pydantic for it, has words of its own."""
    for pattern, sentence in _PLAIN_WORDS:
        message = re.sub(pattern, sentence, message)
    return message


def _print_error(error: VdisklabError) -> None:
    """Prints an error without control characters: it may contain a guest's or a file's text."""
    from vdisklab.path.named_target import as_typed  # noqa: PLC0415 - `--help` does without paths

    lines = [f"error: {error}", *([f"hint: {error.hint}"] if error.hint else [])]
    for text in (*lines, *getattr(error, "__notes__", ())):
        print(_shortened(as_typed(sanitise(text))), file=sys.stderr)


def _shortened(text: str) -> str:
    """A message without the middle of an endless input that it repeats."""
    left_out = len(text) - _LONGEST_MESSAGE
    if left_out <= 0:
        return text
    half = _LONGEST_MESSAGE // 2
    return f"{text[:half]} … ({left_out} characters left out) … {text[-half:]}"


def _turn_signals_into_interrupts() -> None:
    """Makes SIGTERM and SIGHUP unwind like Ctrl-C, so that every context manager cleans up.

    Only the first signal does this: a second one during the cleanup would interrupt it and leave
    things mounted and attached.
    """

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        for number in INTERRUPTS:
            if signal.getsignal(number) == interrupt:
                signal.signal(number, wait)
        raise KeyboardInterrupt

    def wait(_signal: int, _frame: FrameType | None) -> None:
        os.write(2, b"still cleaning up; please wait\n")

    for number in INTERRUPTS:
        # If nohup ignores SIGHUP, keep it ignored: the campaign then survives the terminal.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupt)


def _look_alike(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    return "".join(_NEAREST.get(character, "?") for character in characters), error.end


class _StandardError(io.FileIO):
    """Standard error. Text that cannot be written is lost; the exit status tells the outcome."""

    def write(self, data: object) -> int | None:  # type: ignore[override] # any buffer
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError:
            return memoryview(data).nbytes  # type: ignore[arg-type]


class _StandardOutput(io.FileIO):
    """Standard output. A failed write raises HostError, or ReaderGoneError for a closed pipe."""

    def write(self, data: object) -> int | None:  # type: ignore[override] # any buffer
        try:
            return super().write(data)  # type: ignore[arg-type]
        except BrokenPipeError as error:
            _drop_output()
            # Not a BrokenPipeError: rich would end the program with status 1.
            raise ReaderGoneError from error
        except OSError as error:
            _drop_output()
            closed = error.errno == errno.EBADF
            reason = "standard output is closed" if closed else error.strerror
            raise HostError(
                f"the answer cannot be written: {reason}",
                hint="redirect standard output to a file that can be written",
            ) from error


def _open_standard_streams() -> None:
    """Replaces standard output, and opens the streams that the caller closed.

    Otherwise the next file to be opened, such as the database, would get a stream's number.
    """
    # Writing to a descriptor that is open for reading fails as on a closed one: EBADF.
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # takes the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    codecs.register_error(_LOOK_ALIKE, _look_alike)
    errors = _StandardError(2, "w", closefd=False)
    sys.stderr = _text(errors, sys.stderr, line_buffering=True)
    sys.stdout = _text(
        _StandardOutput(1, "w", closefd=False), sys.stdout, line_buffering=os.isatty(1)
    )


def _text(raw: io.FileIO, replaced: TextIO | None, *, line_buffering: bool) -> TextIO:
    """The stream in the encoding of the one it replaces. UTF-8 keeps that one's error handler."""
    encoding = None if replaced is None else replaced.encoding
    kept = None if replaced is None else replaced.errors
    in_unicode = encoding is not None and encoding.lower().startswith("utf")
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=encoding,
        errors=kept if in_unicode else _LOOK_ALIKE,
        line_buffering=line_buffering,
    )


def _drop_output() -> None:
    """Discards the rest of standard output, which Python would try to write again at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
