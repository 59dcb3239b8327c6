"""`claims`: are the claims of articles, or your own, true on this machine?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from vdisklab.analysis.claim_verdicts import (
    ClaimAnswer,
    ClaimStatus,
    ClaimVerdict,
    Void,
    judge_claims,
)
from vdisklab.analysis.claimfile import ClaimedContrast, ClaimFile, builtin_claims, parse_claims
from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.diagnostics.ranked import slow_diagnostics
from vdisklab.analysis.diagnostics.recorded import diagnostics_of_all
from vdisklab.analysis.observations import MeasureKey
from vdisklab.answers.hosts import HostsAnalysis, OverHosts
from vdisklab.answers.joining import Joining
from vdisklab.answers.loading import NOTHING, Loaded, joinable_campaigns, load, load_chosen
from vdisklab.answers.missing_cells import missing_cells, request_for, run_command
from vdisklab.documents import RARE, Answer, Count, Probability
from vdisklab.errors import PlanError
from vdisklab.path.cell import Cell
from vdisklab.plan.accelerator import Accelerator, AcceleratorChoice
from vdisklab.plan.profile import Profile
from vdisklab.plan.settings import Request
from vdisklab.plan.toml_file import text_of
from vdisklab.results.model import Campaign
from vdisklab.results.store import Store
from vdisklab.value import Value, replace
from vdisklab.workload.profile_files import load_profile
from vdisklab.workload.registry import directions_of

ALPHA = 0.05
"""The chance that any claim of an answer is judged wrongly."""

_CLAIM_FILE = "name a readable TOML file, in the format of docs/claims.md"


NEEDS_KVM = "needs KVM first: void under emulation"
"""Of a claim that is not measured, where the campaign's guests are emulated."""


class JudgedClaim(Value):
    """The verdict on one claim."""

    article: str
    claim: Annotated[str, "its name"]
    sentence: str
    status: ClaimStatus
    verdict: Annotated[str, "the status in words"]
    ratio: Annotated[
        float | None, "left/right within rounds, of the pair that `decides`; with `unit` its value"
    ]
    low: Annotated[float | None, "95 % interval of the ratio, for this claim alone"]
    high: float | None
    stated: Annotated[str, "the claimed range"]
    stated_low: Annotated[float | None, "null for an open end"]
    stated_high: float | None
    p: Annotated[Probability | None, "for this claim alone"]
    p_adjusted: Annotated[Probability | None, "corrected for all claims (Holm); this one decides"]
    decides: Annotated[
        ClaimedContrast | None,
        "the pair that is outside the range most clearly or, if all are inside, so least clearly",
    ]
    rounds: Annotated[Count, "in which all cells of the claim were measured"]
    more_rounds: Annotated[int | None, "how many more rounds would decide"]
    void: Annotated[Void | None, "why the claim says nothing about this machine"]
    command: Annotated[str | None, "measures what is missing; null unless not measured"]
    left: Annotated[tuple[Cell, ...], "the compared cells, each with its partner in `right`"]
    right: tuple[Cell, ...]
    measures: tuple[MeasureKey, ...]
    absolute: Annotated[bool, "true for a claim of guest against host, or about a value"]
    missing: Annotated[tuple[Cell, ...], "cells to measure"]
    failures: Annotated[tuple[str, ...], "why its runs failed"]
    hosts: Annotated[
        Mapping[ClaimStatus, tuple[str, ...]] | None,
        RARE,
        "with --hosts: the hosts by the claim's status there; the claim fails if it fails on any "
        "host (p times the number of hosts), holds if it holds on all, and else is void if it is "
        "void on any; `command` is for the first host that has not measured it",
    ] = None
    unit: Annotated[str | None, RARE, "of a claim about a value of `left`, not about a ratio"] = (
        None
    )

    @classmethod
    def of(cls, answer: ClaimAnswer, command: str | None, *, emulated: bool) -> JudgedClaim:
        """The row of an answer, with the command that measures what it lacks.

        Where guests are `emulated`, an absolute claim would be void once it is measured.
        """
        claim = answer.claim
        needs_kvm = _needs_kvm(answer, emulated=emulated)
        return cls(
            article=claim.article,
            claim=claim.name,
            sentence=claim.sentence,
            status=answer.status,
            verdict=f"{answer.sentence} ({NEEDS_KVM})" if needs_kvm else answer.sentence,
            ratio=answer.ratio,
            low=answer.low,
            high=answer.high,
            stated=claim.stated,
            stated_low=claim.low or None,
            stated_high=None if math.isinf(claim.high) else claim.high,
            p=answer.p,
            p_adjusted=answer.p_adjusted,
            decides=answer.decides,
            rounds=answer.rounds,
            more_rounds=answer.more_rounds,
            void=answer.void,
            command=command,
            left=tuple(left for left, _ in claim.pairs),
            right=() if claim.of_value else tuple(right for _, right in claim.pairs),
            measures=claim.measures,
            absolute=claim.absolute,
            missing=answer.missing,
            failures=answer.failures,
            unit=claim.unit,
        )


