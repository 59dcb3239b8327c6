"""Commands in answers and errors run as they are printed.

They begin with the name by which the user started vdisklab, and name the database and campaigns
that the user has named: without these a copied command would answer about another database.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from html import escape, unescape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

from vdisklab.cli.shell.caller import NAME, Caller, measured_as_root, without_options
from vdisklab.cli.shell.verbs import KEPT, naming_options, verb_files
from vdisklab.errors import LayersMissingError, PlanError, SeparateCampaignsError, VdisklabError
from vdisklab.path.disk_path import PathSyntaxError
from vdisklab.path.named_target import NamedTarget, as_typed, options_of, parse_target
from vdisklab.value import Value, field, replace

if TYPE_CHECKING:
    from vdisklab.plan.option_rows import OptionRows

# A command is marked as code (Markdown's text has \\` for `), or is a line of its own.
_IN_TEXT = re.compile(r"(?:^|(?<=`))vdisklab ([a-z-]+)(?:[^`\n\\]|\\(?!`))*", re.MULTILINE)
_NAMES_HOSTS = re.compile(r"--(?:campaign|hosts)\b")
_SAY_WHAT_TO_USE = frozenset({"rank", "recommend"})
ANSWERS = {
    "--disk": _SAY_WHAT_TO_USE | {"advise", "audit", "export", "report", "run", "table"},
    "--need": _SAY_WHAT_TO_USE,
    "--unsafe": _SAY_WHAT_TO_USE,
    "--stall": _SAY_WHAT_TO_USE,
    # A command that names a campaign asks for its host.
    "--hosts": _SAY_WHAT_TO_USE | {"claims", "compare", "report"},
}
"""The verbs whose commands keep an option."""
_OTHERWISE = {"--disk": {"record", "import"}, "--hosts": {"fleet"}}
"""The verbs whose option of that name says something else, such as which disk of a guest."""

_OF_ONE_HOST = frozenset({"--pareto", "--published"})
"""The options of verbs with --hosts that --hosts does not go with."""

_TYPED = "vdisklab.typed"
"""What the user typed after the verb, in the context of a command."""

_TAGS = re.compile(r"</?span[^>\n]*>")
_IN_HTML = re.compile(r"(?<=<code>)vdisklab ([a-z-]+)(?:[^<\n]|</?span[^>\n]*>)*")


class Named(Value):
    """The names that the user gave; None or empty for the default.

    `kept` are the options, as spelled, that decide what an answer says, such as `--disk plp`.
    `targets` are the measured campaigns' targets, `secrets` the files with their secrets.
    `layered` are the campaigns that root measured, and commands of claims that need root. `caller`
    is how the user started vdisklab.
    """

    db: str | None = None
    campaign: tuple[str, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    targets: tuple[NamedTarget, ...] = ()
    secrets: tuple[tuple[str, Path], ...] = ()
    layered: frozenset[str] = frozenset()
    caller: Caller = field(default_factory=Caller.of_process)

    @classmethod
    def by(cls, *requests: OptionRows | Named) -> Named:
        """What a verb's requests name, in their rows `db` and `campaign` (one, several or none)."""
        db = next((db for each in requests if (db := getattr(each, "db", None))), None)
        secrets = tuple(pair for request in requests for pair in getattr(request, "secret", ()))
        found = [getattr(request, "campaign", None) or () for request in requests]
        listed = [(names,) if isinstance(names, str) else names for names in found]
        named = cls.of(db, [name for names in listed for name in names])
        layered = frozenset[str]().union(*(getattr(each, "layered", ()) for each in requests))
        kept = [pair for each in requests for pair in _kept(each)]
        return replace(named, secrets=secrets, layered=layered, kept=tuple(dict.fromkeys(kept)))

    @classmethod
    def of(cls, db: object, campaigns: Sequence[str] | None = None) -> Named:
        """Taken from a verb's options; `db` is text, or None. A database named by VDISKLAB_DB is
        left out: the next command reads that variable too.
        """
        if not isinstance(db, str) or db == os.environ.get("VDISKLAB_DB"):
            db = None
        return cls(db, tuple(campaigns or ()))

    def on_targets_of(self, campaigns: Sequence[Any]) -> Named:
        """The same, for commands with paths on the targets of these campaigns, or that measure them
        again."""
        plans = [getattr(campaign, "plan", {}) for campaign in campaigns]  # none of imported ones
        targets: dict[NamedTarget, None] = {}
        for text in (str(target) for plan in plans for target in plan.get("target") or ()):
            with suppress(PlanError):  # in a damaged database
                targets[parse_target(text)] = None
        as_root = {
            each.id
            for each in campaigns
            if self.caller.as_root and measured_as_root(getattr(each, "plan", {}))
        }
        return replace(
            self,
            targets=tuple(targets),
            layered=self.layered | as_root,
        )

    def in_text(self, text: str) -> str:
        """The text, whose commands of vdisklab get the options that the user named."""
        return _IN_TEXT.sub(self._complete_if_command, text)

    def _complete_if_command(self, match: re.Match[str]) -> str:
        """The command in a text, completed; a line that is a sentence about vdisklab as it is."""
        in_quotes = match.start() > 0 and match.string[match.start() - 1] == "`"
        return self._complete(match) if in_quotes or match[1] in verb_files() else match[0]

    def in_html(self, page: str) -> str:
        """An HTML page, whose commands get the options that the user named."""
        return _IN_HTML.sub(lambda match: self._complete(match, _in_span), page)

    def in_json(self, value: Any, for_others: Collection[str] = ()) -> Any:  # noqa: ANN401
        """A JSON value, whose commands get the options that the user named. Commands `for_others`
        are run on another host, and stay as they are."""
        if isinstance(value, str):
            return value if value in for_others else self.in_text(value)
        if isinstance(value, dict):
            return {key: self.in_json(item, for_others) for key, item in value.items()}
        if isinstance(value, list):
            return [self.in_json(item, for_others) for item in value]
        return value

    def _complete(self, match: re.Match[str], quoted: Callable[[str], str] = str) -> str:
        command = match[0]
        plain = unescape(_TAGS.sub("", command)) if quoted is _in_span else command
        as_root = self.caller.becomes_root(plain, self.layered)
        db = self.db or (self._own_database() if as_root else None)
        options = self._options(match[1], command, db)
        start = self.caller.start_of(plain, self.layered)
        if quoted is _in_span:
            start = escape(start)
        command = as_typed(command)
        return " ".join([start + command.removeprefix(NAME), *map(quoted, options)])

    def _options(self, verb: str, command: str, db: str | None) -> list[str]:
        """What the user named of all that a command's verb takes, except what the command says."""
        if not (self.targets or self.campaign or self.kept or db):
            return []
        takes = naming_options(verb)
        options = [
            f"{option} {shlex.quote(value)}"
            for target in self.targets
            if "--target" in takes and _on_target(command, target.name)
            for option, value in options_of(target, self.secrets)
            if not _says(option, target.name, command)
        ]
        if "--campaign" in takes and "--campaign" not in command:
            options += [f"--campaign {shlex.quote(name)}" for name in self.campaign]
        options += [
            spelled
            for option, spelled in self.kept
            if verb in ANSWERS[option]
            and option in takes
            and spelled not in command
            and not (option == "--hosts" and _NAMES_HOSTS.search(command))
        ]
        if db is not None and "--db" in takes and "--db" not in command:
            # Imports SQLAlchemy, which a verb without a database does without.
            from vdisklab.results.database import without_password  # noqa: PLC0415

            options.append(f"--db {shlex.quote(without_password(db))}")
        return options

    def _own_database(self) -> str:
        """The database that root must name, because root's default is another one."""
        from vdisklab.host.state_directory import state_directory  # noqa: PLC0415
        from vdisklab.results.database import default_url, parse_address  # noqa: PLC0415

        named = os.environ.get("VDISKLAB_DB")
        return named or str(parse_address(default_url(state_directory())).file)


