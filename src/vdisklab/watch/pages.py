"""The routes of the pages, and the events that keep the live page up to date."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from vdisklab.answers.analysis import Analysis
from vdisklab.answers.loading import open_results
from vdisklab.answers.report import report_on
from vdisklab.errors import VdisklabError
from vdisklab.progress import Running
from vdisklab.value import Value, replace
from vdisklab.views.page.html import page_script, page_style, render_page, report_policy
from vdisklab.watch.answer import NOTHING_YET, WatchAnswer, database_state, measured_now, watch
from vdisklab.watch.view import live_page, live_parts, moving_line

SECONDS_BETWEEN = 1.0
"""No more than one event in that time."""

_REST = 10
"""After an answer that took t seconds, no other is computed for so many t: the host measures."""

_BEAT_SECONDS = 15.0
_POLICY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}


class Commands(Protocol):
    """Completes the commands in what is shown by the names that a user has given."""

    def in_text(self, text: str) -> str:
        """In plain text."""

    def in_html(self, page: str) -> str:
        """In HTML."""

    def in_json(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        """In a JSON value."""


Naming = Callable[[Sequence[str], Sequence[Any]], Commands]
"""By the campaigns that a request names, and those whose targets its commands may need."""


class Look(Value):
    """The page's parts at one moment, and what its script needs."""

    parts: Mapping[str, str]
    moving: Mapping[str, Any]


@dataclass
class LiveState:
    """What all visitors see: read and computed once for all of them, and only when one looks."""

    db: str | None
    naming: Naming
    """What the page's commands name."""
    _lock: Lock = field(default_factory=Lock)
    _answer: WatchAnswer = NOTHING_YET
    _problem: str = ""
    _seen: object = None
    """The database's state and the running campaigns that `_answer` was made from."""
    _look: Look | None = None
    _looked: float = 0.0
    _rests_until: float = 0.0
    """Not read again before this moment of the monotonic clock."""
    _reports: dict[str, tuple[object, float, str]] = field(default_factory=dict)
    """By campaign: the state that a report was made from, when, and its page."""

    def look(self) -> Look:
        """The page now, at most a second old."""
        with self._lock:
            now = time.monotonic()
            if self._look is None or now >= self._looked + 0.9 * SECONDS_BETWEEN:
                running = measured_now()
                self._update(running)
                watched = tuple(
                    replace(campaign, running=find(running, campaign.campaign.id))
                    for campaign in self._answer.watched
                )
                answer = replace(self._answer, watched=watched)
                parts = live_parts(answer, self._problem)
                commands = self.naming((), [campaign.campaign for campaign in watched])
                html = {name: commands.in_html(text) for name, text in parts.items()}
                self._look = Look(html, moving_line(answer))
                self._looked = now
            return self._look

    def _update(self, running: tuple[Running, ...]) -> None:
        """Computes the answer anew if something was stored, or another campaign runs."""
        began = time.monotonic()
        try:
            seen = (database_state(self.db), tuple(progress.campaign for progress in running))
            if seen == self._seen or (began < self._rests_until and not self._problem):
                return
            with open_results(self.db, read_only=True) as results:
                self._answer = watch(results, running)
            self._seen, self._problem = seen, ""
        except VdisklabError as error:  # locked, or gone: said on the page, which goes on
            self._problem = f"{str(error)[:1].upper()}{str(error)[1:]}. {error.hint or ''}".strip()
        self._rests_until = time.monotonic() + _REST * (time.monotonic() - began)

    def report(self, name: str) -> str:
        """The report on a campaign, made anew when something was stored since."""
        with self._lock:
            began, state = time.monotonic(), database_state(self.db)
            made, rests_until, page = self._reports.get(name, (None, 0.0, ""))
            if made != state and began >= rests_until:
                with open_results(self.db, read_only=True) as results:
                    analysis = Analysis.of(results, [name])
                    commands = self.naming([name], analysis.campaigns)
                    page = commands.in_html(render_page(report_on(analysis)))
                took = time.monotonic() - began
                self._reports = {name: (state, time.monotonic() + _REST * took, page)}
            return page


def find(running: tuple[Running, ...], campaign: str) -> Running | None:
    """The process that measures a campaign; None if none does."""
    return next((progress for progress in running if progress.campaign == campaign), None)


async def _events(state: LiveState, request: Request) -> AsyncIterator[str]:
    """Server-sent events: the parts that have changed, in N seconds no more than N of them.

    A visitor who reads slowly gets fewer of them: the next look is taken when the last was sent.
    """
    sent: dict[str, str] = {}
    moving: Mapping[str, Any] | None = None
    spoke = time.monotonic()
    yield f"retry: {round(2000 * SECONDS_BETWEEN)}\n\n"
    while True:
        await asyncio.sleep(SECONDS_BETWEEN)  # first, too: the page came with all that is known
        if await request.is_disconnected():
            return
        look = await run_in_threadpool(state.look)
        changed = {name: html for name, html in look.parts.items() if sent.get(name) != html}
        if changed or look.moving != moving:
            sent, moving, spoke = dict(look.parts), look.moving, time.monotonic()
            yield f"data: {json.dumps({'parts': changed, **look.moving})}\n\n"
        elif time.monotonic() >= spoke + _BEAT_SECONDS:
            spoke = time.monotonic()
            yield ": still here\n\n"


def routes(db: str | None, naming: Naming) -> list[BaseRoute]:
    """All pages about the results at `--db`."""
    state = LiveState(db, naming)
    files = {
        "live.css": (page_style("live.css"), "text/css"),
        "live.js": (page_script("live.js"), "text/javascript"),
    }

    def home(request: Request) -> Response:
        del request
        look = state.look()
        return HTMLResponse(live_page(look.parts, look.moving), headers=_POLICY)

    async def events(request: Request) -> Response:
        return StreamingResponse(_events(state, request), media_type="text/event-stream")

    def campaign(request: Request) -> Response:
        page = state.report(request.path_params["campaign"])
        return HTMLResponse(page, headers={"Content-Security-Policy": report_policy()})

    def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in files:
            return Response(status_code=404)
        text, kind = files[name]
        return Response(text, media_type=kind)

    def icon(request: Request) -> Response:
        del request
        return Response(status_code=204)

    return [
        Route("/", home),
        Route("/events", events),
        Route("/campaign/{campaign}", campaign),
        Route("/static/{name}", static),
        Route("/favicon.ico", icon),
    ]
