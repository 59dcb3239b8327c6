"""`vdisklab claims`: what the articles say, held against what was measured here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vdisklab.analysis.claimfile import ClaimFile, builtin_claims, parse_claims
from vdisklab.analysis.observations import MeasureKey
from vdisklab.cli.campaign_options import takes_settings
from vdisklab.cli.filling import NOTHING, Filled, measure_missing
from vdisklab.cli.options import CampaignOption, Format, FormatOption
from vdisklab.cli.output import emit
from vdisklab.errors import (
    EXIT_CLAIM_FAILS,
    EXIT_CLAIM_OPEN,
    EXIT_INTERRUPTED,
    HostError,
    PlanError,
)
from vdisklab.plan.profile import Profile
from vdisklab.plan.settings import NO_BASELINE, Request
from vdisklab.render.tables.claim_results import claims_document, claims_table, junit_xml
from vdisklab.services.answers import (
    Loaded,
    Results,
    disagreement,
    joinable_campaigns,
    load,
    open_results,
)
from vdisklab.services.claim_answers import ClaimsAnswer, evaluate_claims
from vdisklab.services.planning import load_profile
from vdisklab.units import MIB, format_bytes
from vdisklab.workload.registry import directions_of

MOST_BYTES = 1 * MIB
"""Of a claim file; the articles' are of a few KiB."""

_A_CLAIM_FILE = "name a TOML file that can be read, as docs/claims.md shows"


@takes_settings("blocks", "runtime", "ramp", "size_bytes", "directory", "accelerator", "db")
def claims(
    asked: Request,
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Claims of your own in TOML; may be given again. The articles' are left out then.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="NAME", help="Only this article or claim; may be given again."
        ),
    ] = None,
    measure_missing_cells: Annotated[
        bool,
        typer.Option(
            "--run",
            help="Measure the cells that are missing, and nothing else; the same command continues "
            "after an interruption.",
        ),
    ] = False,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the answers as JUnit XML, too.")
    ] = None,
    campaign: CampaignOption = None,
    form: FormatOption = Format.TABLE,
) -> int:
    """Hold the claims of five articles, or your own, against what was measured here.

    Each is a ratio of two sets of disk paths with a stated range. It holds, fails, is
    inconclusive, or was not measured; then the command that would is printed. Ends with 0 when
    every claim holds, with 9 when one fails, with 10 when one is open (inconclusive, void or not
    measured) and none fails.

    Examples:

        vdisklab claims --only debatty-2024

        vdisklab claims --only default-is-writeback --run --dir /srv/images

        vdisklab claims --file acceptance.toml --junit claims.xml
    """
    chosen = _chosen(_read(files or ()), only or ())
    if junit is not None:
        # Before anything is measured; and an old answer must not pass for this one's.
        _write(junit, "")
    asked = replace(asked, baseline=NO_BASELINE)
    filled = Filled((), interrupted=False)
    if measure_missing_cells:
        every = [claim for file in chosen for claim in file.claims]
        filled = measure_missing(every, asked, campaign, Console(stderr=True))
    with open_results(asked.db) as results:
        answer = answer_all(results, chosen, campaign, asked, filled.campaigns)
    if junit is not None:
        _write(junit, junit_xml(answer))
    emit(form, [claims_table(answer)], lambda: claims_document(answer))
    return EXIT_INTERRUPTED if filled.interrupted else exit_status(answer)