def _kept(request: OptionRows | Named) -> Iterator[tuple[str, str]]:
    """The options of a request that its answer goes by, each as it is spelled."""
    if isinstance(request, Named):
        yield from request.kept
        return
    from vdisklab.plan.option_rows import given  # noqa: PLC0415 - the settings of all verbs

    module = type(request).__module__
    verb = next((name for name, file in verb_files().items() if file.module == module), "")
    for row, value in given(request):
        if row.name in KEPT and row.flag in ANSWERS and verb not in _OTHERWISE.get(row.flag, ()):
            for each in value if row.kind.many else (value,):
                spelled = () if isinstance(each, bool) else (row.kind.spell(each),)
                yield row.flag, shlex.join((row.flag, *spelled))


def _on_target(command: str, name: str) -> bool:
    """True for a command that says a target of that name, or a path on one."""
    stored, typed = rf":at={re.escape(name)}(?![\w.+-])", rf"(?<![\w.+:=/-]){re.escape(name)}/"
    on_path = re.search(f"{stored}|{typed}", command)
    return on_path is not None or _says("--target", name, command)


def _says(option: str, name: str, command: str) -> bool:
    """True for a command with an option whose value begins with `NAME=`."""
    value = rf"(</span>)? (['\"]|&#(x27|39);)?{re.escape(name)}="
    return re.search(option + value, command) is not None