class ClaimsAnswer(Answer):
    """`vdisklab claims`: a verdict on each claim of the articles."""

    FORMAT = "vdisklab.claims/3"

    campaigns: Annotated[tuple[Campaign, ...], "where the verdicts come from"]
    caveats: Caveats
    articles: Annotated[Mapping[str, str], "name: title"]
    counts: Annotated[Mapping[ClaimStatus, int], "claims of each status"]
    claims: tuple[JudgedClaim, ...]
    left_out: Annotated[tuple[str, ...], "campaigns that could not be joined, each with the reason"]
    findings: tuple[Diagnostic, ...]
    hosts: Annotated[OverHosts | None, "with --hosts"] = None


def read_claims(files: Sequence[Path], only: Sequence[str]) -> tuple[ClaimFile, ...]:
    """The claims in these files, or of the built-in articles, limited to the names in `only`.

    Raises PlanError for a file that cannot be read or is wrong, and for an unknown name.
    """
    return _selected(_parsed(files) if files else builtin_claims(), only)


def _parsed(paths: Sequence[Path]) -> tuple[ClaimFile, ...]:
    files: list[ClaimFile] = []
    for path in paths:
        file = parse_claims(text_of(path, "claim file", _CLAIM_FILE), str(path))
        _check_profiles(file, str(path))
        _refuse_duplicates(file, path, files)
        files.append(file)
    return tuple(files)


def _refuse_duplicates(file: ClaimFile, path: Path, before: Sequence[ClaimFile]) -> None:
    """Raises PlanError for a claim that is also in an earlier file, to count it once."""
    known_names = {(claim.article, claim.name) for other in before for claim in other.claims}
    for claim in file.claims:
        if (claim.article, claim.name) in known_names:
            raise PlanError(
                f"claim {claim.name!r} of {claim.article!r} is in {path} and in another file",
                hint="name each file once, and give each its own key 'article'",
            )


def _check_profiles(file: ClaimFile, origin: str) -> None:
    """Raises PlanError for a measure that the claim's profile does not have."""
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
    measurements = {measurement.name: measurement for measurement in profile.measurements}
    if key.name not in measurements:
        raise PlanError(
            f"key 'measures' of {where}: the profile {profile.name} has no measurement "
            f"{key.name!r}",
            hint=f"it has {', '.join(measurements)}",
        )
    directions = directions_of(measurements[key.name])
    if directions is not None and key.direction not in directions:
        raise PlanError(
            f"key 'measures' of {where}: {key.name} of the profile {profile.name} does "
            f"{' and '.join(directions)} only, not {key.direction}",
            hint=f"write {key.name}/{directions[0]}/{key.metric}",
        )


def _selected(files: Sequence[ClaimFile], only: Sequence[str]) -> tuple[ClaimFile, ...]:
    known_names = {file.article for file in files} | {c.name for file in files for c in file.claims}
    for name in only:
        if name not in known_names:
            raise PlanError(
                f"there is no article or claim {name!r}",
                hint=f"articles: {', '.join(file.article for file in files)}",
            )
    if not only:
        return tuple(files)
    reduced = [
        replace(
            file, claims=tuple(c for c in file.claims if file.article in only or c.name in only)
        )
        for file in files
    ]
    return tuple(file for file in reduced if file.claims)


def answer_claims(
    results: Store,
    files: Sequence[ClaimFile],
    names: Sequence[str] | None,
    requested: Request,
    measured: Sequence[str] = (),
) -> ClaimsAnswer:
    """Evaluates the claims with the named campaigns, or the newest one and all that can join it.

    `measured` are the campaigns of `measure_missing`: they are joined with the named ones, or
    replace the newest. Without campaigns in the database every claim is unmeasured.
    """
    if not names and not results.campaigns():
        return evaluate_claims(NOTHING, files, requested)
    first = [] if names else [results.campaign(name) for name in measured]
    ids, left_out = joinable_campaigns(results, names, first)
    joined = Joining(results, results.campaign(ids[0]))
    for name in (*ids, *measured):
        error = joined.add(results.campaign(name))
        if error is not None:
            is_said = any(said.startswith(f"{name} ") for said in left_out)
            left_out = left_out if is_said else (*left_out, f"{name} ({error})")
        elif name not in ids:
            ids = (*ids, name)
    return evaluate_claims(load(results, ids), files, requested, left_out)