def _write(file: Path, text: str) -> None:
    """Raises HostError for a place that cannot be written."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise HostError(
            f"the answers cannot be written to {file}: {error.strerror}",
            hint="name a file in a directory that exists: --junit claims.xml",
        ) from error


def exit_status(answer: ClaimsAnswer) -> int:
    """0 when every claim is shown to hold, 9 when one fails, else 10."""
    counts = answer.counts
    if counts.get("fails"):
        return EXIT_CLAIM_FAILS
    return 0 if counts.get("holds") == len(answer.answers) else EXIT_CLAIM_OPEN


def answer_all(
    results: Results,
    files: Sequence[ClaimFile],
    names: list[str] | None,
    asked: Request,
    measured: Sequence[str] = (),
) -> ClaimsAnswer:
    """Every claim answered from a database. Raises PlanError and DatabaseError.

    `measured` are the campaigns that `--run` made or found, which stand beside those that are
    named, and in the place of the newest.
    """
    loaded, left_out = _load(results, names, measured)
    return evaluate_claims(loaded, files, asked, left_out)


def _load(
    results: Results, names: list[str] | None, measured: Sequence[str]
) -> tuple[Loaded, tuple[str, ...]]:
    """What the claims are answered from; nothing at all from a database without campaigns."""
    if not names and not results.campaigns():
        return NOTHING, ()
    base = results.campaign(measured[0]) if measured and not names else None
    ids, left_out = joinable_campaigns(results, names, base)
    first = results.campaign(ids[0])
    for name in measured:
        error = disagreement(first, results.campaign(name))
        if error is not None:
            left_out = tuple(dict.fromkeys((*left_out, str(error))))
        elif name not in ids:
            ids = (*ids, name)
    return load(results, ids), left_out


def _read(paths: Sequence[Path]) -> tuple[ClaimFile, ...]:
    """The claims of these files, or of the articles. Raises PlanError naming file, claim, key."""
    if not paths:
        return builtin_claims()
    files: list[ClaimFile] = []
    for path in paths:
        file = parse_claims(_text_of(path), str(path))
        _check_profiles(file, str(path))
        _refuse_namesakes(file, path, files)
        files.append(file)
    return tuple(files)


def _text_of(path: Path) -> str:
    """Raises PlanError for what is no text of a size that a person writes."""
    try:
        with path.open("rb") as source:
            content = source.read(MOST_BYTES + 1)
    except OSError as error:
        raise PlanError(
            f"the claims {path} cannot be read: {error.strerror}", hint=_A_CLAIM_FILE
        ) from error
    if len(content) > MOST_BYTES:
        raise PlanError(
            f"the claims {path} are larger than {format_bytes(MOST_BYTES)}",
            hint=f"{_A_CLAIM_FILE}; many claims go into several files",
        )
    try:
        return content.decode("utf-8-sig")  # some editors begin a file with a mark
    except UnicodeDecodeError as error:
        raise PlanError(f"the claims {path} are not UTF-8 text", hint=_A_CLAIM_FILE) from error


def _refuse_namesakes(file: ClaimFile, path: Path, before: Sequence[ClaimFile]) -> None:
    """Raises PlanError for a claim that stands in an earlier file: it would count twice."""
    known = {(claim.article, claim.name) for other in before for claim in other.claims}
    for claim in file.claims:
        if (claim.article, claim.name) in known:
            raise PlanError(
                f"claim {claim.name!r} of {claim.article!r} stands in another file and in {path}",
                hint="name each file once, and give each its own key 'article'",
            )


def _check_profiles(file: ClaimFile, origin: str) -> None:
    """Raises PlanError for a measure that the claim's profile does not make."""
    profiles: dict[str, Profile] = {}
    for claim in file.claims:
        try:
            if claim.profile not in profiles:
                profiles[claim.profile] = load_profile(claim.profile)
        except PlanError as error:
            message = f"key 'profile' of claim {claim.name!r} of {origin}: {error}"
            raise PlanError(message, hint=error.hint) from error
        for key in claim.measures:
            _check_measure(key, profiles[claim.profile], f"claim {claim.name!r} of {origin}")


def _check_measure(key: MeasureKey, profile: Profile, where: str) -> None:
    made = {measurement.name: measurement for measurement in profile.measurements}
    if key.name not in made:
        raise PlanError(
            f"key 'measures' of {where}: the profile {profile.name} has no measurement "
            f"{key.name!r}",
            hint=f"it has {', '.join(made)}",
        )
    directions = directions_of(made[key.name])
    if directions is not None and key.direction not in directions:
        does = " and ".join(directions)
        raise PlanError(
            f"key 'measures' of {where}: {key.name} of the profile {profile.name} does "
            f"{does} only, not {key.direction}",
            hint=f"write {key.name}/{directions[0]}/{key.metric}",
        )


def _chosen(files: Sequence[ClaimFile], only: Sequence[str]) -> tuple[ClaimFile, ...]:
    """The articles and claims that were named, or all. Raises PlanError for a name of neither."""
    if not only:
        return tuple(files)
    known = {file.article for file in files} | {c.name for file in files for c in file.claims}
    for name in only:
        if name not in known:
            raise PlanError(
                f"there is no article or claim {name!r}",
                hint=f"articles: {', '.join(file.article for file in files)}",
            )
    kept = [
        replace(
            file,
            claims=tuple(c for c in file.claims if file.article in only or c.name in only),
        )
        for file in files
    ]
    return tuple(file for file in kept if file.claims)
