"""`vdisklab claims`: what the articles say, held against what was measured here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vdisklab.analysis.claimfile import Claim, ClaimFile, builtin_claims, parse_claims
from vdisklab.analysis.claims import answer_claims
from vdisklab.analysis.observations import from_numbers
from vdisklab.cli import asking
from vdisklab.cli.asking import ask, load_profile
from vdisklab.cli.held import held_claims
from vdisklab.cli.missing import missing_groups, request_for, whole_pairs
from vdisklab.cli.run import measure
from vdisklab.cli.tables import (
    CampaignOption,
    DbOption,
    Format,
    FormatOption,
    Loaded,
    Results,
    database_url,
    emit,
    joinable_campaigns,
    load,
    open_results,
)
from vdisklab.errors import (
    EXIT_CLAIM_FAILS,
    EXIT_CLAIM_OPEN,
    EXIT_INTERRUPTED,
    HostError,
    PlanError,
)
from vdisklab.plan.build import NO_BASELINE
from vdisklab.plan.request import Request
from vdisklab.report.claims import ClaimsAnswer, claims_document, claims_table, junit_xml
from vdisklab.result.store import open_store


def claims(
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
    measure_missing: Annotated[
        bool, typer.Option("--run", help="Measure the cells that are missing, and nothing else.")
    ] = False,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the answers as JUnit XML, too.")
    ] = None,
    campaign: CampaignOption = None,
    blocks: asking.BlocksOption = None,
    runtime: asking.RuntimeOption = None,
    ramp: asking.RampOption = None,
    size: asking.SizeOption = None,
    directory: asking.DirOption = None,
    accelerator: asking.AcceleratorOption = None,
    db: DbOption = None,
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
    asked = ask(
        blocks=blocks,
        runtime=runtime,
        ramp=ramp,
        size=size,
        directory=directory,
        baseline=NO_BASELINE,
        accelerator=accelerator,
        db=db,
    )
    interrupted = measure_missing and _measure_missing(chosen, asked, campaign)
    with open_results(db) as results:
        answer = answer_all(results, chosen, campaign, asked)
    emit(form, [claims_table(answer)], lambda: claims_document(answer))
    if junit is not None:
        junit.write_text(junit_xml(answer), encoding="utf-8")
    return EXIT_INTERRUPTED if interrupted else exit_status(answer)


def exit_status(answer: ClaimsAnswer) -> int:
    """0 when every claim is shown to hold, 9 when one fails, else 10."""
    counts = answer.counts
    if counts.get("fails"):
        return EXIT_CLAIM_FAILS
    return 0 if counts.get("holds") == len(answer.answers) else EXIT_CLAIM_OPEN


def answer_all(
    results: Results, files: Sequence[ClaimFile], names: list[str] | None, asked: Request
) -> ClaimsAnswer:
    """Every claim answered from a database. Raises PlanError and DatabaseError."""
    loaded, left_out = _load(results, names)
    return held_claims(loaded, files, asked, left_out)


def _load(results: Results, names: list[str] | None) -> tuple[Loaded, tuple[str, ...]]:
    """What the claims are answered from; nothing at all from a database without campaigns."""
    if not names and not results.campaigns():
        return Loaded((), (), from_numbers({})), ()
    ids, left_out = joinable_campaigns(results, names)
    return load(results, ids), left_out


def _read(paths: Sequence[Path]) -> tuple[ClaimFile, ...]:
    """The claims of these files, or of the articles. Raises PlanError naming file, claim, key."""
    if not paths:
        return builtin_claims()
    files = []
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise PlanError(f"the claims {path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise PlanError(f"the claims {path} are not UTF-8 text") from error
        files.append(parse_claims(text, str(path)))
        _check_profiles(files[-1], str(path))
    return tuple(files)


def _check_profiles(file: ClaimFile, origin: str) -> None:
    """Raises PlanError for a measure that the claim's profile does not make."""
    for claim in file.claims:
        try:
            profile = load_profile(claim.profile)
        except PlanError as error:
            message = f"key 'profile' of claim {claim.name!r} of {origin}: {error}"
            raise PlanError(message, hint=error.hint) from error
        made = [measurement.name for measurement in profile.measurements]
        for key in claim.measures:
            if key.name not in made:
                raise PlanError(
                    f"key 'measures' of claim {claim.name!r} of {origin}: the profile "
                    f"{profile.name} has no measurement {key.name!r}",
                    hint=f"it has {', '.join(made)}",
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


def _measure_missing(files: Sequence[ClaimFile], asked: Request, names: list[str] | None) -> bool:
    """Measures what no campaign holds; True when interrupted. Paths not to be had are named."""
    console = Console(stderr=True)
    every: list[Claim] = [claim for file in files for claim in file.claims]
    with open_store(database_url(asked.db)) as store:
        loaded, _ = _load(store, names)
        like = loaded.campaigns[0] if loaded.campaigns else None
        answers = answer_claims(every, loaded.observations, loaded.outlines)
        pairs = {pair for answer in answers for pair in answer.claim.pairs if answer.missing}
        for group in missing_groups(answers):
            try:
                _, _, interrupted = measure(
                    store,
                    request_for(group, asked, like),
                    console,
                    new=False,
                    narrow=lambda plan: whole_pairs(plan, pairs),
                )
            except HostError as error:
                console.print(f"not measured: {error}", markup=False, soft_wrap=True)
                continue
            if interrupted:
                return True
    return False