def _needs_kvm(answer: ClaimAnswer, *, emulated: bool) -> bool:
    """True for an absolute claim that lacks measurements where guests are emulated: measured there,
    it would be void."""
    lacking = answer.status is ClaimStatus.NOT_MEASURED
    return emulated and answer.claim.absolute and lacking


def evaluate_claims(
    loaded: Loaded,
    files: Sequence[ClaimFile],
    requested: Request | None = None,
    left_out: tuple[str, ...] = (),
) -> ClaimsAnswer:
    """Each claim with its verdict, and a command for each unmeasured claim.

    The commands use the options of `requested`, or else those of the loaded campaigns.
    """
    claims = [claim for file in files for claim in file.claims]
    answers = judge_claims(claims, loaded.observations, loaded.outlines, ALPHA)
    like = loaded.campaigns[0] if loaded.campaigns else None
    emulated = loaded.caveats.accelerator is Accelerator.TCG
    request = requested or Request()
    commands = {
        (answer.claim.article, answer.claim.name): run_command(
            replace(request_for(cells, request, like), accelerator=AcceleratorChoice.KVM)
            if _needs_kvm(answer, emulated=emulated)
            else request_for(cells, request, like)
        )
        for answer in answers
        if answer.verdict is ClaimVerdict.NOT_MEASURED
        for cells in missing_cells([answer])
    }
    return ClaimsAnswer(
        campaigns=loaded.campaigns,
        caveats=loaded.caveats,
        articles={file.article: file.title for file in files},
        counts=Counter(answer.status for answer in answers),
        claims=tuple(
            JudgedClaim.of(
                answer,
                commands.get((answer.claim.article, answer.claim.name)),
                emulated=emulated,
            )
            for answer in answers
        ),
        left_out=left_out,
        findings=(
            *slow_diagnostics(loaded.observations),
            *diagnostics_of_all(loaded.campaigns, loaded.observations),
        ),
    )


def claims_over_hosts(
    analysis: HostsAnalysis, files: Sequence[ClaimFile], requested: Request
) -> ClaimsAnswer:
    """Every claim, judged on each host by its own rounds."""
    by_host = {
        host.name: evaluate_claims(
            load_chosen(
                analysis.results,
                tuple(campaign for campaign in analysis.campaigns if campaign.id in host.campaigns),
            ),
            files,
            requested,
        )
        for host in analysis.hosts
    }
    first = by_host[analysis.hosts[0].name]
    claims = tuple(
        _on_hosts({name: answer.claims[number] for name, answer in by_host.items()})
        for number in range(len(first.claims))
    )
    return replace(
        first,
        campaigns=analysis.campaigns,
        caveats=analysis.caveats,
        counts=Counter(claim.status for claim in claims),
        claims=claims,
        findings=(),
        hosts=analysis.named_hosts,
    )


def _of_many(claim: JudgedClaim, hosts: int) -> ClaimStatus:
    """The claim's status on one of many hosts, corrected so that it does not fail by chance."""
    certain = claim.p_adjusted is not None and claim.p_adjusted * hosts <= ALPHA
    failed = claim.status is ClaimStatus.FAILS and not certain
    return ClaimStatus.INCONCLUSIVE if failed else claim.status


def _status_of_all(found: Collection[ClaimStatus]) -> ClaimStatus:
    """A claim's status over hosts with these: it fails if it fails on any host, and a claim
    that says nothing about one of the hosts cannot hold on all."""
    for decisive in (ClaimStatus.FAILS, ClaimStatus.VOID):
        if decisive in found:
            return decisive
    (first, *others) = found
    return ClaimStatus.INCONCLUSIVE if others else first


def _on_hosts(claims: Mapping[str, JudgedClaim]) -> JudgedClaim:
    """A claim, judged on each of these hosts, without the numbers of one host."""
    statuses = {name: _of_many(here, len(claims)) for name, here in claims.items()}
    status = _status_of_all(set(statuses.values()))
    claim, *_ = claims.values()
    void = next((here.void for here in claims.values() if here.void is not None), None)
    hosts = {
        kind: tuple(name for name, here in statuses.items() if here is kind)
        for kind in ClaimStatus
        if kind in statuses.values()
    }
    return replace(
        claim,
        status=status,
        verdict=", ".join(f"{kind} on {len(names)}" for kind, names in hosts.items()),
        ratio=None, low=None, high=None, p=None, p_adjusted=None, decides=None, rounds=0,
        more_rounds=None, void=void if status is ClaimStatus.VOID else None,
        command=next((here.command for here in claims.values() if here.command), None),
        missing=(), failures=(), hosts=hosts,
    )  # fmt: skip