def _in_span(word: str) -> str:
    """An option and its value in HTML; as everywhere on the page, no line breaks in an option."""
    option, _, value = word.partition(" ")
    return f'<span class="whole">{option}</span> {escape(value)}'


def _typed(ctx: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - as in `Verb`
    """The same of what the user typed, for an error."""
    verb = ctx
    while getattr(verb.parent, "parent", None) is not None:  # a verb of a group
        verb = verb.parent
    for name in KEPT:
        if verb.info_name in _OTHERWISE.get(f"--{name}", ()):
            continue
        source = ctx.get_parameter_source(name) if name in ctx.params else None
        if f"--{name}" not in ANSWERS or getattr(source, "name", "") != "COMMANDLINE":
            continue
        value = ctx.params[name]
        for each in value if isinstance(value, list | tuple) else (value,):
            spelled = () if isinstance(each, bool) else (str(each),)
            yield f"--{name}", shlex.join((f"--{name}", *spelled))


NOTHING_NAMED = Named()


def _instead(ctx: Any, error: SeparateCampaignsError) -> str:  # noqa: ANN401 - as in `Verb`
    """The user's command, with the campaigns of each answer instead of those that were named."""
    typed = ctx.meta.get(_TYPED, ())
    left = without_options(typed, valued=("--campaign", "--hosts", "--db"))
    of_one_host = any(word.partition("=")[0] in _OF_ONE_HOST for word in left)
    return error.ways(
        shlex.join([*ctx.command_path.split(), *left]),
        from_hosts="--hosts" in naming_options(ctx.info_name) and not of_one_host,
    )


class Verb(TyperCommand):
    """A verb whose errors name the database and campaigns that the user named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - as below
        """Reads the arguments. Raises PlanError for an option that stands where a value belongs:
        it would be taken for the value."""
        options = {
            flag: option
            for option in self.params
            for flag in getattr(option, "opts", ())
            if flag.startswith("--")
        }
        ctx.meta[_TYPED] = tuple(args)
        for word, after in pairwise(args):
            option = options.get(word)
            if option is not None and not getattr(option, "is_flag", True) and after in options:
                value = option.metavar or "a value"
                raise PlanError(
                    f"{word} needs {value}, and {after} follows it",
                    hint=f"write {word} {value} {after} …; `{ctx.command_path} --help` explains it",
                )
            if word == "--":
                break
        return list(super().parse_args(ctx, args))

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's context has moved between versions
        """Runs the verb. Raises VdisklabError, among others."""
        db = ctx.params.get("db")
        try:
            return super().invoke(ctx)
        except VdisklabError as error:
            explained = error
            if isinstance(error, PathSyntaxError):
                from vdisklab.answers.loading import free_name  # noqa: PLC0415 - for errors only

                explained = free_name(error, db) or error
            if isinstance(error, SeparateCampaignsError):
                error.hint = _instead(ctx, error)
            if isinstance(error, LayersMissingError) and ctx.params.get("paths"):
                left = [word for word in ctx.meta[_TYPED] if word not in ctx.params["paths"]]
                command = shlex.join([*ctx.command_path.split(), *error.paths, *left])
                error.hint = f"{error.hint}: `{command}`"
            named = Named.of(db, ctx.params.get("campaign"))
            named = replace(named, kept=tuple(_typed(ctx)))
            explained.args = (named.in_text(str(explained)),)
            if explained.hint is not None:
                explained.hint = named.caller.same_command(named.in_text(explained.hint))
            raise explained from error.__cause__
