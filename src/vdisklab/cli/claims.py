"""`vdisklab claims`: are the claims of articles, or your own, true on this machine?"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from vdisklab.actions.missing_claims import MeasuredClaims, measure_missing
from vdisklab.actions.output_file import output_file, require_writable
from vdisklab.analysis.claim_verdicts import ClaimStatus
from vdisklab.analysis.claimfile import ClaimFile
from vdisklab.answers import claims as answers
from vdisklab.answers.hosts import HostsAnalysis
from vdisklab.answers.loading import NOTHING, database_url, open_results
from vdisklab.cli.shell import options
from vdisklab.cli.shell.caller import Caller, needs_root, retyped
from vdisklab.cli.shell.live import TerminalProgress
from vdisklab.cli.shell.named import Named
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import (
    EXIT_CLAIM_FAILS,
    EXIT_CLAIM_OPEN,
    EXIT_INTERRUPTED,
    NoDatabaseError,
    PlanError,
)
from vdisklab.plan.option_rows import OptionRows, option
from vdisklab.plan.settings import NO_BASELINE, Request
from vdisklab.plan.value_kinds import FILE, FILES, SWITCH
from vdisklab.results.store import open_store
from vdisklab.value import replace
from vdisklab.views.claims import junit_xml, tables

PANEL = VerbPanel.LEARN


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsOptions(OptionRows):
    """Which claims, and from which measurements."""

    files: tuple[Path, ...] = option(
        FILES,
        "Your own claims in TOML, instead of the articles'; can be repeated.",
        flag="--file",
        metavar="FILE",
    )
    only: tuple[str, ...] = option(
        options.TEXTS, "Only this article or claim; can be repeated.", metavar="NAME"
    )
    run: bool = option(
        SWITCH,
        "First measure the cells that are missing; after an interruption the same command "
        "continues.",
    )
    junit: Path | None = option(FILE, "Also write the answers as JUnit XML.", metavar="FILE")
    campaign: tuple[str, ...] = options.campaigns_option()
    hosts: tuple[str, ...] = options.hosts_option()


@options.takes_options(
    requested=(
        "rounds", "runtime", "ramp", "size_bytes", "directory", "accelerator", "guest_arch", "db",
    )
)  # fmt: skip
def claims(requested: Request, asked_for: ClaimsOptions, output: options.OutputOptions) -> int:
    """Evaluate the claims of five articles, or your own, against measurements on this host.

    A claim is a ratio of two sets of disk paths with a stated range. It holds, fails, is
    inconclusive, or is not measured; then the command that measures it is printed. Ends with 0 if
    every claim holds, with 9 if one fails, with 10 if none fails and one is open (inconclusive,
    void or not measured).

    Examples:

        vdisklab claims --only debatty-2024

        vdisklab claims --only default-is-writeback --run --dir /srv/images

        vdisklab claims --file acceptance.toml --junit claims.xml

        vdisklab claims --hosts all
    """
    chosen = answers.read_claims(asked_for.files, asked_for.only)
    junit = asked_for.junit
    requested = replace(requested, baseline=NO_BASELINE)
    if asked_for.hosts and asked_for.run:
        raise PlanError(
            "--hosts judges what is stored, and --run measures on this host only",
            hint="leave out --run, or leave out --hosts on each host",
        )
    if junit is not None:
        require_writable(junit)  # before measuring; a command that is refused leaves no file
    answered = _over_hosts if asked_for.hosts else _on_this_host
    answer, interrupted = answered(chosen, requested, asked_for)
    if junit is not None:
        with output_file(junit) as stream:
            named = Named.by(requested, asked_for).on_targets_of(answer.campaigns)
            stream.write(junit_xml(answer, named.in_text).encode())
    caller = Caller.of_process()
    missing = {claim.command for claim in answer.claims if claim.command}
    named = Named(layered=frozenset(command for command in missing if needs_root(command)))
    measures = retyped("claims", flags=["--run"], valued=["--rounds"])
    shown = tables(answer, f"{measures} --run")
    print_answer(answer, shown, output, requested, asked_for, named)
    if not interrupted:
        return exit_status(answer)
    continues = caller.same_command("the same command continues")
    print(f"interrupted: all runs so far are kept; {continues}", file=sys.stderr)
    return EXIT_INTERRUPTED


def _over_hosts(
    chosen: Sequence[ClaimFile], requested: Request, asked_for: ClaimsOptions
) -> tuple[answers.ClaimsAnswer, bool]:
    """The stored answer of many hosts; nothing is measured, so nothing was interrupted."""
    with open_results(requested.db) as results:
        analysis = HostsAnalysis.of_hosts(results, asked_for.hosts, asked_for.campaign)
        return answers.claims_over_hosts(analysis, chosen, requested), False


def _on_this_host(
    chosen: Sequence[ClaimFile], requested: Request, asked_for: ClaimsOptions
) -> tuple[answers.ClaimsAnswer, bool]:
    """The answer of this host, after what is missing was measured if --run says so; True if that
    was interrupted."""
    campaign = asked_for.campaign
    measured = MeasuredClaims((), interrupted=False)
    url = database_url(requested.db, create=asked_for.run)
    try:
        with open_store(url, create=asked_for.run) as store:
            if asked_for.run:
                claims_to_measure = [claim for file in chosen for claim in file.claims]
                with TerminalProgress(Console(stderr=True)) as progress:
                    measured = measure_missing(
                        store, claims_to_measure, requested, campaign, progress
                    )
            answer = answers.answer_claims(store, chosen, campaign, requested, measured.campaigns)
    except NoDatabaseError as error:
        if requested.db is not None or campaign:
            raise
        print(f"note: {error}: nothing was measured yet", file=sys.stderr)
        answer = answers.evaluate_claims(NOTHING, chosen, requested)
    return answer, measured.interrupted


def exit_status(answer: answers.ClaimsAnswer) -> int:
    """0 if every claim holds, 9 if one fails, else 10."""
    counts = answer.counts
    if counts.get(ClaimStatus.FAILS):
        return EXIT_CLAIM_FAILS
    return 0 if counts.get(ClaimStatus.HOLDS) == len(answer.claims) else EXIT_CLAIM_OPEN
